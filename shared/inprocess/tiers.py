"""Reminders and tiers of gates in this process: timers that are set again from the records, so a crash loses none."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from shared.errors import TransientFailure
from shared.runtime.denials import is_over
from shared.runtime.gates import expire_again
from shared.runtime.mailing import look
from shared.runtime.scopes import scope_of
from shared.runtime.tiers import due

if TYPE_CHECKING:
    from shared.inprocess.engine import InProcess
    from shared.inprocess.live import Live, Walk
    from shared.ledger.records import Gate

LOG = logging.getLogger("signalbox")
TIER = "tier:"
"""What the names of these timers begin with; the gate's path follows."""
AGAIN = 1_000
"""Milliseconds after which a gate is looked at again that could not be."""


def next_of(gate: Gate) -> int | None:
    """Return when (ms) a gate is to be looked at: for a reminder or a tier, or for its end where no token brings it."""
    ends = gate.expires if gate.status == "open" and not gate.token else None
    return min((moment for moment in (due(gate), ends) if moment is not None), default=None)


class Tiers:
    """Looks at gates when a reminder or a tier is due. What was due while no process ran comes when one begins."""

    def __init__(self, engine: InProcess) -> None:
        self._engine = engine
        self._set: dict[tuple[str, str], int] = {}

    def watch(self, live: Live, walk: Walk) -> None:
        """Set the timer of the gate at which a walk waits: its own, or the one that is to approve its step anew."""
        do, plan = walk.do, walk.plan
        if do is None or plan is None:
            return
        path = do.path if plan.type == "human_gate" else f"{scope_of(do.path)}{plan.approved_by}"
        if plan.type == "human_gate" or plan.approved_by:
            self._again(live.id, path, self._engine.places.journal(live.id).read([f"GATE#{path}"]).gate(path))

    def ring(self, run: str, name: str) -> None:
        """Look at a gate whose timer is over, on the hub's thread."""
        self._engine.hub.put(partial(self._look, run, name.removeprefix(TIER)))

    def _look(self, run: str, path: str) -> None:
        self._set.pop((run, path), None)
        places = self._engine.places
        if run not in places.runs():
            return
        try:
            expire_again(self._engine.handlers.gates, places.journal(run), path)
            gate = look(self._engine.handlers.gates, places.journal(run), path)
            self._again(run, path, None if gate and is_over(gate, self._engine.now()) else gate)
        except TransientFailure:
            LOG.warning("gate %s of run %s is looked at again: the store is busy", path, run, exc_info=True)
            self._engine.timer(run, f"{TIER}{path}", self._engine.now() + AGAIN)
        places.leave(run)

    def _again(self, run: str, path: str, gate: Gate | None) -> None:
        moment = next_of(gate) if gate else None
        if moment is not None and self._set.get((run, path)) != moment:
            self._set[run, path] = moment
            self._engine.timer(run, f"{TIER}{path}", moment)
