"""What a machine can cost and reach, computed before it exists.

Events a state writes into the execution history: 5 per Lambda task (6 when it parks for a token), 2 per Choice, Wait
and Succeed, 4 per Parallel or Map and 2 per iteration of a Map; the execution's own start and end. Repetitions by the
Retry for infrastructure errors are not counted: they say nothing about the definition. A step that is parked is counted
once, with one attempt after it. A map counts with as many items as it can have, a loop with all its iterations.
Source: Step Functions API reference, HistoryEvent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.asl.jumps import Chain, Fork, Lanes, Routed, Switch
from shared.graph.tree import Await, Parallel, Sequence, Step
from shared.manifest import MOST_CALLS, part_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.asl.layout import Layout
    from shared.manifest import StepPlan, Turns

MAX_EVENTS = 25_000
"""Source: Step Functions quotas, "Maximum execution history size"."""
MAX_DEFINITION = 1_000_000
"""Bytes. Source: Step Functions quotas, "Maximum request size" (1 MB)."""
MAX_MANIFEST = 350_000
"""Bytes; it must fit an item of 400 KB with its companions. Source: DynamoDB quotas."""
MAX_PAYLOAD = 262_144
"""Bytes of data that enter or leave a state. Source: Step Functions quotas, "Maximum input or output size"."""

INLINE_ITEMS = 100
"""Most items that run in the execution itself where a map is split into child executions."""

_TASK, _PARKING_TASK, _CHOICE, _WAIT, _SUCCEED, _PARALLEL, _ITERATION = 5, 6, 2, 2, 2, 4, 2
_AROUND = 2 + _TASK + _SUCCEED  # start and end of the execution, finish, completed
PART = part_plan("part")
_PARKING = frozenset({"human_gate", "sub_workflow", "part"})


@dataclass(frozen=True, slots=True)
class Measures:
    """State transitions and history events of a run.

    ``transitions`` on the longest path on which nothing goes wrong; ``worst`` and ``events`` when everything does.
    """

    transitions: int
    worst: int
    events: int


def measure(layout: Layout, plans: Mapping[str, StepPlan]) -> Measures:
    """Count transitions and worst-case events of a run; of alternatives the largest counts."""
    transitions, worst = (_Counter(layout, plans, costs).total() for costs in (_HAPPY, _WORST))
    children = _child_events(layout, plans)
    start = 1 if children else 0  # the choice between the whole and one of its parts
    return Measures(transitions + start + 2, worst + start + 2, max(events_of(layout, plans), *children, 0))


def events_of(layout: Layout, plans: Mapping[str, StepPlan]) -> int:
    """Return the worst-case history events of an execution of the whole graph."""
    return _Counter(layout, plans, _EVENTS).total() + _AROUND


def body_events(layout: Layout, plan: StepPlan) -> int:
    """Return the worst-case history events of one item of a map, or of one iteration of a loop."""
    return _Counter(layout, {plan.id: plan}, _EVENTS).each(plan)


def part_events() -> int:
    """Return the worst-case history events that one child execution of a map adds to its parent."""
    return _EVENTS.iteration + _EVENTS.end + _own(PART, _EVENTS)


def _child_events(layout: Layout, plans: Mapping[str, StepPlan]) -> list[int]:
    """Return the worst-case history events of every kind of child execution, in all bodies too."""
    found: list[int] = []
    for name, inner in layout.bodies.items():
        plan = plans[name]
        if plan.body is None:
            continue
        if plan.apart:
            found.append(apart_events(layout, plan))
        if plan.split:
            around = _AROUND + _CHOICE + _own(plan, _EVENTS) + _PARALLEL + _TASK + _CHOICE
            found.append(around + plan.split.size * body_events(layout, plan))
        found += _child_events(inner, plan.body.steps)
    return found


def apart_events(layout: Layout, plan: StepPlan) -> int:
    """Return the worst-case history events of the execution that is a map's or a loop's own."""
    inside = replace(plan, apart=False, fallback=None)  # its fallback stands beside it, in the run above
    return _AROUND + _CHOICE + _Counter(layout, {plan.id: inside}, _EVENTS).step(plan.id)


def heaviest(layout: Layout, plans: Mapping[str, StepPlan]) -> tuple[str, int] | None:
    """Return what repeats itself (a map, a loop, an agent) and can write the most events; None without one."""
    counter = _Counter(layout, {name: replace(plan, apart=False) for name, plan in plans.items()}, _EVENTS)
    found = {name: counter.step(name) for name, plan in plans.items() if plan.turns or name in layout.bodies}
    name = max(found, key=found.__getitem__, default=None)
    return None if name is None else (name, found[name])


@dataclass(frozen=True, slots=True)
class _Costs:
    """What is counted: how much each kind of state weighs, and whether everything goes wrong."""

    task: int
    parking: int
    choice: int
    wait: int
    parallel: int
    iteration: int
    end: int
    trouble: bool


_HAPPY = _Costs(task=1, parking=1, choice=1, wait=1, parallel=1, iteration=0, end=0, trouble=False)
_WORST = _Costs(task=1, parking=1, choice=1, wait=1, parallel=1, iteration=0, end=1, trouble=True)
_EVENTS = _Costs(_TASK, _PARKING_TASK, _CHOICE, _WAIT, _PARALLEL, _ITERATION, _SUCCEED, trouble=True)


def _own(plan: StepPlan, costs: _Costs, stand_in: StepPlan | None = None) -> int:
    """Count a step's own task with, where counted, all that can go wrong with it, and its fallback."""
    parks = plan.apart or plan.type in _PARKING or (plan.type == "wait" and "event" in plan.spec)
    attempt = (costs.parking if parks else costs.task) + (costs.parking if plan.slot else 0)
    if not costs.trouble:
        return attempt
    failure = attempt + costs.task + costs.choice
    fallback = _standing_in(stand_in, costs) if stand_in else 0
    parked = costs.parking + costs.choice + costs.wait
    retries = plan.retry.max_retries
    return (retries + 1) * failure + retries * costs.wait + fallback + parked + attempt


