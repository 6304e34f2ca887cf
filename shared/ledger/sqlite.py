"""The store on one SQLite file: the in-process host's ledger. It survives ``kill -9`` and power loss.

Write-ahead log with full synchronisation: what ``commit`` returned from is on the disk. Commits that arrive while one
is being written share the next one, so many runs cost few disk flushes (group commit). Readers have connections of
their own and wait for nobody. Several processes may use one file: SQLite's lock orders writers.

Given keys, it seals every step's output on its way in and checks it on its way out (``shared.ledger.seal``): who edits
the file without them is found out by the next step that reads what he wrote.

``begin`` and ``end`` open a transaction to one thread for as long as it likes (``shared.inprocess.tick``): meanwhile
nobody else writes, here or in another process, and all that this thread reads and writes is part of it.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import sqlite3
import threading
from collections import defaultdict, deque
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from shared.errors import SignalboxError, StoreConflict
from shared.ports import Item, Key, Store, Write

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from shared.ledger.seal import Seal

PATIENCE = 30.0
"""Seconds that one process waits for another's commit."""
_BATCH = 500
"""Most keys in one statement; SQLite takes at least 999 variables."""
_INDEXES = {
    "by_workflow": ("tenant_workflow", "created"),
    "by_state": ("tenant_state", "created"),
    "pending": ("tenant_pending", "opened"),
}
_COLUMNS = ("tenant_workflow", "tenant_state", "tenant_pending", "created", "opened")
_SCHEMA = (
    # Rows in the order of their making: what one tick writes lies together, whichever runs it belongs to.
    """CREATE TABLE IF NOT EXISTS items (
        pk TEXT NOT NULL, sk TEXT NOT NULL, rev INTEGER NOT NULL, body TEXT NOT NULL, tenant_workflow TEXT,
        tenant_state TEXT, tenant_pending TEXT, created INTEGER, opened INTEGER, PRIMARY KEY (pk, sk)
    )""",
    *(
        f"CREATE INDEX IF NOT EXISTS {name} ON items ({value}, {sort}) WHERE {value} IS NOT NULL"
        for name, (value, sort) in _INDEXES.items()
    ),
)
_INSERT = "INSERT INTO items (body, rev, pk, sk) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_UPDATE = "UPDATE items SET body = ?, rev = ? WHERE pk = ? AND sk = ? AND rev = ?"
_INSERT_INDEXED = (
    "INSERT INTO items (body, tenant_workflow, tenant_state, tenant_pending, created, opened, rev, pk, sk)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_UPDATE_INDEXED = (
    "UPDATE items SET body = ?, tenant_workflow = ?, tenant_state = ?, tenant_pending = ?, created = ?, opened = ?,"
    " rev = ? WHERE pk = ? AND sk = ? AND rev = ?"
)
_STEP = "STEP#"
_SEALED = 1
"""The file's ``user_version`` from when every output in it is sealed."""
_UNINDEXED = ("HEAD", "STEP#", "EVENT#", "PARK#", "KEPT#")
"""Sort keys of records that are in no index: nearly all that is written."""
_LOG_PAGES = 500
"""Pages (4 KiB) of log after which it is brought into the file and begun anew: flushing one that grows takes twice as
long. Seldom enough, since the same pages change again and again."""
_GLANCE = 0.002
"""Seconds after which a thread that waits for its turn looks whether somebody has written for it meanwhile."""
_HIGHEST = "\U0010ffff"


class StoreUnusable(SignalboxError):
    """The file cannot be read or written: says which and why."""


