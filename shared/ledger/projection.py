"""What follows from the runs table's stream: lists of runs, announcements, and what a dead writer has not sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.budget.history import count
from shared.errors import StoreConflict
from shared.events.rules import announcement
from shared.ledger.dynamodb import decode
from shared.ledger.records import Head, Run
from shared.ports import Key, Write
from shared.runtime.host import Host
from shared.runtime.outbox import send
from shared.runtime.runs import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ports import Events, Store

_TRIES = 5


@dataclass(frozen=True, slots=True)
class ProjectHost(Host):
    """The ports of the projector, and the unwind machine's ARN."""

    events: Events
    unwind_machine: str


def follow(host: ProjectHost, image: Mapping[str, Any]) -> None:
    """Take one stream record's new image: send, announce, bring the list view up to a head, count what a run used."""
    item = decode(image)
    send(host, item, host.unwind_machine)
    told = announcement(item)
    if told:
        host.events.announce([told])
    if item["sk"] == "HEAD":
        project(host.store, image)
        if item.get("ended"):
            count(host.store, item["pk"])


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
