"""What a run's counters must be: recomputed, and compared with what its head says."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from shared.ledger.record import replace
from shared.ledger.records import Amount
from shared.runtime.protocol import PARKED

if TYPE_CHECKING:
    from shared.ledger.record import Record
    from shared.ledger.records import Head
    from shared.runtime.journal import Snapshot

Differences = dict[str, tuple[Any, Any]]
"""Field -> what the record says, and what it must say."""


def counted(seen: Snapshot) -> Head:
    """Return the head as the run's steps and gates say it must be; ``seen`` holds all records of the run."""
    run, steps = seen.run, seen.steps()
    taken = sum((step.spent + step.hold for step in steps), Amount())
    return replace(
        seen.head,
        open=sum(step.open for step in steps),
        paused=sum(step.status in PARKED and not step.settled for step in steps),
        waiting=sum(gate.status == "open" for gate in seen.gates()),
        slots=sum(step.slot for step in steps),
        left_usd=_left(run.limit_usd, taken.usd),
        left_tokens=_left(run.limit_tokens, taken.tokens),
        left_steps=_left(run.limit_steps, taken.steps),
    )


def at_rest(seen: Snapshot) -> Snapshot:
    """Return the records of a run as they must be: once it has ended no step is open, and nothing is held."""
    if not seen.head.ended:
        return seen
    return seen.with_({step.sk: replace(step, open=False, hold=Amount()) for step in seen.steps()})


def differences(known: Record, right: Record) -> Differences:
    """Return the fields in which a record differs from what it must be."""
    names = [one.name for one in fields(known) if one.name != "rev"]
    pairs = {name: (getattr(known, name), getattr(right, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _left(limit: int | None, taken: int) -> int | None:
    return None if limit is None else limit - taken
