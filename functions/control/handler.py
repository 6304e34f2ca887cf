"""Control flow: steps without calls, the cascade, parked states, the end, and unwinding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.observability import about, logger
from shared.runtime.operations import control
from shared.runtime.task import LambdaContext, parse_task

if TYPE_CHECKING:
    from collections.abc import Mapping


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any] | None:
    """Do what the state asks for by its ``op``."""
    host, unwind_machine = bootstrap.control_host()
    task = parse_task(event, context, host.clock.now())
    about(task)
    return control(host, task, unwind_machine)
