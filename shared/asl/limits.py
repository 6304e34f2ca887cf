"""What a machine can cost and reach, computed before it exists.

Events a state writes into the execution history: 5 per Lambda task (6 when it parks for a token), 2 per Choice, Wait
and Succeed, 4 per Parallel; the execution's own start and end. Repetitions by the infrastructure errors' Retry are not
counted: they say nothing about the definition. A step that is parked is counted once, with one attempt after it.
Source: Step Functions API reference, HistoryEvent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.asl.jumps import Chain, Fork, Routed, Switch
from shared.graph.tree import Await, Parallel, Sequence, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.manifest import StepPlan

MAX_EVENTS = 25_000
"""Source: Step Functions quotas, "Maximum execution history size"."""
MAX_DEFINITION = 1_000_000
"""Bytes. Source: Step Functions quotas, "Maximum request size" (1 MB)."""
MAX_MANIFEST = 350_000
"""Bytes; it must fit an item of 400 KB with its companions. Source: DynamoDB quotas."""

_TASK, _PARKING_TASK, _CHOICE, _WAIT, _SUCCEED, _PARALLEL = 5, 6, 2, 2, 2, 4
_AROUND = 2 + _TASK + _SUCCEED  # start and end of the execution, finish, completed


@dataclass(frozen=True, slots=True)
class Measures:
    """``transitions`` on the longest path on which nothing goes wrong; ``events`` when everything does."""

    transitions: int
    events: int


def measure(routed: Routed, plans: Mapping[str, StepPlan]) -> Measures:
    """Count transitions and worst-case events of a run; of alternatives the largest counts."""
    transitions = _count(routed, _Costs(step=lambda _: 1, parked=1, parallel=1, branch=0, choice=1))
    costs = _Costs(
        step=lambda step: step_events(plans[step]),
        parked=_PARKING_TASK,
        parallel=_PARALLEL,
        branch=_SUCCEED,
        choice=_CHOICE,
    )
    return Measures(transitions + 2, _count(routed, costs) + _AROUND)


def step_events(plan: StepPlan) -> int:
    """Return the most events that one step can write: every retry, the fallback, one parking, one attempt more."""
    attempt = _PARKING_TASK if plan.type == "human_gate" else _TASK
    failure = attempt + _TASK + _CHOICE
    fallback = _TASK + _TASK + _CHOICE if plan.fallback else 0
    parked = _PARKING_TASK + _CHOICE + _WAIT
    return (plan.retry.max_retries + 1) * failure + plan.retry.max_retries * _WAIT + fallback + parked + attempt


@dataclass(frozen=True, slots=True)
class _Costs:
    step: Callable[[str], int]
    parked: int
    parallel: int
    branch: int
    choice: int


def _count(node: Routed, costs: _Costs) -> int:
    match node:
        case Step(step):
            return costs.step(step)
        case Await():
            return costs.parked
        case Switch(_, cases):
            return costs.choice + max(_count(case, costs) for _, case in cases)
        case Sequence(items) | Chain(items):
            return sum(_count(item, costs) for item in items)
        case Fork(branches) | Parallel(branches):
            return costs.parallel + sum(costs.branch + _count(branch, costs) for branch in branches)
