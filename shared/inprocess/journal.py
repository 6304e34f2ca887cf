"""A run's journal in a tick, and the hosts that use it: reads cost no SQL, decisions build on each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from shared.errors import StoreConflict
from shared.inprocess.tick import TickStore
from shared.ports import Models, Tools
from shared.runtime.host import Host, StepHost
from shared.runtime.journal import Change, Journal, Snapshot
from shared.runtime.mailing import GateHost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shared.inprocess.hub import Hub
    from shared.inprocess.tick import Book
    from shared.ports import Clock, ModelReply, ModelRequest, Store, Usage
    from shared.runtime.task import Task
    from shared.tools.registry import Call

T = TypeVar("T")


class TickJournal(Journal):
    """A journal whose decisions become part of the tick at hand. On other threads it is a journal like any other."""

    def __init__(self, tick: TickStore, clock: Clock, tenant: str, run: str) -> None:
        super().__init__(tick, clock, tenant, run)
        self._tick = tick

    def read(self, sks: Iterable[str]) -> Snapshot:
        """Read the named records, always with the head."""
        book = self._tick.book(self.pk)
        return super().read(sks) if book is None else _some(book, frozenset({"HEAD", *sks}))

    def read_all(self) -> Snapshot:
        """Read every record of the run except its events."""
        book = self._tick.book(self.pk)
        return super().read_all() if book is None else _all(book)

    def transact(self, seen: Snapshot, decide: Callable[[Snapshot], Change[T]]) -> tuple[T, Snapshot]:
        """Write at the tick's end what ``decide`` wants of the records as they are now. Raises as ``Journal`` does."""
        book = self._tick.book(self.pk)
        if book is None:
            return super().transact(seen, decide)
        now = _all(book) if seen.whole else _some(book, seen.asked.union(seen.records))
        change = decide(now)
        unread = {sk for one in change.records if (sk := one.sk) in book and sk not in now.records}
        if unread:
            now = _some(book, now.asked | unread)
            change = decide(now)
        return self._put(now, change, decide)

    def _put(self, now: Snapshot, change: Change[T], decide: Callable[[Snapshot], Change[T]]) -> tuple[T, Snapshot]:
        if not change.records and not change.notes:
            return change.result, now
        records, events = self._numbered(now, change)
        try:
            written = self._tick.put(self.pk, records, events, change.elsewhere)
        except StoreConflict:
            return super().transact(now, decide)
        return change.result, now.with_(written)


def _some(book: Book, asked: frozenset[str]) -> Snapshot:
    return Snapshot({sk: book[sk] for sk in asked if sk in book}, asked)


def _all(book: Book) -> Snapshot:
    return Snapshot(dict(book), frozenset({"HEAD", "RUN"}), whole=True)


def journal_of(store: Store, clock: Clock, tenant: str, run: str) -> Journal:
    """Return a run's journal: with ticks, where the store has them."""
    kind = TickJournal if isinstance(store, TickStore) else Journal
    return kind(store, clock, tenant, run)  # pyright: ignore[reportArgumentType] - the store was just looked at


def _journal(host: Host, task: Task) -> Journal:
    return journal_of(host.store, host.clock, task.tenant, task.run)


@dataclass(frozen=True, slots=True)
class LocalStepHost(StepHost):
    """The ports of steps, with ticks."""

    def journal(self, task: Task) -> Journal:
        """Return the journal of the task's run."""
        return _journal(self, task)


@dataclass(frozen=True, slots=True)
class LocalGateHost(GateHost):
    """The ports of gates, with ticks."""

    def journal(self, task: Task) -> Journal:
        """Return the journal of the task's run."""
        return _journal(self, task)


class AwayTools(Tools):
    """``tools``, called by the hub's other threads."""

    def __init__(self, tools: Tools, hub: Hub) -> None:
        self._tools, self._hub = tools, hub

    def cost(self, name: str) -> int:
        """Return what one call costs at most, in nano-USD."""
        return self._tools.cost(name)

    def service(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what a call depends on."""
        return self._tools.service(name, arguments)

    def offers(self, names: Sequence[str], call: Call) -> Mapping[str, Mapping[str, Any]]:
        """Return what tools do that only somebody else can describe. Raises StepFailure subclasses."""
        return self._hub.away(partial(self._tools.offers, names, call))

    def invoke(self, name: str, arguments: Mapping[str, Any], call: Call) -> Any:
        """Call the tool. Raises StepFailure subclasses."""
        return self._hub.away(partial(self._tools.invoke, name, arguments, call))


class AwayModels(Models):
    """``models``, asked by the hub's other threads."""

    def __init__(self, models: Models, hub: Hub) -> None:
        self._models, self._hub = models, hub

    def complete(self, request: ModelRequest) -> ModelReply:
        """Send one request, without retries. Raises StepFailure subclasses."""
        return self._hub.away(partial(self._models.complete, request))

    def ceiling(self, request: ModelRequest, *, exact: bool = False) -> Usage:
        """Return the most this request can use; with ``exact``, as the provider counts."""
        ask = partial(self._models.ceiling, request, exact=exact)
        return self._hub.away(ask) if exact else ask()
