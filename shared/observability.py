"""Logging of the handlers, by Powertools: JSON lines with the run and the step they speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger

if TYPE_CHECKING:
    from shared.runtime.task import Task

logger = Logger()
"""Configured by the function's environment: service name and level."""


def about(task: Task) -> None:
    """Let all further log lines of this invocation name the run and the step."""
    logger.append_keys(run_id=task.run, tenant=task.tenant, workflow=task.workflow, path=task.path, op=task.op)
