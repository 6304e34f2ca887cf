"""Makes random manifests from a seed: shapes, joins, conditions, policies; what the steps do stands in ``specs``.

The workflows that a manifest's sub-workflows run are made from their names (``child``), so that a name is enough to
have them again, on every engine.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from behaviour import dice
from specs import LONG, Specs, call

from shared.manifest import Edge, Limits, Manifest, Retry, StepPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

BUDGET = Limits(usd=10**12, tokens=10**9, steps=10**6)
ENVELOPES = (BUDGET, Limits(usd=10**10, tokens=10**7, steps=10**4), Limits(usd=10**8, tokens=10**5, steps=300))
"""What a run, its children and theirs may use: there is enough for all that can be under way at once."""
INPUT = {"type": "object"}
ENOUGH = 1000
DEEPEST = 2
SIZES = (1, 1, 2, 3)
"""How many steps a child's graph has."""
TYPES = {
    "tool": 52,
    "agent": 8,
    "router": 12,
    "transform": 7,
    "human_gate": 6,
    "map": 6,
    "loop": 5,
    "wait": 5,
    "sub_workflow": 5,
}
_CALLERS = {"tool": ("timeout", "rate_limit", "transient", "invalid_output"), "agent": ("invalid_output", "transient")}


def given(seed: int) -> dict[str, Any]:
    """Return the input of the run."""
    rolled = dice("input", seed)
    return {"n": rolled.randrange(10), "list": [rolled.randrange(10) for _ in range(rolled.randrange(4))]}


def make(seed: int, *, size: int = 12) -> Manifest:
    """Return the manifest of a seed, of 1 to ``size`` steps besides those in bodies, rather few than many."""
    rolled = dice("graph", seed)
    maker = Maker(seed, rolled, itertools.count(1), calm=rolled.random() < 0.3, family=f"k{seed}")
    n = min(rolled.randint(1, size), rolled.randint(1, size))
    steps, order = maker.graph(n, 0, ())
    return Manifest("w", "", INPUT, BUDGET, steps, order, max_parallel=places(seed), on_error=maker.default)


def make_large(seed: int, *, size: int = 600) -> Manifest:
    """Return a manifest of about ``size`` steps in blocks of many equal lanes, which the compiler folds into Maps."""
    rolled = dice("large", seed)
    maker = Maker(seed, rolled, itertools.count(1), calm=rolled.random() < 0.3)
    plans: list[StepPlan] = []
    last: list[str] = []
    while len(plans) < size:
        block = maker.block(rolled.choice(LANES), rolled.randint(20, 45), last)
        plans += block
        last = [block[-1].id]
    order = tuple(plan.id for plan in plans)
    return Manifest("w", "", INPUT, BUDGET, linked(plans), order, max_parallel=places(seed, 40))


def child(name: str) -> Manifest:
    """Return the manifest of a workflow that only other ones run. Its steps' ids occur in no other workflow."""
    rolled = dice("child", name)
    maker = Maker(0, rolled, itertools.count(1), calm=rolled.random() < 0.4, family=name, prefix=f"{name}s")
    steps, order = maker.graph(rolled.choice(SIZES), DEEPEST - 1, ())
    wanted = {"required": ["nowhere"]} if not maker.calm and rolled.random() < 0.05 else {}
    budget, most = ENVELOPES[name.count("x")], places(name)
    return Manifest(name, "", INPUT | wanted, budget, steps, order, max_parallel=most, on_error=maker.default)


def places(of: int | str, *few: int) -> int:
    """Return how many steps may be at work at once: more than there ever are, or ``few``."""
    return dice("places", of).choice((ENOUGH, ENOUGH, *(few or (1, 2, 3))))


def children_of(manifest: Manifest) -> Iterator[str]:
    """Yield the names of all workflows that a run of this one may run."""
    for plan in plans_of(manifest.steps.values()):
        if plan.type == "sub_workflow":
            yield plan.spec["workflow"]
            yield from children_of(child(plan.spec["workflow"]))


def plans_of(plans: Iterable[StepPlan]) -> Iterator[StepPlan]:
    """Yield these steps and those in their bodies."""
    for plan in plans:
        yield plan
        yield from plans_of(plan.body.steps.values()) if plan.body else ()


def linked(plans: Iterable[StepPlan]) -> dict[str, StepPlan]:
    """Return the plans by id with their dependents, and edges that know which sources are optional."""
    found = {plan.id: plan for plan in plans}
    after: dict[str, list[str]] = {name: [] for name in found}
    for plan in found.values():
        for source in dict.fromkeys(edge.source for edge in plan.needs):
            after[source].append(plan.id)
    for plan in list(found.values()):
        edges = tuple(replace(edge, optional=found[edge.source].optional) for edge in plan.needs)
        found[plan.id] = replace(plan, needs=edges, dependents=tuple(after[plan.id]))
    return found


def _chain(_: Random, n: int) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(n - 1)]


def _fork(rolled: Random, n: int) -> list[tuple[int, int]]:
    """One step, branches of chains, one step that joins them."""
    width = rolled.randint(2, 4)
    edges = [(i - width if i > width else 0, i) for i in range(1, n - 1)]
    return edges + [(i, n - 1) for i in range(max(0, n - 1 - width), n - 1)]


