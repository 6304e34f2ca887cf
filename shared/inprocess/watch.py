"""The engine's watch: timers, calls that are late, and what other processes wrote."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from shared.errors import Conflict
from shared.inprocess.handlers import UNWIND
from shared.inprocess.tiers import TIER
from shared.interpreter import TaskFailed
from shared.runtime.ending import request
from shared.runtime.steps import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.inprocess.engine import InProcess
    from shared.inprocess.live import Live, Walk

LOG = logging.getLogger("signalbox")
TICK = 0.05
"""Seconds between two looks at what other processes wrote and at calls that are late."""
POKE = object()
"""What is sent to a walk so that it performs its operation (again)."""
_SHORTEST = 0.0005
DEADLINE = "deadline"
"""Name of the timer that ends a run."""
_OWN = ("nap:", "sleep:")
_WAITS = (
    "Run %s: the call of %s has not returned in its time. It may still happen, so it is waited for. To give it up, end "
    "this process, and look whether it has happened."
)


class Watch:
    """One thread's work beside the workers'. ``changed`` tells whether another process wrote to the store."""

    def __init__(self, engine: InProcess, changed: Callable[[], bool]) -> None:
        self._engine, self._changed = engine, changed
        self._bell = threading.Condition()
        self._told: set[tuple[str, str, int]] = set()

    def run(self) -> None:
        """Watch until the engine stops."""
        while not self._engine.stopped:
            wait = TICK
            try:
                wait = self.ring_timers()
                self._give_up_late_calls()
                self._look_around()
            except Exception as error:
                LOG.exception("the engine's watch failed")
                self._engine.failure = error
            with self._bell:
                self._bell.wait(max(_SHORTEST, wait))

    def ring(self) -> None:
        """Look now."""
        with self._bell:
            self._bell.notify()

    def ring_timers(self) -> float:
        """Answer what is due. Returns the seconds until the next timer, at most a tick."""
        now = self._engine.now()
        for run, name in self._engine.timers.due(now):
            if name == DEADLINE:
                self._expire(run)
            elif name.startswith(TIER):
                self._engine.tiers.ring(run, name)
            else:
                self._due(run, name)
        following = self._engine.timers.next()
        return TICK if following is None else min(TICK, (following - now) / 1000)

    def _due(self, run: str, token: str) -> None:
        with self._engine.places.awake(run) as live:
            walk = live.parked.get(token) if live else None
            if live is None or walk is None or self._is_early(live, walk, token):
                return
            del live.parked[token]
            live.active += 1
            live.naps -= token.startswith("nap:")
        self._engine.put(live, walk, None if token.startswith(_OWN) else TaskFailed("States.Timeout"))

    def _is_early(self, live: Live, walk: Walk, token: str) -> bool:
        """Tell whether a timer is that of an attempt before: timers are never withdrawn, and this one has its own."""
        until = None if token.startswith(_OWN) else self._engine.until(live, walk)
        return until is not None and until > self._engine.now()

    def _expire(self, run: str) -> None:
        if run not in self._engine.places.runs():
            return
        journal = self._engine.places.journal(run)
        end = self._engine.places.deadline(journal.read(["RUN"]))
        if end is None or end > self._engine.now():  # of an epoch before: timers are never withdrawn
            return
        try:
            request(self._engine.handlers.steps, journal, "timed_out", "the deadline is over", UNWIND)
        except Conflict:
            LOG.info("run %s had ended before its deadline", run)

    def _give_up_late_calls(self) -> None:
        """Give up what only reads and outlasts its time; what changes something is alive as long as its thread is."""
        now, calls = self._engine.now(), self._engine.calls
        late = [(walk, live, ticket) for walk, (deadline, live, ticket) in list(calls.items()) if deadline <= now]
        for walk, live, ticket in late:
            if self._may_happen(live, walk):
                continue
            with live.lock:
                if walk.ticket != ticket or calls.pop(walk, None) is None:
                    continue
                walk.ticket += 1
                self._engine.free(live, walk)
            self._engine.hub.put(self._engine.hub.relieve)
            self._engine.put(live, walk, TaskFailed("States.Timeout"))

    def _may_happen(self, live: Live, walk: Walk) -> bool:
        """Tell whether a call that is late may change something: only its own process will know whether it did."""
        do = walk.do
        path = f"{do.path}{SUFFIX.get(do.op, '')}" if do else ""
        step = self._engine.places.journal(live.id).read([f"STEP#{path}"]).step(path)
        alive = step is not None and step.open and step.changes_something
        if alive and (live.id, path, walk.ticket) not in self._told:
            self._told.add((live.id, path, walk.ticket))
            LOG.warning(_WAITS, live.id, path)
        return alive

    def _look_around(self) -> None:
        """Look again at every run whose records another process may have written."""
        for run, head in self._engine.places.changed(elsewhere=self._changed()):
            with self._engine.places.awake(run) as live:
                if live and live.ready:
                    self._poke(live, head)

    def _poke(self, live: Live, head: Mapping[str, Any]) -> None:
        waiting: dict[str, Walk] = {name: walk for name, walk in live.parked.items() if not name.startswith(_OWN)}
        for name, walk in waiting.items():
            del live.parked[name]
            live.active += 1
            self._engine.put(live, walk, POKE)
        if head.get("unwinding") and not head.get("ended"):
            self._engine.launch(live, live.unwind())
