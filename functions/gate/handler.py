"""Opens a gate, or registers a new delivery of it; the answer comes when a person decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.observability import about, logger
from shared.runtime.gates import run_gate
from shared.runtime.mailing import ask_again
from shared.runtime.task import LambdaContext, parse_task

if TYPE_CHECKING:
    from collections.abc import Mapping


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], context: LambdaContext) -> None:
    """Open the gate and write to its approvers. What comes from the bus is a gate that is open once more."""
    host = bootstrap.gate_host()
    if "detail" in event:
        ask_again(host, event["detail"])
        return
    task = parse_task(event, context, host.clock.now())
    about(task)
    run_gate(host, task)
