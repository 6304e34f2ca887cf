"""The store as the thread sees it on which all runs move: records in memory, written together at the end of a tick.

A tick begins with the first look at a record and ends when nothing can move any further: one commit, one flush of the
disk for all that many runs have decided meanwhile. While it lasts nobody else writes, so what was read stays true, one
decision builds on another's, and none has to be taken twice. Nothing of it leaves this process before its end: whoever
has something to call waits for that (``shared.inprocess.hub``). A process that dies in a tick has decided nothing.

Other threads see the store as it is.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from shared.ledger.record import Record, replace
from shared.ledger.records import revive
from shared.ports import Store

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from shared.ledger.records import Event
    from shared.ledger.sqlite import Row, SqliteStore
    from shared.ports import Item, Key, Write

Book = dict[str, Record]
"""All records of one run by sort key, its events aside."""


class Ticks:
    """What a hub needs to know of ticks. These do nothing: for stores that write at once."""

    def enter(self) -> None:
        """Let this thread have ticks from now on."""

    def leave(self) -> None:
        """Let it have no more of them."""

    def finish(self) -> None:
        """End the tick, if one has begun. What it has decided is on the disk now. Raises SignalboxError when not."""

    def forget(self, pk: str) -> None:
        """Keep a run's records no longer than this tick: nothing of it moves any more."""


class TickStore(Ticks, Store):
    """``store`` with ticks for the thread that has called ``enter``."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._owner = 0
        self._open = False
        self._elsewhere = 0
        self._books: dict[str, Book] = {}
        self._leaving: set[str] = set()
        self._before: dict[str, dict[str, int]] = {}
        self._events: list[tuple[str, Event]] = []

    # --- the tick ----------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Let this thread have ticks from now on."""
        self._owner = threading.get_ident()

    def leave(self) -> None:
        """Let it have no more of them."""
        self.finish()
        self._owner = 0

    def finish(self) -> None:
        """End the tick, if one has begun. What it has decided is on the disk now.

        Raises StoreUnusable or StoreConflict: nothing of it is, and nothing of it is remembered.
        """
        if not self._open:
            return
        try:
            self._store.end(self._rows())
        except Exception:
            self._books.clear()
            raise
        finally:
            self._open = False
            self._written()
        self._drop(self._leaving)

    def book(self, pk: str) -> Book | None:
        """Return a run's records, to be read only; None on other threads: they have no ticks. Raises StoreUnusable."""
        if self._owner != threading.get_ident():
            return None
        self._begin()
        book = self._books.get(pk)
        if book is None:
            book = self._books[pk] = {item["sk"]: revive(item) for item in self._store.query_except(pk, "EVENT#")}
        return book

    def put(
        self, pk: str, records: Mapping[str, Record], events: Iterable[Event], elsewhere: Sequence[Write] = ()
    ) -> Mapping[str, Record]:
        """Write records, by sort key, and events of a run whose book was read; ``elsewhere`` as in ``Change``.

        Returns the records with their revisions: a tick raises each but once, however often it writes it.
        Raises StoreConflict when a condition of ``elsewhere`` does not hold.
        """
        if elsewhere:
            self.commit(elsewhere)
        book, before = self._books[pk], self._before.setdefault(pk, {})
        written: Book = {}
        for sk, record in records.items():
            if sk not in before:
                before[sk] = book[sk].rev if sk in book else 0
            rev = before[sk] + 1
            written[sk] = record if record.rev == rev else replace(record, rev=rev)
        book.update(written)
        self._events += [(pk, event) for event in events]
        return written

    def forget(self, pk: str) -> None:
        """Keep a run's records no longer than this tick: nothing of it moves any more."""
        self._leaving.add(pk)

    def _begin(self) -> None:
        if self._open:
            return
        self._store.begin()
        self._open = True
        if self._elsewhere != self._store.elsewhere:
            self._elsewhere = self._store.elsewhere
            self._books.clear()
        self._drop(self._store.written)

    def _drop(self, partitions: set[str]) -> None:
        while partitions:
            self._books.pop(partitions.pop(), None)

    def _rows(self) -> Iterator[Row]:
        for pk, written in self._before.items():
            book = self._books[pk]
            for sk, before in written.items():
                yield pk, sk, book[sk].told(), before + 1, before or None
        for pk, event in self._events:
            yield pk, event.sk, event.told(), 1, None

    def _written(self) -> None:
        self._before.clear()
        self._events.clear()

    # --- the port ----------------------------------------------------------------------------------------------------

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the items that exist, those of one partition as of one moment; any number of keys."""
        return self._behind().read(keys)

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Item]:
        """Return the partition's items under ``prefix`` above ``after``, in order."""
        return self._behind().query(pk, prefix, after=after, limit=limit)

    def index(self, name: str, value: str, *, limit: int, before: str = "") -> list[Item]:
        """Return an index's newest items for ``value``, newest first, older than the sort value ``before``."""
        return self._behind().index(name, value, limit=limit, before=before)

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none: in a tick, as part of it. Raises StoreConflict when a condition does not hold."""
        self._behind().commit(writes)
        if self._open and self._owner == threading.get_ident():
            self._drop(self._store.written)

    @contextmanager
    def alone(self) -> Generator[None]:
        """Let nobody else write meanwhile; in a tick, nobody does."""
        with nullcontext() if self._owner == threading.get_ident() else self._store.alone():
            yield

    def _behind(self) -> SqliteStore:
        """Return the store itself; in a tick, with all in it that was decided so far."""
        if self._owner == threading.get_ident():
            self._begin()
            self._store.write(self._rows())
            self._written()
        return self._store
