"""The store on one SQLite file: the in-process host's ledger. It survives ``kill -9`` and power loss.

Write-ahead log with full synchronisation: what ``commit`` returned from is on the disk. Commits that arrive while one
is being written wait for it and then share the next one, so many runs cost few disk flushes (group commit). Readers
have connections of their own and wait for nobody. Several processes may use one file: SQLite's lock orders writers.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shared.errors import SignalboxError, StoreConflict
from shared.ports import Item, Key, Store, Write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    """CREATE TABLE IF NOT EXISTS items (
        pk TEXT NOT NULL, sk TEXT NOT NULL, rev INTEGER NOT NULL, body TEXT NOT NULL, tenant_workflow TEXT,
        tenant_state TEXT, tenant_pending TEXT, created INTEGER, opened INTEGER, PRIMARY KEY (pk, sk)
    ) WITHOUT ROWID""",
    *(
        f"CREATE INDEX IF NOT EXISTS {name} ON items ({value}, {sort}) WHERE {value} IS NOT NULL"
        for name, (value, sort) in _INDEXES.items()
    ),
)
_INSERT = (
    "INSERT INTO items (body, tenant_workflow, tenant_state, tenant_pending, created, opened, pk, sk, rev)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT DO NOTHING"
)
_UPDATE = (
    "UPDATE items SET body = ?, tenant_workflow = ?, tenant_state = ?, tenant_pending = ?, created = ?, opened = ?,"
    " rev = rev + 1 WHERE pk = ? AND sk = ? AND rev = ?"
)
Again = Callable[[Mapping[Key, Item]], Sequence[Write]]
"""Decides once more, from the items as they are now."""
Prepared = tuple[Key, str, tuple[Any, ...]]
_HIGHEST = "\U0010ffff"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class StoreUnusable(SignalboxError):
    """The file cannot be read or written: says which and why."""


class SqliteStore(Store):
    """All items in the file at ``path``, which is created, readable by its owner only, when it does not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: deque[_Pending] = deque()
        self._turn = threading.Lock()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._writer = self._connect()
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise StoreUnusable(f"{path} cannot be used to keep runs: {error}. Name another file.") from error
        self._version = self._data_version()

    def read(self, keys: Sequence[Key]) -> dict[Key, Item]:
        """Return the items that exist, those of one partition as of one moment; any number of keys."""
        return _read(self._reader(), keys)

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Item]:
        """Return the partition's items under ``prefix`` above ``after``, in order."""
        statement = (
            "SELECT pk, sk, rev, body FROM items WHERE pk = ? AND sk >= ? AND sk < ? AND sk > ? ORDER BY sk LIMIT ?"
        )
        rows = self._rows(statement, (pk, prefix, prefix + _HIGHEST, after, limit or -1))
        return [_item(row) for row in rows]

    def index(self, name: str, value: str, *, limit: int, before: str = "") -> list[Item]:
        """Return an index's newest items for ``value``, newest first, older than the sort value ``before``."""
        partition, sort = _INDEXES[name]
        older = f" AND {sort} < ?" if before else ""
        statement = f"SELECT pk, sk, rev, body FROM items WHERE {partition} = ?{older} ORDER BY {sort} DESC LIMIT ?"  # noqa: S608
        given = (value, int(before), limit or -1) if before else (value, limit or -1)
        return [_item(row) for row in self._rows(statement, given)]

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none, on the disk when this returns. Raises StoreConflict when a condition fails."""
        self._take_turn(_Pending(writes))

    def decide(self, keys: Sequence[Key], writes: Sequence[Write], again: Again) -> None:
        """Commit ``writes``; where a condition fails, what ``again`` makes of ``keys`` as they are in this very commit.

        Raises what ``again`` raises, or StoreConflict when its writes have conditions on anything but ``keys``.
        """
        self._take_turn(_Pending(writes, keys, again))

    def _take_turn(self, mine: _Pending) -> None:
        self._waiting.append(mine)
        with self._turn:
            if not mine.done:
                self._write_waiting()
        if mine.error:
            raise mine.error

    def changed_elsewhere(self) -> bool:
        """Tell whether another process has written since this was asked last."""
        with self._turn:
            known, self._version = self._version, self._data_version()
        return known != self._version

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(
            self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        made.execute("PRAGMA synchronous = FULL")
        self._connections.append(made)
        return made

    def _prepare(self) -> None:
        self._writer.execute("PRAGMA journal_mode = WAL")
        for statement in _SCHEMA:
            self._writer.execute(statement)

    def _data_version(self) -> int:
        return int(self._writer.execute("PRAGMA data_version").fetchone()[0])

    def _rows(self, statement: str, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._reader().execute(statement, given).fetchall()

    def _reader(self) -> sqlite3.Connection:
        """Return this thread's own connection."""
        reader: sqlite3.Connection | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._connect()
        return reader

    def _write_waiting(self) -> None:
        """Write everything that waits as one commit; called by whoever's turn it is, for all the others too."""
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for pending in batch:
                self._apply(pending)
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo(batch, error)
        for pending in batch:
            pending.done = True

    def _apply(self, pending: _Pending) -> None:
        """Apply one transaction inside the shared one; undo just it when a condition does not hold."""
        conflict = self._try(pending.writes)
        if conflict and pending.again:
            try:
                writes = pending.again(_read(self._writer, pending.keys))
                conflict = self._try([_statement(write) for write in writes])
            except Exception as error:  # noqa: BLE001 - it belongs to the one who asked, not to the others
                conflict = error
        pending.error = conflict

    def _try(self, writes: Sequence[Prepared]) -> StoreConflict | None:
        self._writer.execute("SAVEPOINT one")
        for key, statement, given in writes:
            if self._writer.execute(statement, given).rowcount != 1:
                self._writer.execute("ROLLBACK TO one")
                self._writer.execute("RELEASE one")
                return StoreConflict(f"{key} has another revision than expected")
        self._writer.execute("RELEASE one")
        return None

    def _undo(self, batch: list[_Pending], error: sqlite3.Error) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        for pending in batch:
            pending.error = StoreUnusable(f"{self.path} could not be written: {error}")


