"""What the engine hands to a handler: one task, parsed from the state's payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from shared.errors import InvalidRequest
from shared.frozen import frozen
from shared.runtime.scopes import split_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Run

LEASE_MARGIN = 5_000
"""Milliseconds after a process's hard end until it counts as dead."""


class LambdaContext(Protocol):
    """What the handlers use of Lambda's context object."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the process is ended."""
        ...


@frozen
class Task:
    """One delivery of one state.

    ``entry`` orders deliveries of the same state: a later one has the valid token. ``attempt`` names the process that
    holds what it opens; ``deadline`` (ms since the epoch) is that process's hard end.
    """

    op: str
    step: str
    scope: str
    run: str
    tenant: str
    workflow: str
    version: int
    epoch: int
    entry: str
    attempt: str
    deadline: int
    token: str = ""
    error: str = ""
    template: str = ""

    @property
    def path(self) -> str:
        """The step instance's path."""
        return f"{self.scope}{self.step}"

    @property
    def lease(self) -> int:
        """When (ms) the process that runs this task is surely dead."""
        return self.deadline + LEASE_MARGIN


def run_task(run: Run, epoch: int, path: str = "") -> Task:
    """Return a task that stands for the step at ``path`` of a run, where no engine delivers one."""
    scope, step = placed(path)
    return Task("", step, scope, run.id, run.tenant, run.workflow, run.version, epoch, "", "", 0)


def placed(path: str) -> tuple[str, str]:
    """Return the scope of the step instance at ``path``, and its name there, with what stands beside a step."""
    agent, inside = split_turn(path)
    scope, end, step = agent.rpartition("]/")
    return scope + end, step + inside


def parse_task(event: Mapping[str, Any], context: LambdaContext, now: int) -> Task:
    """Parse a state's payload. Raises InvalidRequest, naming the field, for anything that the compiler did not make."""
    try:
        run = event["run"]
        # Where a step is named by its whole path (a compensation), its scope is part of that.
        inside, step = placed(event.get("step", ""))
        error: Mapping[str, Any] = event.get("error") or {}
        return Task(
            op=event["op"],
            step=step,
            scope=event.get("scope", "") + inside,
            run=run["id"],
            tenant=run["tenant"],
            workflow=run["workflow"],
            version=int(run["version"]),
            epoch=int(run["epoch"]),
            entry=f"{int(run['epoch']):06d}|{event.get('entered', '')}|{int(event.get('retry', 0)):04d}",
            attempt=context.aws_request_id,
            deadline=now + context.get_remaining_time_in_millis(),
            token=event.get("token", ""),
            error=error.get("Error", ""),
            template=event.get("template", ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise InvalidRequest(f"The task's payload is not one that the compiler makes: {wrong!r}") from wrong
