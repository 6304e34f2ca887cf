"""Starts runs by what schedules, rules and queues hand over. What can never start one becomes a dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.observability import logger
from shared.triggers.occurrences import direct
from shared.triggers.starting import take, take_messages

if TYPE_CHECKING:
    from collections.abc import Mapping


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Start a run for the event, or one for each message; a raised error, or a reported message, comes again."""
    host = bootstrap.trigger_host()
    if "Records" in event:
        failed = take_messages(host, event["Records"])
        return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}
    return {"run": take(host, direct(event), event)}
