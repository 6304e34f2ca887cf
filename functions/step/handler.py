"""One delivery of a step that calls a model or a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.observability import about, logger
from shared.runtime.steps import run_step
from shared.runtime.task import LambdaContext, parse_task

if TYPE_CHECKING:
    from collections.abc import Mapping


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Run the step; a raised failure is recorded already and leads to the cascade."""
    host = bootstrap.step_host()
    task = parse_task(event, context, host.clock.now())
    about(task)
    return run_step(host, task)
