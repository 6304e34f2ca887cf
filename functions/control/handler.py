"""Control flow: steps without calls, the cascade, parked states, the end, and unwinding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.errors import InvalidRequest
from shared.observability import about, logger
from shared.runtime.cascade import cascade
from shared.runtime.control import finish, run_free
from shared.runtime.parking import await_step, park_step
from shared.runtime.task import LambdaContext, parse_task
from shared.runtime.unwinding import unwind

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN = {"run": run_free, "finish": finish, "await": await_step, "park": park_step, "unwind": unwind}


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any] | None:
    """Do what the state asks for by its ``op``."""
    host, unwind_machine = bootstrap.control_host()
    task = parse_task(event, context, host.clock.now())
    about(task)
    if task.op == "cascade":
        return cascade(host, task, unwind_machine)
    if task.op not in _PLAIN:
        raise InvalidRequest(f"There is no control operation {task.op!r}.")
    return _PLAIN[task.op](host, task)
