"""Epochs: what a resumed run keeps of its earlier executions.

A run that ended early may be resumed: its head's epoch rises and another execution begins. Completed steps stay as
they are; everything else is found as if nothing had happened to it yet, but for what must never be forgotten: the
fence, what was spent and added to its budget, the ledger entry (the next dispatch is another one), a map's items, an
agent's instruction, the child that goes on and its place among what is undone. A call that a person had given up is in
doubt again when its step is reached: it is neither made anew nor forgotten.

Nothing is rewritten for that: records of an earlier epoch are *read* so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.ledger.records import UNDOING, Step

if TYPE_CHECKING:
    from shared.ledger.records import Gate


_FREEZES = frozenset({"map", "turns"})
"""Types of steps that freeze, when they are entered, what the steps inside them go by."""


def kept(step: Step) -> bool:
    """Tell whether a step's result outlasts its epoch. What a part has come to, its own run still knows.

    That a call of an agent has failed is a result too: its model has read it, and has gone on from there. A call that
    may have happened is not made anew because a person skipped it: nobody has said that it did not.
    """
    if not step.settled or step.type == "part" or step.path.endswith(UNDOING):
        return False
    told = step.tool is not None and step.status in _TOLD
    return step.status == "completed" or told or (step.status == "skipped" and _left_in_doubt(step))


_TOLD = frozenset({"failed", "timed_out", "skipped"})


def _left_in_doubt(step: Step) -> bool:
    return step.uncertain and step.changes_something


def step_now(step: Step, epoch: int) -> Step:
    """Return the step as the execution of ``epoch`` finds it."""
    return step if step.epoch >= epoch or kept(step) else _renewed(step, epoch)


def _renewed(step: Step, epoch: int) -> Step:
    left = step.given_up is not None
    return Step(
        rev=step.rev,
        path=step.path,
        step=step.step,
        type=step.type,
        status="ready",
        epoch=epoch,
        attempt=0 if step.path.endswith(UNDOING) else step.attempt,
        fence=step.fence,
        closed_by=step.closed_by,
        spent=step.spent,
        active=step.active,
        raised=step.raised,
        raised_active=step.raised_active,
        call=step.call,
        arguments=step.arguments if step.type in _FREEZES or left else None,
        failure=step.failure if left else None,
        ended=step.ended if left else None,
        given_up=step.given_up,
        child=step.child,
        settled_seq=step.settled_seq if step.child else None,
        parts=step.parts,
        first=step.first,
        tool=step.tool,
    )


def gate_now(gate: Gate, epoch: int) -> Gate | None:
    """Return the gate as the execution of ``epoch`` finds it: an approval stays, anything else is asked anew."""
    return gate if gate.status == "approved" or int(gate.entry[:6] or epoch) >= epoch else None
