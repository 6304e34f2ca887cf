"""The list view of runs: it follows the heads, read from the table's stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.errors import StoreConflict
from shared.ledger.dynamodb import decode
from shared.ledger.records import Head, Run
from shared.ports import Key, Write
from shared.runtime.runs import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ports import Store

_TRIES = 5


def project(store: Store, image: Mapping[str, Any]) -> bool:
    """Bring a run's list view up to the head in a stream record's new image. Returns whether anything changed.

    Raises StoreConflict when others keep writing; the stream then delivers again.
    """
    item = decode(image)
    head = Head.from_item(item)
    for _ in range(_TRIES):
        try:
            return _follow(store, Key(item["pk"], "RUN"), head)
        except StoreConflict:
            continue
    raise StoreConflict(f"The list view of {item['pk']} kept changing.")


def _follow(store: Store, key: Key, head: Head) -> bool:
    known = store.read([key]).get(key)
    if known is None:
        return False
    run = Run.from_item(known)
    if run.projected >= head.rev:
        return False
    followed = listed(run, head)
    store.commit([Write(key, {**known, **followed.to_item()}, run.rev)])
    return True
