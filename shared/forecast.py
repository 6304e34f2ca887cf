"""What a definition amounts to before it runs: how long, how much, how wide, and which limit is nearest.

Durations are seconds; those nobody gives are ceilings: a step's time-out, a gate's, a wait's. Money is nano-USD.
"""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shared.asl.limits import MAX_DEFINITION, MAX_EVENTS, MAX_MANIFEST, MAX_PAYLOAD
from shared.budget.history import UNKNOWN_REQUEST
from shared.graph.chains import chains
from shared.graph.dag import Graph, bits
from shared.manifest import MOST_CALLS
from shared.models.prices import prices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.asl.layout import Layout
    from shared.compiler import Compiled
    from shared.manifest import Body, Limits, Manifest, StepPlan, Turns

CHARACTERS_A_TOKEN = 4
_INPUT = 400
"""Bytes of the data that every state passes on: the run's names and the scope."""


@dataclass(frozen=True, slots=True)
class Need:
    """How much of a limit is needed at most."""

    name: str
    used: int
    limit: int

    @property
    def share(self) -> float:
        """The part of the limit, 1 being all of it."""
        return self.used / self.limit


@dataclass(frozen=True, slots=True)
class Cost:
    """Nano-USD of a run: ``floor`` if only what cannot be skipped runs once, ``ceiling`` if everything goes wrong.

    ``unbounded`` are the paths whose cost no budget bounds: an estimate stands for them, or nothing for a child.
    """

    floor: int
    ceiling: int
    unbounded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Width:
    """How many steps could run at once, how many may, and what that costs in time.

    ``seconds`` is how long the run takes with ``max_parallel`` slots, ``delayed`` are the steps that start later then.
    """

    width: int
    max_parallel: int
    seconds: float
    delayed: tuple[str, ...]


class Forecast:
    """The figures of one compiled definition; ``given`` are known durations by step path."""

    def __init__(self, compiled: Compiled, given: Mapping[str, float] | None = None) -> None:
        self.compiled = compiled
        self._given = given or {}
        self._top = _Part(compiled.manifest, compiled.layout, "", self._given)

    @cached_property
    def steps(self) -> tuple[tuple[str, StepPlan], ...]:
        """Every step with its path, in all bodies too."""
        return tuple(_walk(self.compiled.manifest, ""))

    @cached_property
    def critical_path(self) -> tuple[tuple[str, float], ...]:
        """The longest chain of steps by time, each with its seconds."""
        return self._top.critical_path()

    @cached_property
    def cost(self) -> Cost:
        """What a run costs."""
        floor = sum(_floor(plan) for plan in _certain(self.compiled.manifest))
        ceiling, unbounded = _ceiling(self.compiled.manifest, "")
        limit = self.compiled.manifest.budget.usd
        bounded = ceiling if limit is None else min(limit, ceiling)
        return Cost(min(floor, bounded), bounded, () if limit is not None else tuple(unbounded))

    @cached_property
    def limits(self) -> tuple[Need, ...]:
        """How much of every limit is needed, the nearest one first."""
        facts = self.compiled.summary
        needs = (
            Need("history events", facts.events, MAX_EVENTS),
            Need("definition bytes", facts.definition_size, MAX_DEFINITION),
            Need("manifest bytes", facts.manifest_size, MAX_MANIFEST),
            Need("payload bytes", _payload(self.compiled), MAX_PAYLOAD),
        )
        return tuple(sorted(needs, key=lambda need: -need.share))

    @cached_property
    def width(self) -> Width:
        """How wide the graph is beside ``max_parallel``."""
        slots = self.compiled.manifest.max_parallel
        free, bound = self._top.schedule(len(self.compiled.manifest.order)), self._top.schedule(slots)
        names = self.compiled.layout.order.names
        late = (names[node] for node, start in enumerate(bound) if start > free[node])
        return Width(self._top.width(), slots, self._top.ends(bound), tuple(late))


