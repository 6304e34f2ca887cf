"""Follows the runs table's stream: the list view of runs, announcements, and what a writer that died has not sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.observability import logger
from shared.runtime.projection import follow

if TYPE_CHECKING:
    from collections.abc import Mapping


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Follow each record; those that could not be are reported, so that the stream delivers them again."""
    host = bootstrap.project_host()
    failed: list[dict[str, str]] = []
    for record in event["Records"]:
        image = record["dynamodb"].get("NewImage")
        try:
            if image:  # a record that has expired has none
                follow(host, image)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other records must not wait for this one
            logger.warning("not followed", extra={"record": record.get("eventID"), "error": repr(error)})
            failed.append({"itemIdentifier": record["dynamodb"]["SequenceNumber"]})
    return {"batchItemFailures": failed}
