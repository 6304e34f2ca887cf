"""Executions that ended: runs that do not know of it are unwound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.observability import logger
from shared.runtime.finalise import finalise

if TYPE_CHECKING:
    from collections.abc import Mapping


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], _context: object) -> None:
    """Take one "Step Functions Execution Status Change" event; a raised error has it delivered again."""
    host, unwind_machine = bootstrap.finalise_host()
    done = finalise(host, event["detail"], unwind_machine)
    logger.info("execution ended", extra={"execution": event["detail"].get("executionArn"), "run_is": done})
