"""Keeps the list view of runs up to their heads, from the table's stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.errors import StoreConflict
from shared.ledger.projection import project
from shared.observability import logger

if TYPE_CHECKING:
    from collections.abc import Mapping


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Project each record's head; those that could not be are reported, so that the stream delivers them again."""
    store = bootstrap.project_store()
    failed: list[dict[str, str]] = []
    for record in event["Records"]:
        try:
            project(store, record["dynamodb"].get("NewImage") or {})
        except (StoreConflict, KeyError) as error:
            logger.warning("not projected", extra={"record": record.get("eventID"), "error": repr(error)})
            failed.append({"itemIdentifier": record["dynamodb"]["SequenceNumber"]})
    return {"batchItemFailures": failed}
