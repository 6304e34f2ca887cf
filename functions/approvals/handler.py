"""Serves the approval page and takes its form. The path holds a secret, so it is never logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.logging import correlation_paths
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

from functions import bootstrap
from shared.api.web import to_result
from shared.approvals.pages import respond
from shared.observability import logger

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

copy_config_to_registered_loggers(source_logger=logger, include={"signalbox"})


@logger.inject_lambda_context(correlation_id_path=correlation_paths.API_GATEWAY_HTTP, clear_state=True)
def handle(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Show the page, or take a decision."""
    answer = respond(bootstrap.approvals_host, event)
    logger.info("answered", extra={"status": answer.status})
    return to_result(answer)