@dataclass(frozen=True, slots=True)
class _Part:
    """One graph with the durations of its steps."""

    graph: Manifest | Body
    layout: Layout
    prefix: str
    given: Mapping[str, float]

    @property
    def order(self) -> Graph:
        return self.layout.order

    def seconds(self, name: str) -> float:
        plan = self.graph.steps[name]
        path = f"{self.prefix}{name}"
        if path in self.given:
            return self.given[path]
        if plan.body is None:
            return _ceiling_seconds(plan)
        inner = _Part(plan.body, self.layout.bodies[name], f"{path}/", self.given)
        longest = _rounds(plan) * sum(seconds for _, seconds in inner.critical_path())
        return min(longest, plan.timeout) if plan.apart else longest

    def durations(self) -> list[float]:
        return [self.seconds(name) for name in self.order.names]

    def critical_path(self) -> tuple[tuple[str, float], ...]:
        seconds, ends = self.durations(), list[float]()
        for node, parents in enumerate(self.order.parents):
            ends.append(seconds[node] + max((ends[parent] for parent in bits(parents)), default=0.0))
        node = max(range(len(ends)), key=ends.__getitem__, default=-1)
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = max(bits(self.order.parents[node]), key=ends.__getitem__, default=-1)
        return tuple((f"{self.prefix}{self.order.names[node]}", seconds[node]) for node in reversed(path))

    def schedule(self, slots: int) -> list[float]:
        """Return when each step starts if so many may run at once and the longest remaining path goes first."""
        seconds, remaining = self.durations(), self._remaining()
        missing = [parents.bit_count() for parents in self.order.parents]
        starts = [0.0] * len(seconds)
        ready = [(-remaining[node], node) for node, count in enumerate(missing) if not count]
        heapq.heapify(ready)
        running: list[tuple[float, int]] = []
        now = 0.0
        while ready or running:
            while ready and len(running) < slots:
                _, node = heapq.heappop(ready)
                starts[node] = now
                heapq.heappush(running, (now + seconds[node], node))
            now, ended = heapq.heappop(running)
            for node in self._children(ended):
                missing[node] -= 1
                if not missing[node]:
                    heapq.heappush(ready, (-remaining[node], node))
        return starts

    def ends(self, starts: list[float]) -> float:
        return max(start + seconds for start, seconds in zip(starts, self.durations(), strict=True))

    def width(self) -> int:
        """Return how many steps can be under way at once: by Dilworth's theorem the fewest chains that cover all."""
        everything = Graph(self.order.names, self.order.ancestors, self.order.ancestors)
        return len(chains(everything, everything.everything))

    def _children(self, node: int) -> list[int]:
        return [other for other, parents in enumerate(self.order.parents) if parents >> node & 1]

    def _remaining(self) -> list[float]:
        left = self.durations()
        for node in range(len(left) - 1, -1, -1):
            left[node] += max((left[child] for child in self._children(node)), default=0.0)
        return left


def _walk(graph: Manifest | Body, prefix: str) -> Iterator[tuple[str, StepPlan]]:
    for name in graph.order:
        plan = graph.steps[name]
        yield f"{prefix}{name}", plan
        if plan.body:
            yield from _walk(plan.body, f"{prefix}{name}/")


def _items(plan: StepPlan) -> int:
    return int(plan.spec["max_items" if plan.type == "map" else "max_iterations"])


