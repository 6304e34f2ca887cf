"""A budget that several steps have together: that of an agent with tools, shared by all its turns and calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.ledger.record import replace
from shared.ledger.records import NOTHING
from shared.runtime.scopes import split_turn

if TYPE_CHECKING:
    from shared.ledger.records import Step
    from shared.runtime.journal import Snapshot


def with_sharers(step: Step, seen: Snapshot) -> Step:
    """Return the step with what all that share its budget have taken of it, and what people have added to it.

    Who is at work may take its whole hold and time.
    """
    agent, inside = split_turn(step.path)
    if not inside:
        return step
    beside = [one for one in seen.steps() if one.path.startswith(f"{agent}/") and one.path != step.path]
    return replace(
        step,
        spent=sum((one.spent + one.hold for one in beside), step.spent),
        active=step.active + sum(map(_active, beside)),
        raised=sum((one.raised for one in beside if one.raised), step.raised or NOTHING),
        raised_active=step.raised_active + sum(one.raised_active for one in beside),
    )


def _active(step: Step) -> int:
    return step.active + (max(0, step.until - (step.opened or step.until)) if step.open else 0)
