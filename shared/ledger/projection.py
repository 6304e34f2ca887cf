"""What follows from the runs table's stream: the list view of runs, and everything that a dead writer has not sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.ledger.dynamodb import decode
from shared.ledger.records import Head
from shared.runtime.outbox import send
from shared.runtime.runs import bring_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ports import Store
    from shared.runtime.host import Host


def follow(host: Host, image: Mapping[str, Any], unwind_machine: str) -> None:
    """Take one stream record's new image: send what it asks for, and bring the list view up to a head."""
    item = decode(image)
    send(host, item, unwind_machine)
    if item["sk"] == "HEAD":
        project(host.store, image)


def project(store: Store, image: Mapping[str, Any]) -> bool:
    """Bring a run's list view up to the head in a stream record's new image. Returns whether anything changed.

    Raises StoreConflict when others keep writing; the stream then delivers again.
    """
    item = decode(image)
    return bring_up(store, item["pk"], Head.from_item(item))
