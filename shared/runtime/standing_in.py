"""The cascade of a fallback's own attempts: they are retried, wait with a service and park as a step's are.

Its step has used up its own retries by then. What decides here is the policy of the template: whether another attempt
follows. It begins after its wait by another visit of the cascade, since the machine's retry is that of the step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.runtime import protocol
from shared.runtime.answers import (
    ENTRY_RETRIES,
    before_next,
    fits_by_now,
    held_for,
    may_retry,
    paused,
    remember,
    retrying,
)
from shared.runtime.journal import Change, Note
from shared.runtime.visits import STANDS_IN, act

if TYPE_CHECKING:
    from shared.ledger.records import Failure, Step
    from shared.manifest import StepPlan
    from shared.runtime.visits import Action, Case, Visit


def after_stand_in(case: Case, visit: Visit) -> Change[Action] | None:
    """Decide how the step's fallback goes on that has failed; None = not at all: the step's ``on_error`` decides."""
    stand_in, plan = case.beside, visit.stand_in
    if stand_in is None or plan is None or stand_in.settled or case.step.status == "unknown":
        return None
    if stand_in.status == "retrying":
        return _again(case, visit, stand_in, plan)
    failure = stand_in.failure
    if failure is None:
        return None
    if failure.pause or failure.error_class == "budget":
        return _refused(case, visit, stand_in, failure)
    if failure.held:
        return _held_back(case, visit, stand_in, failure)
    return _retried(case, visit, stand_in, plan, failure) if may_retry(plan, stand_in, failure) else None


def _again(case: Case, visit: Visit, stand_in: Step, plan: StepPlan) -> Change[Action] | None:
    """Begin the next attempt when its time has come; one that left nothing was interrupted, and is begun again."""
    told = case.step.action or {}
    if told == STANDS_IN:
        stand_in = replace(stand_in, retries=stand_in.retries + 1)
        if stand_in.retries >= plan.retry.max_retries + ENTRY_RETRIES:
            return None
        return remember(replace(case, others=(stand_in,)).noted(retrying(stand_in, "transient")), visit, told)
    due = (stand_in.ended or 0) + 1000 * int(told.get("seconds", 0))
    return remember(case, visit, STANDS_IN) if visit.now >= due else Change(act("recheck", due - visit.now))


def _retried(case: Case, visit: Visit, stand_in: Step, plan: StepPlan, failure: Failure) -> Change[Action]:
    wait, spread = before_next(plan, stand_in, failure, visit)
    again = replace(stand_in, status="retrying", retries=stand_in.retries + 1, ended=visit.now)
    note = retrying(again, failure.error_class, wait, spread)
    return remember(replace(case, others=(again,)).noted(note), visit, act("recheck", wait))


def _held_back(case: Case, visit: Visit, stand_in: Step, failure: Failure) -> Change[Action]:
    wait = held_for(stand_in, failure, visit)
    if wait is None:
        case = replace(case, others=(replace(stand_in, held=None),))
        return paused(case, visit, "provider_degraded", failure)
    note = Note("step_held", stand_in.path, stand_in.attempt, {"delay_ms": int(wait)})
    case = replace(case, others=(replace(stand_in, status="retrying", ended=visit.now),)).noted(note)
    return remember(case, visit, act("recheck", wait))


def _refused(case: Case, visit: Visit, stand_in: Step, failure: Failure) -> Change[Action] | None:
    """Park the step, whose person can mend what its fallback lacks; a call in doubt is asked about instead."""
    if protocol.in_doubt(stand_in):
        return None
    if fits_by_now(case.head, failure, visit.now):
        again = replace(stand_in, status="retrying")
        return remember(replace(case, others=(again,)).noted(retrying(again, "budget")), visit, act("recheck"))
    return paused(case, visit, failure.pause or "budget_exceeded", failure)