def _standing_in(stand_in: StepPlan, costs: _Costs) -> int:
    """Count all attempts of a fallback; the cascade is asked after each, and again after the wait for the next."""
    asked, retries = costs.task + costs.choice, stand_in.retry.max_retries
    attempt = (costs.parking if stand_in.slot else 0) + costs.task + asked
    return (retries + 1) * attempt + retries * (costs.wait + asked)


@dataclass(frozen=True, slots=True)
class _Counter:
    """Counts one graph."""

    layout: Layout
    plans: Mapping[str, StepPlan]
    costs: _Costs

    def total(self) -> int:
        return self._count(self.layout.routed)

    def step(self, step: str) -> int:
        plan = self.plans[step]
        stand_in = self.plans[plan.fallback] if plan.fallback else None
        return _own(plan, self.costs, stand_in) + self._more(plan)

    def _count(self, node: Routed) -> int:
        costs = self.costs
        match node:
            case Step(step):
                return self.step(step)
            case Await():
                return costs.parking
            case Switch(_, cases):
                return costs.choice + max(self._count(case) for _, case in cases)
            case Sequence(items) | Chain(items):
                return sum(self._count(item) for item in items)
            case Fork(branches) | Parallel(branches):
                return costs.parallel + sum(costs.end + self._count(branch) for branch in branches)
            case Lanes(branches):
                each = costs.iteration + costs.end
                return costs.parallel + sum(each + self._count(branch) for branch in branches)

    def _more(self, plan: StepPlan) -> int:
        """Count what stands behind the task of a map, a loop or a wait, in the same execution."""
        costs = self.costs
        match plan.type:
            case "map" | "loop" if plan.apart:
                return 0
            case "map":
                return self._map(plan)
            case "loop":
                return self._loop(plan)
            case "turns" if plan.turns:
                return self._turns(plan.turns)
            case "wait" if "event" not in plan.spec:
                return 2 * costs.choice + costs.wait + costs.task
            case _:
                return 0

    def _map(self, plan: StepPlan) -> int:
        costs, items = self.costs, int(plan.spec.get("max_items") or INLINE_ITEMS)
        if plan.split is None:
            return costs.parallel + items * self.each(plan) + costs.task
        inline = min(items, plan.split.inline) * self.each(plan)
        parts = max(plan.split.at_once, -(-items // plan.split.size))
        apart = parts * (costs.iteration + costs.end + _own(PART, costs))
        return costs.choice + costs.parallel + max(inline, apart) + costs.task

    def _loop(self, plan: StepPlan) -> int:
        costs, times = self.costs, int(plan.spec["max_iterations"])
        if plan.split is None:
            return times * self.each(plan) + costs.choice
        return -(-times // plan.split.size) * (costs.choice + _own(PART, costs) + costs.task) + costs.choice

    def _turns(self, turns: Turns) -> int:
        """Count all turns of an agent, each with as many calls as it may propose."""
        costs = self.costs
        call = max(_own(tool, costs) for tool in turns.tools.values())
        call += costs.iteration + costs.end + (costs.choice if len(turns.tools) > 1 else 0)
        each = _own(turns.turn, costs) + costs.parallel + MOST_CALLS * call + 2 * (costs.task + costs.choice)
        return turns.most * each + costs.choice

    def each(self, plan: StepPlan) -> int:
        """Count one item of a map, or one iteration of a loop."""
        costs = self.costs
        if plan.type == "map":
            return costs.iteration + costs.end + self._body(plan)
        return costs.choice + costs.parallel + costs.end + self._body(plan) + costs.task

    def _body(self, plan: StepPlan) -> int:
        if plan.body is None:
            return 0
        return _Counter(self.layout.bodies[plan.id], plan.body.steps, self.costs).total()
