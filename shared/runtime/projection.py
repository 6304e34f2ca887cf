"""What follows from the runs table's stream: lists of runs, announcements, and what a dead writer has not sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.budget.history import count
from shared.events.rules import announcement
from shared.ledger.attributes import decode_item
from shared.ledger.records import Head
from shared.runtime.host import Host
from shared.runtime.outbox import send
from shared.runtime.runs import bring_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ports import Events


@dataclass(frozen=True, slots=True)
class ProjectHost(Host):
    """The ports of the projector, and the unwind machine's ARN."""

    events: Events
    unwind_machine: str


def follow(host: ProjectHost, image: Mapping[str, Any]) -> None:
    """Take one stream record's new image: send, announce, bring the list view up to a head, count what a run used.

    Raises StoreConflict when others keep writing; the stream then delivers again.
    """
    item = decode_item(image)
    send(host, item, host.unwind_machine)
    told = announcement(item)
    if told:
        host.events.announce([told])
    if item["sk"] == "HEAD":
        bring_up(host.store, item["pk"], Head.from_item(item))
        if item.get("ended"):
            count(host.store, item["pk"])
