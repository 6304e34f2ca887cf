"""The product's stores under whole runs, in place of the fake: SQLite's file, and DynamoDB as moto plays it."""

from __future__ import annotations

import itertools
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import boto3
import machine
from moto import mock_aws

from shared.ledger.dynamodb import DynamoStore
from shared.ledger.seal import Seal
from shared.ledger.sqlite import SqliteStore
from shared.ports import Item, Key
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from shared.ports import Write

REGION = "us-east-1"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - what is written there needs no disk, and is gone with its folder
_NUMBERS = itertools.count()


class _OnSqlite(SqliteStore):
    """The laptop's store, sealed as there, with its items at hand in the order of their making."""

    @property
    def items(self) -> dict[Key, Item]:
        """Return all items."""
        found = self._items("SELECT pk, sk, rev, body FROM items ORDER BY rowid", ())
        return {Key(item["pk"], item["sk"]): item for item in found}


class _OnDynamo(DynamoStore):
    """The cloud's store, with its items at hand in the order of their making."""

    def __init__(self, client: Any, name: str) -> None:
        table(client, name)
        super().__init__(client, name)
        self._known: dict[Key, Item] = {}
        self._changed: dict[Key, None] = {}

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none."""
        self._changed |= dict.fromkeys(write.key for write in writes)
        super().commit(writes)

    @property
    def items(self) -> dict[Key, Item]:
        """Return all items; what was written since is read from the table."""
        changed, self._changed = list(self._changed), {}
        found = self.read(changed)
        self._known |= {key: found[key] for key in changed if key in found}
        return dict(self._known)


@contextmanager
def _sqlite() -> Generator[Callable[[], Any]]:
    place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        made: list[_OnSqlite] = []

        def make() -> _OnSqlite:
            made.append(_OnSqlite(Path(folder) / f"{next(_NUMBERS)}.db", Seal.of("k" * 64)))
            return made[-1]

        try:
            yield make
        finally:
            for store in made:
                store.close()


@contextmanager
def _dynamo() -> Generator[Callable[[], Any]]:
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test")
    with patch.dict(os.environ, keys), mock_aws():
        client = boto3.client("dynamodb", region_name=REGION)
        yield lambda: _OnDynamo(client, f"runs-{next(_NUMBERS)}")


STORES = {"sqlite": _sqlite, "dynamodb": _dynamo}


@contextmanager
def worlds_on(name: str) -> Generator[None]:
    """Let every world that is made meanwhile have a store of this name; "memory" = the fake."""
    if name == "memory":
        yield
        return
    with STORES[name]() as make:
        machine.NEW_STORE.append(make)
        try:
            yield
        finally:
            machine.NEW_STORE.pop()
