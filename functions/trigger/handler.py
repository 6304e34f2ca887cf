"""Starts runs by what schedules, rules and queues hand over. What can never start one becomes a dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.observability import logger
from shared.triggers.occurrences import direct, queued
from shared.triggers.starting import take

if TYPE_CHECKING:
    from collections.abc import Mapping


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Start a run for the event, or one for each message; those that failed are reported, and delivered again."""
    host = bootstrap.trigger_host()
    if "Records" not in event:
        return {"run": take(host, direct(event), event)}
    failed: list[dict[str, str]] = []
    for record in event["Records"]:
        try:
            take(host, queued(host.environment, record), record)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other messages must not wait for this one
            logger.warning("not started", extra={"message": record["messageId"], "error": repr(error)})
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}