class SqliteStore(Store):
    """All items in the file at ``path``, which is created, readable by its owner only, when it does not exist.

    ``written`` collects the partitions that ``commit`` has written to; who keeps copies of items empties it.
    ``elsewhere`` counts how often other processes have been seen to write.
    """

    def __init__(self, path: Path, seal: Seal | None = None) -> None:
        self.path = path
        self._seal = seal
        self.written: set[str] = set()
        self.elsewhere = self._told = 0
        self._waiting: deque[_Pending] = deque()
        self._turn, self._next = threading.Lock(), threading.Lock()
        self._inside = 0
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            # SQLite lets in whoever asks first after a commit. At this door processes queue for that.
            self._door = os.open(path.with_name(f"{path.name}-door"), os.O_RDWR | os.O_CREAT, 0o600)
            self._writer = self._connect()
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise StoreUnusable(f"{path} cannot be used to keep runs: {error}. Name another file.") from error
        self._version = self._data_version()

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the items that exist, those of one partition as of one moment; any number of keys."""
        found: dict[Key, Item] = {}
        for pk, group in itertools.groupby(sorted(set(keys)), key=lambda key: key.pk):
            for sks in _batches([key.sk for key in group]):
                statement = f"SELECT pk, sk, rev, body FROM items WHERE pk = ? AND sk IN ({','.join('?' * len(sks))})"  # noqa: S608
                found.update((Key(pk, item["sk"]), item) for item in self._items(statement, (pk, *sks)))
        return found

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Item]:
        """Return the partition's items under ``prefix`` above ``after``, in order."""
        statement = (
            "SELECT pk, sk, rev, body FROM items WHERE pk = ? AND sk >= ? AND sk < ? AND sk > ? ORDER BY sk LIMIT ?"
        )
        return self._items(statement, (pk, prefix, prefix + _HIGHEST, after, limit or -1))

    def query_except(self, pk: str, prefix: str) -> list[Item]:
        """Return the partition's items that are not under ``prefix``, as of one moment."""
        below = "SELECT pk, sk, rev, body FROM items WHERE pk = ? AND sk < ?"
        above = "SELECT pk, sk, rev, body FROM items WHERE pk = ? AND sk > ?"
        return self._items(f"{below} UNION ALL {above}", (pk, prefix, pk, prefix + _HIGHEST))

    def index(self, name: str, value: str, *, limit: int, before: str = "") -> list[Item]:
        """Return an index's newest items for ``value``, newest first, older than the sort value ``before``."""
        partition, sort = _INDEXES[name]
        older = f" AND {sort} < ?" if before else ""
        statement = f"SELECT pk, sk, rev, body FROM items WHERE {partition} = ?{older} ORDER BY {sort} DESC LIMIT ?"  # noqa: S608
        given = (value, int(before), limit or -1) if before else (value, limit or -1)
        return self._items(statement, given)

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none, on the disk when this returns. Raises StoreConflict when a condition fails.

        Inside this thread's own transaction they become part of it, and are on the disk when that has ended. Raises
        StoreUnusable when the file cannot be written.
        """
        mine = _Pending(writes)
        if self._inside == threading.get_ident():
            with self._telling():
                self._apply(mine)
        else:
            self._waiting.append(mine)
            self._see_to(mine)
        if mine.error:
            raise mine.error

    def changed_elsewhere(self) -> bool:
        """Tell whether another process has written since this was asked last.

        While somebody writes, what he has seen of others is told.
        """
        if self._turn.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._turn.release()
        known, self._told = self._told, self.elsewhere
        return known != self._told

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            connection.close()
        os.close(self._door)

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(
            self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        made.execute("PRAGMA synchronous = FULL")
        self._connections.append(made)
        return made

    def _prepare(self) -> None:
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        for statement in _SCHEMA:
            self._writer.execute(statement)

    def seal_all(self) -> None:
        """Seal what a file holds that has never had a key. From then on, what is without a seal was written past it."""
        with self.alone():
            if self._is_sealed():
                return
            found = self._reader().execute("SELECT pk, sk, rev, body FROM items WHERE sk >= 'STEP#' AND sk < 'STEP$'")
            self.write((pk, sk, json.loads(body), rev, rev) for pk, sk, rev, body in found.fetchall())
            self._writer.execute(f"PRAGMA user_version = {_SEALED}")

    def _is_sealed(self) -> bool:
        return self._writer.execute("PRAGMA user_version").fetchone()[0] == _SEALED

    def _data_version(self) -> int:
        return int(self._writer.execute("PRAGMA data_version").fetchone()[0])

    # --- a transaction of one thread ---------------------------------------------------------------------------------

    @contextmanager
    def alone(self) -> Generator[None]:
        """Let nobody else write meanwhile, in this process or in another. Raises StoreUnusable."""
        if self._inside == threading.get_ident():
            yield
            return
        self.begin()
        try:
            yield
        except BaseException:
            self.undo()
            raise
        self.end(())

    def begin(self) -> None:
        """Open a transaction that this thread fills and ends. Raises StoreUnusable."""
        with self._next:  # or whoever ends a transaction and begins another would never let anybody in
            self._turn.acquire()
        try:
            self._start()
        except StoreUnusable:
            self._turn.release()
            raise

    def write(self, rows: Iterable[Row]) -> None:
        """Write inside this thread's transaction. Raises StoreConflict or StoreUnusable, having spoilt it all."""
        batches: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for row in rows:
            statement, given = _statement(row, self._seal)
            batches[statement].append(given)
        with self._telling():
            for statement, given in batches.items():
                if self._writer.executemany(statement, given).rowcount != len(given):
                    raise StoreConflict("An item has another revision than this transaction has read.")

    @contextmanager
    def _telling(self) -> Generator[None]:
        """Raise StoreUnusable for what SQLite cannot write inside this thread's transaction."""
        try:
            yield
        except sqlite3.Error as error:
            raise StoreUnusable(f"{self.path} could not be written: {error}") from error

    def end(self, rows: Iterable[Row]) -> None:
        """Write these as well, and commit, together with what waits. Raises as ``write`` does: nothing was written."""
        try:
            self.write(rows)
            self._finish()
        except Exception:
            self._roll_back()
            raise
        finally:
            self._turn.release()

    def undo(self) -> None:
        """Give the transaction up."""
        try:
            self._roll_back()
        finally:
            self._turn.release()

    def _items(self, statement: str, given: tuple[Any, ...]) -> list[Item]:
        return [self._item(row) for row in self._reader().execute(statement, given).fetchall()]

    def _item(self, row: tuple[Any, ...]) -> Item:
        pk, sk, rev, body = row
        item: Item = json.loads(body)
        item["pk"], item["sk"], item["rev"] = pk, sk, rev
        return self._seal.checked(pk, item) if self._seal and sk.startswith(_STEP) else item

    def _reader(self) -> sqlite3.Connection:
        """Return this thread's own connection; inside its transaction, that one's."""
        if self._inside == threading.get_ident():
            return self._writer
        reader: sqlite3.Connection | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._connect()
        return reader

    def _see_to(self, mine: _Pending) -> None:
        """Write everything that waits, unless whoever has the turn has taken this along."""
        while not mine.done:
            if self._turn.acquire(timeout=_GLANCE):
                try:
                    if not mine.done:
                        self._write_waiting()
                finally:
                    self._turn.release()

    def _write_waiting(self) -> None:
        with suppress(StoreUnusable):  # those who wait are told
            self._start()
            self._finish()

    def _start(self) -> None:
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            self._inside = threading.get_ident()
            self._look()
        except sqlite3.Error as error:
            raise self._fail(error, self._taken()) from error
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)

    def _finish(self) -> None:
        """Commit with everything that waits as one; whoever has the turn does it for all the others too."""
        batch = self._taken()
        try:
            for pending in batch:
                self._apply(pending)
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._fail(error, batch) from error
        self._inside = 0
        for pending in batch:
            pending.done = True

    def _taken(self) -> list[_Pending]:
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _look(self) -> None:
        known, self._version = self._version, self._data_version()
        self.elsewhere += known != self._version

    def _apply(self, pending: _Pending) -> None:
        """Apply one transaction inside the shared one; undo just it when a condition does not hold."""
        self._writer.execute("SAVEPOINT one")
        for row in pending.rows:
            pk, sk, *_ = row
            if self._writer.execute(*_statement(row, self._seal)).rowcount != 1:
                self._writer.execute("ROLLBACK TO one")
                pending.error = StoreConflict(f"{pk} {sk} has another revision than expected")
                break
            self.written.add(pk)
        self._writer.execute("RELEASE one")

    def _fail(self, error: sqlite3.Error, batch: list[_Pending]) -> StoreUnusable:
        self._roll_back()
        unusable = StoreUnusable(f"{self.path} could not be written: {error}")
        for pending in batch:
            pending.error, pending.done = unusable, True
        return unusable

    def _roll_back(self) -> None:
        self._inside = 0
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")


