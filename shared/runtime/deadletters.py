"""Dead letters: what a step that has finally failed leaves, in the transaction in which it does.

A run that is resumed redrives all of its own: what failed runs anew, and leaves another letter if it fails again. Where
a run went on without the step and has completed, nothing runs it again: whoever has seen to it dismisses the letter.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from shared.errors import NotFound, StoreConflict
from shared.ledger.records import Dead, dead_letters
from shared.ports import Key, Write

if TYPE_CHECKING:
    from shared.ledger.records import Failure, Run, Step
    from shared.ports import Item, Store
    from shared.runtime.task import Task


def letters(step: Step, task: Task, failure: Failure, on_error: str, now: int) -> tuple[Dead, ...]:
    """Return the step's dead letter; a person's no is a decision, and leaves none. ``now`` in ms."""
    if failure.error_class == "rejected":
        return ()
    why = (failure.error_class, failure.message, on_error)
    return (_letter(step, (task.tenant, task.workflow), why, now),)


def letter_of_doubt(run: Run, step: Step, now: int) -> Dead:
    """Return the dead letter of a step whose call nobody will find out about any more; it says so. ``now`` in ms."""
    return _letter(step, (run.tenant, run.workflow), ("unknown_outcome", step.reason or "", "fail"), now)


def _letter(step: Step, owner: tuple[str, str], why: tuple[str, str, str], now: int) -> Dead:
    """Return a letter; ``owner`` are tenant and workflow, ``why`` the error's class, its message and the policy."""
    (tenant, workflow), (error_class, message, on_error) = owner, why
    return Dead(
        path=step.path,
        workflow=workflow,
        error_class=error_class,
        message=message,
        attempts=step.attempt,
        on_error=on_error,
        opened=now,
        key=step.call.key if step.call else None,
        tenant_pending=dead_letters(tenant),
    )


def redriven(store: Store, pk: str) -> None:
    """Take the letters of the run in partition ``pk`` off the list; who writes one anew meanwhile keeps it there."""
    for item in _listed(store, pk):
        _take_off(store, pk, item, {})


def dismissed(store: Store, pk: str, path: str | None, by: str, now: int) -> list[str]:
    """Take the letters of a run off the list, or that of the step at ``path``: somebody has seen to it. ``now`` in ms.

    Returns their paths. Raises NotFound when there is none.
    """
    found = [item for item in _listed(store, pk) if path in {None, item["path"]}]
    if not found:
        what = "no dead letter on the list" if path is None else f"no dead letter of step {path} on the list"
        raise NotFound(f"The run has {what}.", code="no_dead_letter")
    for item in found:
        _take_off(store, pk, item, {"dismissed": now, "by": by})
    return [str(item["path"]) for item in found]


def _listed(store: Store, pk: str) -> list[Item]:
    return [item for item in store.query(pk, "DEAD#") if item.get("tenant_pending")]


def _take_off(store: Store, pk: str, item: Item, more: Item) -> None:
    fresh = {name: value for name, value in item.items() if name != "tenant_pending"} | more
    with suppress(StoreConflict):
        store.commit([Write(Key(pk, item["sk"]), fresh, item["rev"])])
