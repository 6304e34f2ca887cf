"""Makes random manifests from a seed: shapes, joins, conditions, routers, gates, maps, loops, failures, policies."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from behaviour import dice

from shared.manifest import Body, Edge, Limits, Manifest, Retry, StepPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

BUDGET = Limits(usd=10**12, tokens=10**9, steps=10**6)
INPUT = {"type": "object"}
LONG = 30 * 86_400.0
DEEPEST = 2
TYPES = {"tool": 62, "router": 11, "transform": 7, "human_gate": 6, "map": 6, "loop": 5, "wait": 3}


def given(seed: int) -> dict[str, Any]:
    """Return the input of the run."""
    rolled = dice("input", seed)
    return {"n": rolled.randrange(10), "list": [rolled.randrange(10) for _ in range(rolled.randrange(4))]}


def make(seed: int, *, size: int = 12) -> Manifest:
    """Return the manifest of a seed, of 1 to ``size`` steps besides those in bodies, rather few than many."""
    rolled = dice("graph", seed)
    maker = Maker(seed, rolled, itertools.count(1), calm=rolled.random() < 0.3)
    n = min(rolled.randint(1, size), rolled.randint(1, size))
    steps, order = maker.graph(n, 0, ())
    return Manifest("w", "", INPUT, BUDGET, steps, order, max_parallel=1000, on_error=maker.default)


def linked(plans: Iterable[StepPlan]) -> dict[str, StepPlan]:
    """Return the plans by id with their dependents, and edges that know which sources are optional."""
    found = {plan.id: plan for plan in plans}
    for plan in list(found.values()):
        edges = tuple(replace(edge, optional=found[edge.source].optional) for edge in plan.needs)
        dependents = tuple(o.id for o in found.values() if plan.id in {edge.source for edge in o.needs})
        found[plan.id] = replace(plan, needs=edges, dependents=dependents)
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


SHAPES = (_chain, _fork, _layers, _layers, _dag, _dag)


@dataclass(frozen=True)
class Maker:
    """Makes the steps of one manifest. ``calm`` graphs have no trouble in them."""

    seed: int
    rolled: Random
    numbers: itertools.count[int]
    calm: bool

    @property
    def default(self) -> Any:
        return "pause"

    def graph(self, n: int, depth: int, frame: tuple[str, ...]) -> tuple[dict[str, StepPlan], tuple[str, ...]]:
        """Return the steps of one graph and their order. ``frame`` are conditions that hold things of the body."""
        shape = self.rolled.choice(SHAPES)
        edges = sorted(set(shape(self.rolled, n)))
        names = [f"s{next(self.numbers)}" for _ in range(n)]
        sources = {j: [i for i, k in edges if k == j] for j in range(n)}
        targets = {i: [j for k, j in edges if k == i] for i in range(n)}
        plans = [
            self.step(names[j], [names[i] for i in sources[j]], [names[k] for k in targets[j]], depth, frame)
            for j in range(n)
        ]
        plans = self.approvals(plans)
        templates = [self.template(plan.fallback) for plan in plans if plan.fallback]
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
            timeout=LONG if kind == "human_gate" else 60.0,
            retry=self._retry(kind),
            fallback=f"f{name}" if not self.calm and kind != "wait" and rolled.random() < 0.15 else None,
            on_error=rolled.choices(("continue", "pause", "fail"), (50, 35, 15))[0],
            optional=rolled.random() < 0.15,
        )
        return getattr(self, f"_{kind}")(plan, known, targets, depth, frame)

    def _unfit(self, targets: list[str], depth: int) -> set[str]:
        return (set() if targets else {"router"}) | ({"map", "loop"} if depth >= DEEPEST else set())

    def _join(self, sources: int) -> str | int:
        if sources < 2 or self.rolled.random() < 0.65:
            return "all"
        return self.rolled.choice(("any", self.rolled.randint(1, sources)))

    def _maybe(self, chance: float, text: str) -> str | None:
        return text if self.rolled.random() < chance else None

    def _retry(self, kind: str) -> Retry:
        if kind != "tool":
            return Retry(0)
        on = self.rolled.choice((("timeout", "rate_limit", "transient", "invalid_output"), ("transient",)))
        return Retry(self.rolled.randrange(3), base_delay=0.0, jitter=False, on=on)

    def condition(self, sources: list[str], frame: tuple[str, ...]) -> str:
        """Return a condition over one of the sources, of what the body is in, or of the input."""
        rolled, limit = self.rolled, self.rolled.randrange(2, 9)
        choices = [f"input.n < {limit}", *frame]
        for source in sources:
            value = f"steps.{source}.output"
            choices += [f"{value} == null || !has({value}.v) || {value}.v < {limit}"] * 2
        return rolled.choice(choices)

    def arguments(self, known: list[str], frame: tuple[str, ...]) -> dict[str, Any]:
        chance = 0.0 if self.calm else self.rolled.choice((0.0, 0.0, 0.0, 0.3, 1.0))
        data = {"seed": self.rolled.randrange(10**6), "chance": chance}
        gives = {source: f"${{ steps.{source}.status }}" for source in known}
        return data | {"from": gives | ({"frame": f"${{ {frame[0]} }}"} if frame else {})}

    def template(self, name: str) -> StepPlan:
        return StepPlan(name, "tool", spec=_call(self.arguments([], ())))

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
                spec = _call(self.arguments([], ()))
                found[chosen.id] = replace(chosen, approved_by=gate.id, risk=risk, spec=spec)
        return list(found.values())

    # --- by type ---------------------------------------------------------------------------------------------------

    def _tool(self, plan: StepPlan, known: list[str], _: Any, __: int, frame: tuple[str, ...]) -> StepPlan:
        spec = _call(self.arguments(known, frame))
        if plan.retry.max_retries < 2 and self.rolled.random() < 0.08:
            undo = {"tool": "behave", "with": {"seed": 1, "chance": 0.0}}
            # It does not fail: what an uncertain effect leads to is for the crash tests, and for a person.
            sure = {**spec["with"], "chance": 0.0}
            return replace(plan, risk="reversible", spec={**spec, "with": sure, "compensate": undo})
        return replace(plan, spec=spec)

    def _transform(self, plan: StepPlan, known: list[str], _: Any, __: int, frame: tuple[str, ...]) -> StepPlan:
        wrong = "${ input.nowhere }" if not self.calm and self.rolled.random() < 0.2 else "${ input.n }"
        values = {source: f"${{ steps.{source}.status }}" for source in known}
        values |= {"frame": f"${{ {frame[0]} }}"} if frame else {}
        return replace(plan, spec={"set": {"v": wrong, "list": "${ input.list }", "from": values}})

    def _router(self, plan: StepPlan, known: list[str], to: list[str], _: int, frame: tuple[str, ...]) -> StepPlan:
        chosen = self.rolled.sample(to, self.rolled.randint(1, len(to)))
        routes = [{"to": target, "when": self.condition(known, frame)} for target in chosen]
        if not self.calm and self.rolled.random() < 0.1:
            routes[0] = {**routes[0], "when": "input.nowhere == 1"}
        return replace(plan, spec={"strategy": "rules", "routes": routes, "default": self.rolled.choice(to)})

    def _human_gate(self, plan: StepPlan, _: Any, __: Any, ___: int, ____: Any) -> StepPlan:
        return replace(plan, spec={"approves": None, "approvers": ["finance"], "on_expiry": "reject"})

    def _wait(self, plan: StepPlan, *_: Any) -> StepPlan:
        return replace(plan, spec={"for": self.rolled.choice((0, 1))})

    def _map(self, plan: StepPlan, known: list[str], _: Any, depth: int, frame: tuple[str, ...]) -> StepPlan:
        rolled = self.rolled
        over: Any = [rolled.randrange(10) for _ in range(rolled.randrange(4))]
        if rolled.random() < 0.3:
            over = "${ input.list }" if not known else f"${{ steps.{rolled.choice(known)}.output.list }}"
        inside = ("index % 2 == 0", "item == null || item < 5", *frame)
        spec = {
            "over": over,
            "as": "thing",
            "max_concurrency": rolled.choice((0, 0, 1, 2)),
            "on_failure": rolled.choice(("collect_all", "collect_all", "fail_fast", {"quorum": rolled.randint(1, 3)})),
            "collect": self._maybe(0.2, "${ index }"),
            "max_items": 20,
        }
        return replace(plan, spec=spec, body=Body(*self.graph(rolled.randint(1, 4), depth + 1, inside)))

    def _loop(self, plan: StepPlan, _: Any, __: Any, depth: int, frame: tuple[str, ...]) -> StepPlan:
        rolled, turns = self.rolled, self.rolled.randint(1, 3)
        inside = ("loop.iteration < 2", "loop.iteration == 2 || loop.previous == null", *frame)
        body = Body(*self.graph(rolled.randint(1, 3), depth + 1, inside))
        after = f"loop.iteration >= {rolled.choice((1, 1, 2, 3))}"
        spec = {"until": after, "max_iterations": turns, "collect": self._maybe(0.2, "${ loop.iteration }")}
        return replace(plan, spec=spec, body=body)


def _call(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"tool": "behave", "with": dict(arguments), "cost": 0, "compensate": None, "reconcile": None}
