"""What random steps do, type by type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from behaviour import dice

from shared.manifest import Body, Limits, Retry, StepPlan, Turns

if TYPE_CHECKING:
    import itertools
    from collections.abc import Mapping
    from random import Random

MODELS = ("claude-haiku-4-5", "claude-sonnet-4-5", "claude-opus-4-5")
LONG = 30 * 86_400.0
REPLY = {"type": "object", "required": ["v"], "properties": {"v": {"type": "integer"}}}
PROBE = {
    "tool": "find",
    "with": {"seed": "${ call.arguments.seed }"},
    "found": "result.count > 0",
    "conclusive_after": None,
}
PAST = "2024-02-29T12:00:00Z"
SOON = 20_000.0
"""Seconds to decide at a gate, or for an event to come, where nobody does or none comes. No engine's clock gets there
by itself, also the hurried ones: who plays the people says when the time is over."""


@dataclass(frozen=True)
class Specs:
    """Fills in the specs. ``calm`` graphs have no trouble in them.

    ``prefix`` begins the ids of steps, ``family`` the names of the workflows that this one runs.
    """

    seed: int
    rolled: Random
    numbers: itertools.count[int]
    calm: bool
    family: str = ""
    prefix: str = "s"

    def graph(self, n: int, depth: int, frame: tuple[str, ...]) -> tuple[dict[str, StepPlan], tuple[str, ...]]:
        raise NotImplementedError

    def _maybe(self, chance: float, text: str) -> str | None:
        return text if self.rolled.random() < chance else None

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

    def template(self, plan: StepPlan) -> StepPlan:
        """Return the step that stands in for ``plan`` when it fails; it may fail as well, and be tried again."""
        name = plan.fallback or ""
        kind = self.rolled.choice(("tool", "tool", "tool", "transform", "agent"))
        made = getattr(self, f"_{kind}")(StepPlan(name, kind), [], [], 0, ())
        retries = dice("stands in", self.seed, name).choice((0, 1, 2))
        return replace(made, retry=Retry(retries)) if made.risk == "read" else made

    # --- by type ---------------------------------------------------------------------------------------------------

    def _tool(self, plan: StepPlan, known: list[str], _: Any, __: int, frame: tuple[str, ...]) -> StepPlan:
        spec = call(self.arguments(known, frame))
        if known and self.rolled.random() < 0.15:
            spec["with"]["from"] = "${ inputs }"
            plan = replace(plan, merge=self.rolled.choice(("by_step", "shallow", "deep", "list", "first")))
        if plan.retry.max_retries < 2 and self.rolled.random() < 0.15:
            return self._reversible(plan, spec, frame)
        return replace(plan, spec=spec)

    def _reversible(self, plan: StepPlan, spec: dict[str, Any], frame: tuple[str, ...]) -> StepPlan:
        told = [f"${{ steps.{plan.id}.output }}", *(f"${{ {f} }}" for f in frame)]
        spec["compensate"] = {"tool": "behave", "with": {"seed": 1, "chance": 0.0, "from": told}}
        self.leave_doubt(spec)
        if spec["with"]["doubtful"] and self.rolled.random() < 0.7:
            spec["reconcile"] = PROBE
            plan = replace(plan, retry=replace(plan.retry, max_retries=1, on=("transient", "timeout", "rate_limit")))
        return replace(plan, risk="reversible", spec=spec)

    def leave_doubt(self, spec: dict[str, Any]) -> None:
        """Let some calls fail often, and leave open then whether they have happened."""
        doubtful = self.rolled.random() < 0.5
        spec["with"] |= {"doubtful": doubtful} | ({"chance": 0.6} if doubtful and not self.calm else {})

    def _agent(self, plan: StepPlan, known: list[str], _: Any, __: int, frame: tuple[str, ...]) -> StepPlan:
        asked = replace(plan, spec=self._model(known, frame), output=REPLY)
        takes_turns = not plan.id.startswith("f") and dice("turns", self.seed, plan.id).random() < 0.4
        return self._with_tools(asked) if takes_turns else asked

    def _with_tools(self, plan: StepPlan) -> StepPlan:
        """Let an agent call the tool, as the compiler would plan it."""
        stays = plan.on_error == "pause" and plan.fallback is None
        spec = {name: plan.spec[name] for name in ("model", "portable", "max_tokens")} | {"keep_turns": 1}
        turn = StepPlan(
            "turn",
            "turn",
            timeout=plan.timeout,
            retry=plan.retry,
            on_error="pause" if stays else "continue",
            output=REPLY,
            spec=spec,
        )
        offer = {"tool": "behave", "compensate": None, "reconcile": None, "description": "", "parameters": {}}
        tool = StepPlan("behave", "tool", retry=plan.retry, on_error="continue", spec=offer)
        turns = Turns(turn, {"behave": tool}, 3, 2)
        return replace(plan, type="turns", retry=Retry(0), turns=turns, spec={"prompt": plan.spec["prompt"]})

    def _model(self, known: list[str], frame: tuple[str, ...]) -> dict[str, Any]:
        """Return what a step needs to ask a model: whose turn it is decides how it answers."""
        chance = 0.0 if self.calm else self.rolled.choice((0.0, 0.0, 0.3, 1.0))
        says = [f"${{ steps.{source}.status }}" for source in known] + [f"${{ {one} }}" for one in frame[:1]]
        prompt = f"{self.rolled.randrange(10**6)} {chance} {' '.join(says)}"
        chain = list(MODELS[: self.rolled.randint(1, len(MODELS))])
        return {"model": chain, "prompt": prompt, "portable": self.rolled.random() < 0.8, "max_tokens": 100}

    def _transform(self, plan: StepPlan, known: list[str], _: Any, __: int, frame: tuple[str, ...]) -> StepPlan:
        wrong = "${ input.nowhere }" if not self.calm and self.rolled.random() < 0.2 else "${ input.n }"
        values = {source: f"${{ steps.{source}.status }}" for source in known}
        values |= {"frame": f"${{ {frame[0]} }}"} if frame else {}
        return replace(plan, spec={"set": {"v": wrong, "list": "${ input.list }", "from": values}})

    def _router(self, plan: StepPlan, known: list[str], to: list[str], _: int, frame: tuple[str, ...]) -> StepPlan:
        chosen = self.rolled.sample(to, self.rolled.randint(1, len(to)))
        strategy = self.rolled.choice(("rules", "rules", "rules", "llm", "score"))
        spec = getattr(self, f"_by_{strategy}")(chosen, known, frame)
        return replace(plan, spec={"strategy": strategy, "default": self.rolled.choice(to), **spec})

    def _by_rules(self, to: list[str], known: list[str], frame: tuple[str, ...]) -> dict[str, Any]:
        routes = [{"to": target, "when": self.condition(known, frame)} for target in to]
        if not self.calm and self.rolled.random() < 0.1:
            routes[0] = {**routes[0], "when": "input.nowhere == 1"}
        return {"routes": routes}

    def _by_llm(self, to: list[str], known: list[str], frame: tuple[str, ...]) -> dict[str, Any]:
        return {
            **self._model(known, frame),
            "routes": [{"to": target, "description": f"go to {target}"} for target in to],
        }

    def _by_score(self, to: list[str], known: list[str], _: tuple[str, ...]) -> dict[str, Any]:
        value = f"steps.{self.rolled.choice(known)}.output" if known else "input"
        score = f"has({value}.v) ? {value}.v : 1" if known else "input.n"
        wrong = not self.calm and self.rolled.random() < 0.1
        routes = [{"to": target, "above": self.rolled.randrange(10)} for target in to]
        return {"value": "input.nowhere" if wrong else score, "routes": routes}

    def _human_gate(self, plan: StepPlan, _: Any, __: Any, ___: int, ____: Any) -> StepPlan:
        rule = self.rolled.choice(("reject", "approve", "fail", "pause"))
        soon = not self.calm and self.rolled.random() < 0.2
        spec = {"approves": None, "approvers": ["finance"], "on_expiry": rule}
        return replace(plan, spec=spec, timeout=SOON if soon else plan.timeout)

    def _wait(self, plan: StepPlan, *_: Any) -> StepPlan:
        if self.rolled.random() < 0.4:
            moment = "${ input.nowhere }" if not self.calm and self.rolled.random() < 0.2 else PAST
            return replace(plan, spec=self.rolled.choice(({"for": 0}, {"for": 1}, {"until": moment})))
        match = self.rolled.choice((None, "event.n > 2"))
        event = {"name": f"e{plan.id}", "match": match, "timeout": SOON}
        return replace(plan, spec={"event": event}, timeout=SOON)

    def _sub_workflow(self, plan: StepPlan, *_: Any) -> StepPlan:
        name = f"{self.family}x{next(self.numbers)}"
        given = {"n": "${ input.n }", "list": "${ input.list }"}
        return replace(plan, spec={"workflow": name, "version": None, "with": given})

    def _map(self, plan: StepPlan, known: list[str], _: Any, depth: int, frame: tuple[str, ...]) -> StepPlan:
        rolled = self.rolled
        over: Any = [rolled.randrange(10) for _ in range(rolled.choice((0, 1, 2, 3, 4, 5)))]
        if rolled.random() < 0.3:
            over = "${ input.list }" if not known else f"${{ steps.{rolled.choice(known)}.output.list }}"
        inside = ("index % 2 == 0", "item == null || item < 5", *frame)
        spec = {
            "over": over,
            "as": "thing",
            "max_concurrency": rolled.choice((0, 1, 2, 3, 4, 6)),
            "on_failure": rolled.choice(("collect_all", "collect_all", "fail_fast", {"quorum": rolled.randint(1, 3)})),
            "collect": self._maybe(0.2, "${ index }"),
            "max_items": 20,
        }
        plan = replace(plan, spec=spec, body=Body(*self.graph(rolled.randint(1, 4), depth + 1, inside)))
        return self._perhaps_apart(plan)

    def _loop(self, plan: StepPlan, _: Any, __: Any, depth: int, frame: tuple[str, ...]) -> StepPlan:
        rolled, turns = self.rolled, self.rolled.randint(1, 3)
        inside = ("loop.iteration < 2", "loop.iteration == 2 || loop.previous == null", *frame)
        body = Body(*self.graph(rolled.randint(1, 3), depth + 1, inside))
        after = f"loop.iteration >= {rolled.choice((1, 1, 2, 3))}"
        spec = {"until": after, "max_iterations": turns, "collect": self._maybe(0.2, "${ loop.iteration }")}
        return self._perhaps_apart(replace(plan, spec=spec, body=body))

    def _perhaps_apart(self, plan: StepPlan) -> StepPlan:
        """Give some maps and loops a time-out and a budget, and by that a run of their own; there is enough of both."""
        rolled = dice("apart", self.seed, plan.id)
        plenty = Limits(usd=10**8, tokens=10**5, steps=300)
        return replace(plan, apart=True, timeout=LONG, budget=plenty) if rolled.random() < 0.2 else plan


def call(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a tool that behaves as its arguments say."""
    return {"tool": "behave", "with": dict(arguments), "cost": 0, "compensate": None, "reconcile": None}