def _rounds(plan: StepPlan) -> int:
    """Return how often a body runs one after the other."""
    limit = int(plan.spec.get("max_concurrency", 0)) if plan.type == "map" else 1
    return -(-_items(plan) // (limit or _items(plan) or 1))


def _ceiling_seconds(plan: StepPlan) -> float:
    """Return the longest that all attempts of a step can take, with the waits between them; of an agent, all turns."""
    if plan.turns:
        calls = max(_ceiling_seconds(tool) for tool in plan.turns.tools.values())
        return plan.turns.most * (_ceiling_seconds(plan.turns.turn) + calls)
    if plan.type == "wait":
        given = plan.spec.get("for", plan.timeout if "event" in plan.spec else 0.0)
        return float(given) if isinstance(given, int | float) else 0.0
    if plan.type == "human_gate":
        return plan.timeout  # who has not decided by then is not asked again
    policy = plan.retry
    growth = (2.0**n if policy.backoff == "exponential" else n + 1.0 for n in range(policy.max_retries))
    jitter = policy.base_delay if policy.jitter else 0.0
    waits = sum(min(policy.base_delay * factor, policy.max_delay) + jitter for factor in growth)
    return (policy.max_retries + 1) * plan.timeout + waits


def _certain(manifest: Manifest) -> Iterator[StepPlan]:
    """Yield the steps that run in every run that completes."""
    sure: set[str] = set()
    for name in manifest.order:
        plan = manifest.steps[name]
        plain = all(edge.when is None and edge.source in sure for edge in plan.needs)
        if plain and plan.when is None and not any(manifest.steps[edge.source].type == "router" for edge in plan.needs):
            sure.add(name)
            yield plan


def _floor(plan: StepPlan) -> int:
    """Return what one attempt costs at least: the literal text of the prompt, and one token of answer."""
    if not _asks(plan):
        return 0
    known = [prices()[model] for model in _models(plan) if model in prices()]
    return min((price.input * _tokens(plan) + price.output for price in known), default=0)


def _asks(plan: StepPlan) -> bool:
    return plan.type in {"agent", "turns", "turn"} or (plan.type == "router" and plan.spec.get("strategy") == "llm")


def _models(plan: StepPlan) -> list[str]:
    return list(plan.turns.turn.spec["model"] if plan.turns else plan.spec["model"])


def _tokens(plan: StepPlan) -> int:
    text = f"{plan.spec.get('system') or ''}{plan.spec.get('prompt') or ''}"
    return len(text) // CHARACTERS_A_TOKEN


def _ceiling(graph: Manifest | Body, prefix: str) -> tuple[int, list[str]]:
    total, unbounded = 0, list[str]()
    for name in graph.order:
        cost, open_ = _step_ceiling(graph, graph.steps[name], f"{prefix}{name}")
        total += cost
        unbounded += open_
    return total, unbounded


def _step_ceiling(graph: Manifest | Body, plan: StepPlan, path: str) -> tuple[int, list[str]]:
    """Return what a step costs at most, and after it its fallback, by the budget of its own that each has."""
    cost, unbounded = _own_ceiling(plan, path)
    if not plan.fallback:
        return cost, unbounded
    more, open_ = _own_ceiling(graph.steps[plan.fallback], f"{path}/fallback")
    return cost + more, unbounded + open_


def _own_ceiling(plan: StepPlan, path: str) -> tuple[int, list[str]]:
    unbounded = [path] if _asks(plan) or plan.type == "sub_workflow" else list[str]()
    cost = (plan.retry.max_retries + 1) * _attempt(plan)
    if plan.turns:
        return _agent_ceiling(plan.turns, path)
    if plan.body:
        inside, unbounded = _ceiling(plan.body, f"{path}/")
        cost = _items(plan) * inside
    return _within(plan.budget, cost, unbounded)


def _agent_ceiling(turns: Turns, path: str) -> tuple[int, list[str]]:
    """Return what all turns with all their calls cost, with every retry; the budget is that of all of them."""
    calls = max((tool.retry.max_retries + 1) * _attempt(tool) for tool in turns.tools.values())
    turn = (turns.turn.retry.max_retries + 1) * _attempt(turns.turn)
    return _within(turns.turn.budget, turns.most * (turn + MOST_CALLS * calls), [path])


def _within(budget: Limits, cost: int, unbounded: list[str]) -> tuple[int, list[str]]:
    if budget.usd is None:
        return cost, unbounded
    return (budget.usd if unbounded else min(budget.usd, cost)), []


def _attempt(plan: StepPlan) -> int:
    if not _asks(plan):
        return int(plan.spec.get("cost") or 0)
    known = [prices()[model] for model in _models(plan) if model in prices()]
    most = plan.spec.get("max_tokens") or 1024
    return max((UNKNOWN_REQUEST, *(price.input * _tokens(plan) + price.output * most for price in known)))


def _payload(compiled: Compiled) -> int:
    """Return the most bytes that a state's data can have: the names of lanes, and the numbers of a map's items."""
    return _INPUT + _lanes(compiled.asl) + max((_numbers(plan) for _, plan in _walk(compiled.manifest, "")), default=0)


def _numbers(plan: StepPlan) -> int:
    if plan.type != "map":
        return 0
    most = max(plan.split.inline, plan.split.size) if plan.split else _items(plan)
    return len(json.dumps(list(range(min(most, _items(plan))))))


def _lanes(machine: Mapping[str, Any]) -> int:
    given = (state.get("Parameters", {}).get("lanes") for state in machine["States"].values())
    own = max((len(json.dumps(lanes)) for lanes in given if lanes), default=0)
    inner = [
        _lanes(branch)
        for state in machine["States"].values()
        for branch in (*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ()))
    ]
    return max((own, *inner))
