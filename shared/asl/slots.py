"""Slot awaits: where a graph could have more steps at work at once than ``max_parallel`` allows.

A step that may run beside so many others that together they are too many waits for a slot before it opens. Where they
are never too many there is no await, so it costs nothing. What counts is what calls something outside, also a step of
which only the fallback does; a map counts as often as its items run at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.asl.split import UNLIMITED
from shared.graph.chains import chains
from shared.graph.dag import Graph, bits
from shared.manifest import Body, StepPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.asl.layout import Layout


def with_slots(layout: Layout, plans: Mapping[str, StepPlan], limit: int) -> dict[str, StepPlan]:
    """Return the plans of a graph with ``slot`` set where a step must wait for one, in all bodies too."""
    return _Slots(layout, plans, limit).plans_with(after=0, everywhere=False)


def calls(plan: StepPlan) -> bool:
    """Tell whether a step calls something outside: it is then open for as long as that takes."""
    return plan.type in {"agent", "tool"} or (plan.type == "router" and plan.spec.get("strategy") == "llm")


def takes_slot(plan: StepPlan) -> bool:
    """Tell whether the step, or one in its body, waits for a slot."""
    if plan.turns:
        return plan.turns.turn.slot > 0
    return plan.slot > 0 or (plan.body is not None and any(map(takes_slot, plan.body.steps.values())))


@dataclass(frozen=True, slots=True)
class _Slots:
    layout: Layout
    plans: Mapping[str, StepPlan]
    limit: int

    def plans_with(self, *, after: int, everywhere: bool) -> dict[str, StepPlan]:
        """Return the plans; ``after`` is the rank of what follows the graph."""
        crowded = set(self.layout.order.names) if everywhere else self.crowded()
        ranks = self.ranks(after)
        for name in ranks.keys() & crowded:
            if template := self.plans[name].fallback:  # it waits like the steps that it may stand in for
                ranks[template] = max(ranks[name], ranks.get(template, 0))
        crowded |= ranks.keys() - set(self.layout.order.names)
        return {
            name: self._with(plan, ranks.get(name, after + 1), crowded=name in crowded)
            for name, plan in self.plans.items()
        }

    def _with(self, plan: StepPlan, rank: int, *, crowded: bool) -> StepPlan:
        if plan.body and plan.id in self.layout.bodies:
            steps = self._inside(plan).plans_with(after=rank, everywhere=crowded)
            return replace(plan, body=Body(steps, plan.body.order))
        if crowded and plan.turns:
            tools = {name: replace(tool, slot=rank) for name, tool in plan.turns.tools.items()}
            return replace(plan, turns=replace(plan.turns, turn=replace(plan.turns.turn, slot=rank), tools=tools))
        return replace(plan, slot=rank) if crowded and calls(plan) else plan

    def _inside(self, plan: StepPlan) -> _Slots:
        assert plan.body is not None  # noqa: S101 - for the type checker
        return _Slots(self.layout.bodies[plan.id], plan.body.steps, self.limit)

    def ranks(self, after: int) -> dict[str, int]:
        """Return by step how many steps the longest way from it to the end has: who has the longest goes first."""
        found: dict[str, int] = {}
        for name in reversed(self.layout.order.names):
            found[name] = 1 + max((found.get(other, after) for other in self.plans[name].dependents), default=after)
        return found

    def weight(self, plan: StepPlan) -> int:
        """Return how many steps are at work at once at most while this one is, or its fallback in its place."""
        stands_in = plan.fallback is not None and calls(self.plans[plan.fallback])
        return max(self._own_weight(plan), int(stands_in))

    def _own_weight(self, plan: StepPlan) -> int:
        if plan.turns:
            return plan.turns.at_once
        if plan.body is None or plan.id not in self.layout.bodies:
            return int(calls(plan))
        together = 1
        if plan.type == "map":
            limit = int(plan.spec["max_concurrency"]) or UNLIMITED
            together = min(limit, plan.spec.get("max_items") or limit)
        return together * self._inside(plan).width()

    def weights(self) -> list[int]:
        return [self.weight(self.plans[name]) for name in self.layout.order.names]

    def width(self) -> int:
        """Return how many steps of the graph are at work at once at most, or a number above the limit."""
        weights, order = self.weights(), self.layout.order
        if sum(weights) <= self.limit:
            return sum(weights)
        level = max(_levels(order, weights))
        if level > self.limit:
            return level
        # Of a chain only one step is at work at a time (Dilworth).
        working = sum(1 << node for node, weight in enumerate(weights) if weight)
        closed = Graph(order.names, order.ancestors, order.ancestors)
        return sum(max(weights[node] for node in chain) for chain in chains(closed, working))

    def crowded(self) -> set[str]:
        """Return the steps that could run beside so many others that together they are too many."""
        if self.width() <= self.limit:
            return set()
        weights, order = self.weights(), self.layout.order
        masks = {weight: sum(1 << n for n, one in enumerate(weights) if one == weight) for weight in set(weights)}
        beside = _incomparable(order)
        together = [sum(w * (mask & others).bit_count() for w, mask in masks.items()) for others in beside]
        return {name for node, name in enumerate(order.names) if weights[node] + together[node] > self.limit}


def _levels(order: Graph, weights: list[int]) -> list[int]:
    """Return the weight of every level: the steps whose longest way from a start has the same length."""
    depth, found = [0] * len(weights), [0] * (len(weights) + 1)
    for node, parents in enumerate(order.parents):
        depth[node] = 1 + max((depth[parent] for parent in bits(parents)), default=-1)
        found[depth[node]] += weights[node]
    return found


def _incomparable(order: Graph) -> list[int]:
    """Return for every node the others that may run at the same time."""
    below = [0] * len(order.ancestors)
    for node, above in enumerate(order.ancestors):
        for parent in bits(above):
            below[parent] |= 1 << node
    everything = (1 << len(below)) - 1
    return [everything & ~(above | below[node] | 1 << node) for node, above in enumerate(order.ancestors)]