Row = tuple[str, str, Item, int, int | None]
"""Partition key, sort key, an item to write, its new revision, and the one that it must have before; None = none may
exist. Data objects may stand in the item; they come back as plain data."""


class _Pending:
    """A transaction that waits for its turn."""

    __slots__ = ("done", "error", "rows")

    def __init__(self, writes: Sequence[Write]) -> None:
        self.rows: list[Row] = [_row(write) for write in writes]
        self.done = False
        self.error: Exception | None = None


def _row(write: Write) -> Row:
    return write.key.pk, write.key.sk, write.item, (write.expected or 0) + 1, write.expected


def _statement(row: Row, seal: Seal | None) -> tuple[str, tuple[Any, ...]]:
    pk, sk, item, rev, before = row
    body = _encode(seal.sealed(pk, item) if seal and sk.startswith(_STEP) else item)
    if sk.startswith(_UNINDEXED):
        return (_INSERT, (body, rev, pk, sk)) if before is None else (_UPDATE, (body, rev, pk, sk, before))
    given = (body, *map(item.get, _COLUMNS), rev, pk, sk)
    return (_INSERT_INDEXED, given) if before is None else (_UPDATE_INDEXED, (*given, before))


def _encode(item: Item) -> str:
    try:
        return to_json(item).decode()
    except ValueError:  # half characters from outside can be kept too, but only as ASCII
        return json.dumps(item, separators=(",", ":"), default=asdict)


def _batches(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _BATCH):
        yield names[start : start + _BATCH]
