"""Answers the HTTP API. Which path leads where stands in ``shared.api.routes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.logging import correlation_paths
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

from functions import bootstrap
from shared.api.dispatch import respond
from shared.observability import logger

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
app = APIGatewayHttpResolver()
copy_config_to_registered_loggers(source_logger=logger, include={"signalbox"})


# Any path at all, with whatever signs somebody puts into it.
@app.route(r"[\s\S]*", method=_METHODS)
def everything(_error: Exception | None = None) -> Response[str]:
    """Answer whatever is asked: wrong methods and unknown paths get a problem document too."""
    answer = respond(bootstrap.api_host, app.current_event.raw_event)
    logger.info("answered", extra={"status": answer.status})
    return Response(answer.status, answer.content_type, answer.body, headers=dict(answer.headers))


cast("Any", app).not_found(everything)


@logger.inject_lambda_context(correlation_id_path=correlation_paths.API_GATEWAY_HTTP, clear_state=True)
def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one request."""
    return app.resolve(event, context)
