"""Logging and metrics of the handlers, by Powertools: JSON lines with the run and the step they speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

if TYPE_CHECKING:
    from shared.runtime.task import Task

logger = Logger()
"""Configured by the function's environment: service name and level."""

metrics = Metrics()
"""Flushed at the end of an invocation, in the embedded metric format."""


def about(task: Task) -> None:
    """Let all further log lines of this invocation name the run and the step."""
    logger.append_keys(run_id=task.run, tenant=task.tenant, workflow=task.workflow, path=task.path, op=task.op)


def count(name: str, workflow: str) -> None:
    """Count something that happened, by workflow."""
    metrics.add_dimension("workflow", workflow)
    metrics.add_metric(name, MetricUnit.Count, 1)