def _layers(rolled: Random, n: int) -> list[tuple[int, int]]:
    """Layers with random edges between neighbours: full of N-shapes."""
    wide = rolled.randint(2, 3)
    edges = [(i, j) for j in range(wide, n) for i in range((j // wide - 1) * wide, j // wide * wide)]
    return [edge for edge in edges if rolled.random() < 0.65]


def _dag(rolled: Random, n: int) -> list[tuple[int, int]]:
    return [(i, j) for j in range(n) for i in rolled.sample(range(j), min(j, rolled.choice((0, 1, 1, 2, 3))))]


LANES = (
    ((0, 1), (1, 2), (2, 3)),
    ((0, 1), (0, 2), (1, 3), (2, 3)),
    ((0, 2), (0, 3), (1, 3)),
    ((0, 1), (0, 2), (2, 3), (1, 4), (3, 4)),
)
"""Edges inside one lane: a chain, a fork that joins, an N, a fork with unequal arms."""
SHAPES = (_chain, _fork, _layers, _layers, _dag, _dag)


@dataclass(frozen=True)
class Maker(Specs):
    """Makes the steps of one manifest."""

    @property
    def default(self) -> Any:
        return "pause"

    def graph(self, n: int, depth: int, frame: tuple[str, ...]) -> tuple[dict[str, StepPlan], tuple[str, ...]]:
        """Return the steps of one graph and their order. ``frame`` are conditions that hold things of the body."""
        shape = self.rolled.choice(SHAPES)
        edges = sorted(set(shape(self.rolled, n)))
        names = [f"{self.prefix}{next(self.numbers)}" for _ in range(n)]
        sources = {j: [i for i, k in edges if k == j] for j in range(n)}
        targets = {i: [j for k, j in edges if k == i] for i in range(n)}
        plans = [
            self.step(names[j], [names[i] for i in sources[j]], [names[k] for k in targets[j]], depth, frame)
            for j in range(n)
        ]
        plans = self.approvals(plans)
        templates = [self.template(plan) for plan in plans if plan.fallback]
        return linked([*plans, *templates]), tuple(names)

    def step(self, name: str, sources: list[str], targets: list[str], depth: int, frame: tuple[str, ...]) -> StepPlan:
        rolled = self.rolled
        weights = {kind: weight for kind, weight in TYPES.items() if kind not in self._unfit(targets, depth)}
        kind = rolled.choices(list(weights), list(weights.values()))[0]
        join = self._join(len(sources))
        known = sources if join == "all" else []
        plan = StepPlan(
            name,
            kind,
            tuple(Edge(source, self._maybe(0.2, self.condition([source], ()))) for source in sources),
            join=join,
            when=self._maybe(0.12, self.condition(known, frame)),
            timeout=LONG if kind in {"human_gate", "sub_workflow"} else 60.0,
            retry=self._retry(kind),
            fallback=f"f{name}" if not self.calm and kind != "wait" and rolled.random() < 0.15 else None,
            on_error=rolled.choices(("continue", "pause", "fail"), (50, 35, 15))[0],
            optional=rolled.random() < 0.15,
        )
        return getattr(self, f"_{kind}")(plan, known, targets, depth, frame)

    def block(self, shape: tuple[tuple[int, int], ...], width: int, before: list[str]) -> list[StepPlan]:
        """Return lanes of one shape between what came before and one step that joins them."""
        size = 1 + max(j for _, j in shape)
        lanes = [[f"s{next(self.numbers)}" for _ in range(size)] for _ in range(width)]
        plans = [self._laid(names, j, shape, before) for names in lanes for j in range(size)]
        lasts = [names[i] for names in lanes for i in range(size) if i not in {a for a, _ in shape}]
        return [*plans, self._large(f"s{next(self.numbers)}", lasts)]

    def _laid(self, names: list[str], j: int, shape: tuple[tuple[int, int], ...], before: list[str]) -> StepPlan:
        return self._large(names[j], [names[i] for i, k in shape if k == j] or before)

    def _large(self, name: str, sources: list[str]) -> StepPlan:
        join = self._join(len(sources)) if self.rolled.random() < 0.1 else "all"
        rule = self.rolled.choices(("continue", "pause"), (80, 20))[0]
        spec = call({"seed": self.rolled.randrange(10**6), "chance": 0.0 if self.calm else 0.05, "from": None})
        edges = tuple(Edge(source) for source in sources)
        return StepPlan(
            name, "tool", edges, join=join, retry=self._retry("tool"), on_error=rule, optional=True, spec=spec
        )

    def _unfit(self, targets: list[str], depth: int) -> set[str]:
        deep = {"map", "loop"} if depth >= DEEPEST else set()
        childless = {"sub_workflow"} if self.family.count("x") >= DEEPEST else set()
        return (set() if targets else {"router"}) | deep | childless

    def _join(self, sources: int) -> str | int:
        if sources < 2 or self.rolled.random() < 0.65:
            return "all"
        return self.rolled.choice(("any", self.rolled.randint(1, sources)))

    def _retry(self, kind: str) -> Retry:
        times = self.rolled.randrange(3)
        if kind in _CALLERS:
            on = self.rolled.choice((_CALLERS[kind], ("transient",)))
        elif kind == "sub_workflow" and self.rolled.random() < 0.2:
            on = ("permanent",)
        else:
            return Retry(0)
        return Retry(times, base_delay=0.0, jitter=False, on=on)

    def approvals(self, plans: list[StepPlan]) -> list[StepPlan]:
        """Let some gates name a tool that follows them directly."""
        found = {plan.id: plan for plan in plans}
        for gate in plans:
            after = [p for p in found.values() if p.type == "tool" and p.join == "all" and not p.approved_by]
            after = [p for p in after if gate.id in {edge.source for edge in p.needs}]
            if gate.type == "human_gate" and after and self.rolled.random() < 0.5:
                chosen = self.rolled.choice(after)
                found[gate.id] = replace(gate, spec={**gate.spec, "approves": chosen.id})
                risk = self.rolled.choice(("read", "irreversible"))
                spec = call(self.arguments([], ()))
                if risk == "irreversible":
                    self.leave_doubt(spec)
                found[chosen.id] = replace(chosen, approved_by=gate.id, risk=risk, spec=spec)
        return list(found.values())
