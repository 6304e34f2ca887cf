"""What the cascade answers: an action and the seconds before it, remembered with the step to be repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.budget import rules
from shared.runtime import protocol
from shared.runtime.journal import Change, Note
from shared.runtime.scopes import FALLBACK
from shared.runtime.visits import STANDS_IN, Action, act

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.ledger.records import Failure, Head, Step
    from shared.manifest import Retry, StepPlan
    from shared.runtime.visits import Case, Visit

ENTRY_RETRIES = 3
"""How often a step that makes no call is entered again after the engine interrupted it."""
LONGEST_HOLD = 15 * 60_000
"""How long (ms) a step waits for a degraded service before a person is asked."""


def may_retry(plan: StepPlan, step: Step, failure: Failure) -> bool:
    """Tell whether an attempt's failure may be tried again, and retries remain."""
    if plan.risk == "irreversible" and step.called is not None:
        return False
    return failure.error_class in plan.retry.on and step.retries < plan.retry.max_retries


def delay(policy: Retry, retries: int, failure: Failure, jitter: Callable[[float], float]) -> float:
    """Return the milliseconds before retry number ``retries`` (from 0), never less than the far side asked for."""
    growth = 2.0**retries if policy.backoff == "exponential" else retries + 1.0
    seconds = min(policy.base_delay * growth, policy.max_delay) + (jitter(policy.base_delay) if policy.jitter else 0.0)
    return max(seconds * 1000, float(failure.retry_after or 0))


def before_next(plan: StepPlan, step: Step, failure: Failure, visit: Visit) -> tuple[float, float]:
    """Return the milliseconds before a step is tried again, and how many seconds of them are jitter."""
    spread = visit.jitter(plan.retry.base_delay) if plan.retry.jitter else 0.0
    return delay(plan.retry, step.retries, failure, lambda _: spread), spread


def retrying(step: Step, kind: str, wait: float = 0, spread: float = 0) -> Note:
    """Return the event that says why a step is tried again, and after how long (ms), jitter (s) included."""
    told = {"class": kind, "delay_ms": int(wait), "jitter_ms": int(spread * 1000), "retry": step.retries}
    return Note("step_retrying", step.path, step.attempt, told)


def held_for(step: Step, failure: Failure, visit: Visit) -> float | None:
    """Return how long (ms) a step waits with its service's circuit breaker; None = it has waited long enough.

    Each wait is half as long as all before it, at least: the history of the execution has an end.
    """
    waited = visit.now - (step.held or visit.now)
    if waited >= LONGEST_HOLD:
        return None
    return max(float(failure.retry_after or 0), waited / 2) + visit.jitter(1000)


def fits_by_now(head: Head, failure: Failure, now: int) -> bool:
    """Tell whether the run has by now what it had too little of: somebody gave it more since the refusal."""
    if failure.level != "run" or failure.pause:
        return False
    left = rules.left(head, failure.dimension or "", now)
    return left is None or left >= failure.wanted


def paused(case: Case, visit: Visit, reason: str, failure: Failure | None = None) -> Change[Action]:
    """Park the step for a person; ``failure`` says what of, where it is not the step's own."""
    head, step = protocol.park(case.head, case.step, reason)
    data, failure = {"reason": reason}, failure or step.failure
    if reason == "budget_exceeded" and failure and failure.dimension:
        data |= {"level": failure.level or "", "dimension": failure.dimension}
    case = replace(case, head=head, step=step).noted(Note("step_paused", step.path, step.attempt, data))
    return remember(case, visit, act("park"))


def remember(case: Case, visit: Visit, action: Action) -> Change[Action]:
    """Return the action with what is to be written, so that a repeated visit repeats it."""
    step = replace(case.step, cascade=visit.id, action=action)
    ready = case.seen.step(f"{step.path}{FALLBACK}")
    if ready and ready.slot and not case.others and action != STANDS_IN:
        case = replace(case, others=(ready,))  # its slot is free by that
    return Change(action, (case.head, step, *case.others, *case.letters), case.notes)
