"""Decisions of one run that arrive together, in one commit: a fan-out costs a flush or two, not one for every step.

On DynamoDB a decision that lost against another one waits, reads and decides again. Here there is one writer: it lets
the decision that lost read what the others have just written in the same commit, and decide on that at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from shared.errors import StoreConflict
from shared.ledger.records import Event, Record, revive
from shared.ledger.sqlite import SqliteStore
from shared.ports import Key, Write
from shared.runtime.gates import GateHost
from shared.runtime.host import Host, StepHost
from shared.runtime.journal import Change, Journal, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.ports import Item
    from shared.runtime.task import Task

T = TypeVar("T")


class SharedJournal(Journal):
    """A journal on SQLite whose decisions share commits."""

    def transact(self, seen: Snapshot, decide: Callable[[Snapshot], Change[T]]) -> tuple[T, Snapshot]:
        """Commit what ``decide`` wants of ``seen``, or of what was written meanwhile. Raises as ``Journal`` does."""
        store = self._store
        if seen.whole or not isinstance(store, SqliteStore):
            return super().transact(seen, decide)
        drafts = [self._draft(seen, decide(seen))]
        if not drafts[0].writes:
            return drafts[0].change.result, seen
        keys = [Key(self.pk, sk) for sk in self._same(seen, drafts[0].change)]

        def again(items: Mapping[Key, Item]) -> Sequence[Write]:
            fresh = Snapshot({key.sk: revive(item) for key, item in items.items()}, frozenset(key.sk for key in keys))
            drafts.append(self._draft(fresh, decide(fresh)))
            return drafts[-1].writes

        try:
            store.decide(keys, drafts[0].writes, again)
        except StoreConflict:
            return super().transact(self.read(key.sk for key in keys), decide)
        return drafts[-1].change.result, drafts[-1].after

    def _draft(self, seen: Snapshot, change: Change[Any]) -> _Draft:
        if not change.records and not change.notes:
            return _Draft(change, (), seen)
        records: list[Record] = self._numbered(seen, change)
        writes = (*(self._write(seen, record) for record in records), *change.elsewhere)
        kept = [replace(record, rev=self._rev(seen, record) + 1) for record in records if not isinstance(record, Event)]
        return _Draft(change, writes, seen.with_(kept))


@dataclass(frozen=True, slots=True)
class _Draft:
    """A decision, the writes that it amounts to, and the records after them."""

    change: Change[Any]
    writes: tuple[Write, ...]
    after: Snapshot


def _journal(host: Host, task: Task) -> Journal:
    return SharedJournal(host.store, host.clock, task.tenant, task.run)


@dataclass(frozen=True, slots=True)
class LocalStepHost(StepHost):
    """The ports of steps, with shared commits."""

    def journal(self, task: Task) -> Journal:
        """Return the journal of the task's run."""
        return _journal(self, task)


@dataclass(frozen=True, slots=True)
class LocalGateHost(GateHost):
    """The ports of gates, with shared commits."""

    def journal(self, task: Task) -> Journal:
        """Return the journal of the task's run."""
        return _journal(self, task)
