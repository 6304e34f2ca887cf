"""What has happened, as data: one occurrence of one trigger, from whatever form it was delivered in. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = "MessageGroupId"
SIGNED_HEADERS = {"webhook-id": 200, "webhook-timestamp": 20, "webhook-signature": 4000}
"""The headers of a signed request, and how many characters each has at most."""
_SYSTEM = (GROUP, "SentTimestamp")
_SECRET_HEADER = re.compile(r"auth|cookie|signature|secret|token|api-?key|credential|session", re.IGNORECASE)
"""Headers that may carry what only sender and receiver should know: no run sees them."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened, for one trigger of one workflow.

    ``id`` tells it from everything else that happens to this trigger, and is the same however often it is delivered.
    ``seen`` is what the trigger's ``input`` reads as ``trigger``, besides ``kind``, ``id`` (the trigger's) and
    ``occurrence`` (this one's).
    """

    workflow: str
    trigger: str
    kind: str
    id: str
    seen: Mapping[str, Any]

    def names(self) -> dict[str, Any]:
        """Return the names that the trigger's ``input`` may use."""
        return {"trigger": {"kind": self.kind, "id": self.trigger, "occurrence": self.id, **self.seen}}


def of_webhook(workflow: str, trigger: str, id_: str, body: Any, headers: Mapping[str, str]) -> Occurrence:
    """Return the occurrence of a signed request; header names are lower-case."""
    open_ = {name: value for name, value in headers.items() if not _SECRET_HEADER.search(name)}
    return Occurrence(workflow, trigger, "webhook", id_, {"body": body, "headers": open_})


def of_schedule(workflow: str, trigger: str, time: str) -> Occurrence:
    """Return the occurrence of a schedule; ``time`` is the one it was scheduled for, RFC 3339 in UTC."""
    return Occurrence(workflow, trigger, "schedule", time, {"time": time})


def of_event(workflow: str, trigger: str, event: Mapping[str, Any]) -> Occurrence:
    """Return the occurrence of an event in EventBridge's own form."""
    names = {"detail": "detail", "source": "source", "type": "detail-type", "time": "time"}
    seen = {name: event[key] for name, key in names.items()}
    return Occurrence(workflow, trigger, "event", str(event["id"]), seen)


def of_message(workflow: str, trigger: str, record: Mapping[str, Any]) -> Occurrence:
    """Return the occurrence of a message as Lambda gets it from SQS."""
    seen = {"body": _json_or_text(str(record["body"])), "attributes": attributes(record)}
    return Occurrence(workflow, trigger, "queue", str(record["messageId"]), seen)


def attributes(record: Mapping[str, Any]) -> dict[str, str]:
    """Return a message's own attributes as texts (binary ones in base64), and those of SQS that never change."""
    own: Mapping[str, Mapping[str, Any]] = record.get("messageAttributes") or {}
    given: Mapping[str, Any] = record.get("attributes") or {}
    texts = {name: str(one.get("stringValue") or one.get("binaryValue") or "") for name, one in own.items()}
    return texts | {name: str(given[name]) for name in _SYSTEM if name in given}


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def direct(event: Mapping[str, Any]) -> Occurrence:
    """Return the occurrence that a schedule or a rule has called the function with. Raises KeyError for another call.

    Both are deployed to send ``kind``, ``workflow`` and ``trigger``, and the one its ``time``, the other its ``event``.
    """
    workflow, trigger = str(event["workflow"]), str(event["trigger"])
    if event["kind"] == "schedule":
        return of_schedule(workflow, trigger, str(event["time"]))
    return of_event(workflow, trigger, event["event"])


def queued(environment: str, record: Mapping[str, Any]) -> Occurrence:
    """Return the occurrence that a message is. Its queue is called ``signalbox-<environment>-<workflow>-<trigger>``."""
    queue = str(record["eventSourceARN"]).rpartition(":")[2]
    workflow, _, trigger = queue.removeprefix(f"signalbox-{environment}-").rpartition("-")
    return of_message(workflow, trigger, record)


def queue_name(environment: str, workflow: str, trigger: str) -> str:
    """Return the name of a trigger's queue. A trigger's own name has no `-`, so it can be told from the workflow's."""
    return f"signalbox-{environment}-{workflow}-{trigger}"
