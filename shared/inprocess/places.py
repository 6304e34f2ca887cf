"""Where this process's runs are: in memory while something moves, else nothing but an id and a revision."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.inprocess.journal import journal_of
from shared.inprocess.live import Live
from shared.inprocess.watch import DEADLINE
from shared.ledger.records import run_partition
from shared.ports import Key
from shared.runtime.journal import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from shared.inprocess.engine import InProcess
    from shared.inprocess.live import Walk
    from shared.ports import Item
    from shared.runtime.journal import Journal, Snapshot


class Places:
    """The runs that are driven here, by id: under way (``Live``), or parked (the revision of its head)."""

    def __init__(self, engine: InProcess, tenant: str, release: Callable[[str], None]) -> None:
        self._engine, self._tenant, self._release = engine, tenant, release
        self._places: dict[str, Live | int] = {}
        self._fresh: set[str] = set()
        self._guard = threading.Lock()

    def journal(self, run: str) -> Journal:
        """Return a run's journal."""
        host = self._engine.handlers.steps
        return journal_of(host.store, host.clock, self._tenant, run)

    def runs(self) -> list[str]:
        """Return the runs that are driven here and have not ended."""
        with self._guard:
            return list(self._places)

    def in_memory(self) -> int:
        """Return how many runs are more than an id."""
        return len(self.under_way())

    def under_way(self) -> list[Live]:
        """Return the runs that are more than an id."""
        with self._guard:
            return [place for place in self._places.values() if isinstance(place, Live)]

    def take(self, run: str) -> None:
        """Drive a run whose lease is ours from now on."""
        self._find(run, new=True)

    @contextmanager
    def awake(self, run: str) -> Generator[Live | None]:
        """Yield the run, in memory and locked, waking it when it is parked; None when it is not driven here."""
        while True:
            live = self._find(run, new=False)
            if live is None:
                yield None
                return
            with live.lock:
                if not live.closed:
                    yield live
                    return

    def _find(self, run: str, *, new: bool) -> Live | None:
        with self._guard:
            place = self._places.get(run)
            if isinstance(place, Live) or (place is None and not new):
                return place
            live = self._places[run] = Live(run, taken=place is None)
        self._engine.put(live, None)
        return live

    def adopted(self, live: Live) -> list[Walk]:
        """Read a run's records and return the walks with which it goes on."""
        journal, host = self.journal(live.id), self._engine.handlers.steps
        seen = journal.read_all()
        if live.taken:
            _, seen = journal.transact(seen, _without_leases)
        manifest = host.definitions.manifest(seen.run.workflow, seen.run.version)
        with live.lock:
            live.adopt(seen, manifest)
            if seen.head.ended:
                self.over(live)
                return []
            end = self.deadline(seen)
            if end is not None:
                self._engine.timer(live.id, DEADLINE, end)
            walks = live.opening(lambda plan: self._engine.join_over(live, "", plan), host.clock.now())
            live.active += len(walks) - 1
        return walks

    def deadline(self, seen: Snapshot) -> int | None:
        """Return when (ms) a run has to have ended, by its facts: counted from the start of its present epoch."""
        whole = self._engine.handlers.steps.definitions.manifest(seen.run.workflow, seen.run.version).deadline
        return None if whole is None else self._begun(seen) + int(whole * 1000)

    def _begun(self, seen: Snapshot) -> int:
        if seen.head.epoch == 1:
            return seen.run.created
        (event,) = self.journal(seen.run.id).events(after=seen.head.began - 1, limit=1)
        return event.at

    def park(self, live: Live) -> None:
        """Drop a run from memory in which nothing moves; its lock is held by the caller."""
        rev = self.journal(live.id).read([]).head.rev
        with self._guard:
            live.closed = True
            self._places[live.id] = rev
            self._fresh.add(live.id)
        self._engine.ticks.forget(run_partition(self._tenant, live.id))

    def leave(self, run: str) -> None:
        """Keep no records of a run in memory that were only looked at: nothing of it moves."""
        with self._guard:
            parked = not isinstance(self._places.get(run), Live)
        if parked:
            self._engine.ticks.forget(run_partition(self._tenant, run))

    def over(self, live: Live) -> None:
        """Forget a run that has ended, unless a later epoch was begun meanwhile, which found it here still."""
        self.drop(live)
        if not self.journal(live.id).read([]).head.ended:
            self._engine.host(live.id)

    def drop(self, live: Live) -> None:
        """Forget a run that has ended, or that cannot go on here, and give its lease back."""
        with live.lock, self._guard:
            live.closed = True
            known = self._places.get(live.id) is live
            if known:
                del self._places[live.id]
        if known:
            self._engine.ticks.forget(run_partition(self._tenant, live.id))
            self._release(live.id)
            self._engine.call_next()

    def changed(self, *, elsewhere: bool) -> list[tuple[str, Item]]:
        """Return the runs whose heads other processes may have written since the last call, with their heads."""
        with self._guard:
            fresh, self._fresh = self._fresh, set()
            places = dict(self._places)
        if not elsewhere:
            return []
        keys = {Key(run_partition(self._tenant, run), "HEAD"): run for run in places}
        heads = self._engine.handlers.steps.store.read(list(keys))
        return [
            (keys[key], head) for key, head in heads.items() if keys[key] in fresh or places[keys[key]] != head["rev"]
        ]


def _without_leases(seen: Snapshot) -> Change[None]:
    """Whoever opened these steps is dead: the run's lock, which was the lease, is ours."""
    return Change(None, tuple(replace(step, lease=0) for step in seen.steps() if step.open and step.lease))