class _Pending:
    """A transaction that waits for its turn, ready to execute."""

    __slots__ = ("again", "done", "error", "keys", "writes")

    def __init__(self, writes: Sequence[Write], keys: Sequence[Key] = (), again: Again | None = None) -> None:
        self.writes = [_statement(write) for write in writes]
        self.keys = keys
        self.again = again
        self.done = False
        self.error: Exception | None = None


def _read(connection: sqlite3.Connection, keys: Sequence[Key]) -> dict[Key, Item]:
    found: dict[Key, Item] = {}
    for pk, group in itertools.groupby(sorted(set(keys)), key=lambda key: key.pk):
        for sks in _batches([key.sk for key in group]):
            statement = f"SELECT pk, sk, rev, body FROM items WHERE pk = ? AND sk IN ({','.join('?' * len(sks))})"  # noqa: S608
            rows = connection.execute(statement, (pk, *sks)).fetchall()
            found.update((Key(pk, row[1]), _item(row)) for row in rows)
    return found


def _statement(write: Write) -> Prepared:
    item, key = write.item, write.key
    body = _encode(item)
    given = (body, *(item.get(name) for name in _COLUMNS), key.pk, key.sk)
    return (key, _INSERT, given) if write.expected is None else (key, _UPDATE, (*given, write.expected))


def _item(row: tuple[Any, ...]) -> Item:
    pk, sk, rev, body = row
    item: Item = json.loads(body)
    item["pk"], item["sk"], item["rev"] = pk, sk, rev
    return item


def _batches(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _BATCH):
        yield names[start : start + _BATCH]
