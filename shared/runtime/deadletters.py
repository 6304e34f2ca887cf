"""Dead letters: what a step that has finally failed leaves, in the transaction in which it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.ledger.records import Dead, dead_letters

if TYPE_CHECKING:
    from shared.ledger.records import Failure, Step
    from shared.runtime.task import Task


def letters(step: Step, task: Task, failure: Failure, on_error: str, now: int) -> tuple[Dead, ...]:
    """Return the step's dead letter; a person's no is a decision, and leaves none. ``now`` in ms."""
    if failure.error_class == "rejected":
        return ()
    letter = Dead(
        path=step.path,
        workflow=task.workflow,
        error_class=failure.error_class,
        message=failure.message,
        attempts=step.attempt,
        on_error=on_error,
        opened=now,
        key=step.call.key if step.call else None,
        tenant_pending=dead_letters(task.tenant),
    )
    return (letter,)
