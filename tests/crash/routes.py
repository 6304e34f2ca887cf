"""The routes of a run, each with its fakes, what a person does, and how it must end."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import agents
import bodies
import invoices
from far_sides import Erp
from faults import Tap
from machine import FINANCE, World
from payments import FIND, PAYMENTS, approve
from play import Play
from route import Route

from shared.budget.tenant import set_limits
from shared.compiler import compile_manifest
from shared.errors import PermanentFailure, TransientFailure
from shared.manifest import YEAR, Limits, Retry, StepPlan
from shared.runtime.gates import Word
from shared.runtime.waits import Arrival
from shared.testing import FakeModels, FakeTools, FixedDefinitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.budget.shards import Amounts
    from shared.ledger.records import Step


def invoice(
    amount: int, act: Callable[[Play], None], verdict: str = "retry", tenant: Amounts | None = None, **tools: Any
) -> Callable[[Tap], Any]:
    """Return a route through the invoice workflow; ``tenant`` are the limits of its tenant."""

    def make(tap: Tap) -> tuple[Play, Erp]:
        erp = Erp()
        ready = {"erp_post": erp.post, "erp_void": erp.void, "erp_find": erp.find}
        world = invoices.world(amount=amount, **ready | tools)
        if tenant:
            set_limits(world.store, world.tenant, tenant, monthly=False, now=world.clock.now())
        return Play(world, act, tap, erp.found, verdict), erp

    return make


PAID = Arrival("e1", "paid", {"amount": 9})
ROOM = 120
"""History events that make a map of four items fall into two parts."""


def posting(
    *plans: StepPlan, room: int = ROOM, slots: int = 10, budget: Limits = bodies.BUDGET
) -> Callable[[Tap], Any]:
    """Return a route whose steps post documents, in child runs, or one after the other for want of slots."""

    def make(tap: Tap) -> tuple[Play, Erp]:
        erp = Erp()
        tools = FakeTools({"post": erp.post, "void": erp.void, "find": erp.find, "bad": refuse})
        made = replace(bodies.manifest(*plans, budget=budget), max_parallel=slots)
        world = World(compile_manifest(made, room), FakeModels(lambda _: ""), tools)
        assert world.unit.manifest.slots or any(plan.split or plan.apart for plan in plans_of(world))
        return Play(world, lambda _: None, tap, erp.mine), erp

    return make


def plans_of(world: World) -> list[StepPlan]:
    """Return the plans of the workflow's own steps, which tell whether it has child runs."""
    return list(world.unit.manifest.steps.values())


def post(name: str = "post", *needs: str) -> StepPlan:
    undo = {"tool": "void", "with": {"document": f"${{ steps.{name}.output.document }}"}}
    call = {"tool": "post", "with": {"say": "x"}, "compensate": undo, "reconcile": FIND}
    retry = Retry(1, on=("timeout", "transient"))
    return bodies.plan(name, "tool", needs, spec=call, risk="reversible", retry=retry)


def items(*, end: int = 4, **more: Any) -> StepPlan:
    made = bodies.each(post(), over=[0] * end, on_failure="fail_fast", **more)
    return replace(made, spec={**made.spec, "max_concurrency": 2, "max_items": end})


def own(step: StepPlan, *, timeout: float = float(YEAR), **budget: Any) -> StepPlan:
    return replace(step, apart=True, timeout=timeout, budget=Limits(**budget))


def ask() -> StepPlan:
    spec = {"approves": None, "approvers": ["finance"], "on_expiry": "reject"}
    return bodies.plan("ask", "human_gate", ("post",), spec=spec, timeout=10 * 86_400.0, retry=Retry(2))


def asking(step: StepPlan) -> StepPlan:
    """Return the map with somebody to be asked, after what it posts, who never answers."""
    return replace(step, body=bodies.body(post(), ask()), on_error="fail")


class SecondTime(Play):
    """A run of whose child people are asked: they answer when it has timed out and goes on with the retry."""

    def time_out(self, steps: list[Step]) -> None:
        if self.seen(steps[0].child or "").head.epoch == 1:
            super().time_out(steps)
        else:
            self.answer_below()

    def answer_below(self) -> None:
        for run in self.runs():
            if run != self.world.run and self.seen(run).head.epoch > 1:
                self.decide(Word("approved", FINANCE[0].email), run=run)


def bad(*needs: str) -> StepPlan:
    call = {"tool": "bad", "with": {}, "compensate": None, "reconcile": None}
    return bodies.plan("bad", "tool", needs, spec=call, on_error="fail")


def research(*, fails: bool = False, resumes: bool = False) -> Callable[[Tap], Any]:
    """Return a route through an agent whose model looks once and books twice, in two turns, and may fail then.

    It fails for good, or until people have resumed the run.
    """

    def make(tap: Tap) -> tuple[Play, agents.Shop]:
        shop = agents.Shop()
        booked = (agents.calls(agents.look(), agents.book("a")), agents.calls(agents.book("b")))
        unit = agents.compiled(on_error="fail" if fails else "pause")

        def last(_: Any) -> str:
            wrong = fails and not (resumes and world.head.epoch > 1)
            return "no JSON" if wrong else agents.says()

        world = agents.desk(*booked, last, shop=shop, unit=unit)
        return Play(world, lambda _: None, tap, shop.mine, resumes=resumes), shop

    return make


def resumed(*plans: StepPlan, room: int) -> Callable[[Tap], Any]:
    """Return a route that fails at its last step, is undone, and completes when people resume it."""

    def make(tap: Tap) -> tuple[Play, Erp]:
        erp = Erp()
        tools = FakeTools({"post": erp.post, "void": erp.void, "find": erp.find})
        world = World(compile_manifest(bodies.manifest(*plans), room), FakeModels(lambda _: ""), tools)

        def fails_at_first(*_: Any) -> str:
            if world.head.epoch == 1:
                raise PermanentFailure("The lines do not add up.")
            return "fine"

        tools._functions["bad"] = fails_at_first
        return Play(world, lambda _: None, tap, erp.mine, resumes=True), erp

    return make


def shape(
    *plans: StepPlan,
    templates: tuple[StepPlan, ...] = (),
    child: tuple[StepPlan, ...] = (),
    people: type[Play] = Play,
    **more: Any,
) -> Callable[[Tap], Any]:
    """Return a route through steps as they are, in one execution; ``child`` are the steps of a workflow beside."""

    def make(tap: Tap) -> tuple[Play, Erp]:
        erp = Erp()
        tools = FakeTools({"post": erp.post, "void": erp.void, "find": erp.find, "check": refuse_wrong, "busy": busy})
        whole = bodies.manifest(*plans)
        whole = replace(whole, steps={**whole.steps, **{one.id: one for one in templates}})
        world = World(compile_manifest(whole), FakeModels(busy_once()), tools)
        beside = [compile_manifest(bodies.manifest(*child, name="child", budget=Limits(steps=9)))] if child else []
        world.define(FixedDefinitions(world.unit.manifest, *(unit.manifest for unit in beside)))
        found = erp.by_hand if templates else erp.mine
        return people(world, lambda _: None, tap, found, beside=tuple(beside), **more), erp

    return make


def checked_items() -> StepPlan:
    """Return a map, in the run itself, of which one item fails before it posts."""
    call = {"tool": "check", "with": {"what": "${ thing }"}, "compensate": None, "reconcile": None}
    check = bodies.plan("check", "tool", (), spec=call, on_error="fail")
    return bodies.each(check, post("post", "check"), over=["good", "wrong"])


def child(*needs: str, timeout: float = float(YEAR), **more: Any) -> StepPlan:
    spec = {"workflow": "child", "version": None, "with": {}}
    return bodies.plan("sub", "sub_workflow", needs, spec=spec, timeout=timeout, **more)


def hopeless(fallback: str) -> StepPlan:
    """Return a step that fails however often it is tried, and that another one stands in for."""
    call = {"tool": "busy", "with": {}, "compensate": None, "reconcile": None}
    return bodies.plan("try", "tool", (), spec=call, retry=Retry(1), fallback=fallback)


def event() -> StepPlan:
    spec = {"event": {"name": "paid", "match": "event.amount > 5", "timeout": 3600.0}}
    return bodies.plan("paid", "wait", (), timeout=3600.0, spec=spec)


def agent() -> StepPlan:
    spec = {"model": ["claude-haiku-4-5"], "system": None, "prompt": "Write a line."}
    return bodies.plan("draft", "agent", (), spec=spec, retry=Retry(2), timeout=60.0)


def wrong(*needs: str) -> StepPlan:
    """Return a step that fails, and the run with it."""
    call = {"tool": "check", "with": {"what": "wrong"}, "compensate": None, "reconcile": None}
    return bodies.plan("wrong", "tool", needs, spec=call, on_error="fail")


def busy_once() -> Callable[[Any], str]:
    """Return a model that is busy when it is asked for the first time."""
    asked: list[Any] = []

    def answer(request: Any) -> str:
        asked.append(request)
        return "a line" if len(asked) > 1 else busy()

    return answer


def busy(*_: Any) -> Any:
    raise TransientFailure("Come back later.")


def refuse_wrong(arguments: dict[str, Any], _: Any) -> str:
    return refuse() if arguments["what"] == "wrong" else "fine"


def reject(play: Play) -> None:
    play.decide(Word("rejected", FINANCE[1].email, "duplicate"))


def refuse(*_: Any) -> Any:
    raise PermanentFailure("The lines do not add up.")


ROUTES = {
    "straight": Route(invoice(120, approve), "completed"),
    # No shard has enough for a run, so it takes from several.
    "tenant": Route(invoice(120, approve, tenant={"usd": 8 * 10**8, "steps": 41}), "completed"),
    "tenant cancel": Route(invoice(9000, Play.cancel, tenant={"usd": 8 * 10**8, "steps": 41}), "cancelled"),
    "approve": Route(invoice(9000, approve), "completed"),
    "reject": Route(invoice(9000, reject), "failed"),
    "expire": Route(invoice(9000, Play.expire), "failed"),
    "cancel": Route(invoice(9000, Play.cancel), "cancelled"),
    "give up": Route(invoice(120, approve, "fail", check_invoice=refuse), "failed"),
    **PAYMENTS,
    "parts": Route(posting(items()), "completed"),
    "undone parts": Route(posting(items(), bad("each")), "failed"),
    "looped parts": Route(posting(bodies.loop(post(), until="loop.iteration >= 3", times=4)), "completed"),
    "agent": Route(research(), "completed"),
    "undone agent": Route(research(fails=True), "failed"),
    "resumed agent": Route(research(fails=True, resumes=True), "completed"),
    "resumed": Route(resumed(post(), bad("post"), room=10_000), "completed"),
    "resumed parts": Route(resumed(items(), bad("each"), room=ROOM), "completed"),
    "budget": Route(
        posting(own(items(end=3), steps=4), room=10_000, budget=replace(bodies.BUDGET, steps=5)), "completed"
    ),
    "split budget": Route(posting(own(items(), steps=8), room=150), "completed"),
    "time-out": Route(posting(own(asking(items(end=2)), timeout=3600.0), room=10_000), "failed"),
    "slots": Route(posting(post("a"), post("b"), post("c"), slots=1, room=10_000), "completed"),
    "map": Route(shape(checked_items()), "completed"),
    "loop": Route(shape(bodies.loop(post(), until="loop.iteration >= 2", times=3)), "completed"),
    "sub-workflow": Route(shape(child(), child=(post(),)), "completed"),
    "undone sub-workflow": Route(shape(post("first"), child("first"), wrong("sub"), child=(post(),)), "failed"),
    "retried sub-workflow": Route(
        shape(child(timeout=3600.0, retry=Retry(1, on=("timeout",))), child=(post(), ask()), people=SecondTime),
        "completed",
    ),
    # The branch of the await comes first, so that it waits when the other source settles.
    "await": Route(shape(post("a"), post("b"), post("c", "b"), post("d", "a", "b")), "completed"),
    "fallback": Route(shape(hopeless("post"), templates=(post(),)), "completed"),
    "undone fallback": Route(shape(hopeless("post"), wrong("try"), templates=(post(),)), "failed"),
    "event": Route(shape(event(), post("post", "paid"), sends=PAID), "completed"),
    "early event": Route(shape(event(), post("post", "paid"), sends=PAID, early=True), "completed"),
    "goes on": Route(shape(replace(post("a"), on_error="continue"), post("b", "a")), "completed"),
    "plain agent": Route(shape(agent()), "completed"),
}


def made(route: str, tap: Tap, healers: tuple[str, ...] = ("stream", "finalise")) -> tuple[Play, Any]:
    """Return the route's play, where these see to what dead processes have left, and its far side."""
    play, far_side = ROUTES[route].make(tap)
    play.healers = healers
    return play, far_side


@cache
def calls_of(route: str, *healers: str) -> tuple[str, ...]:
    """Return the calls that the route makes when nothing goes wrong."""
    play, _ = made(route, tap := Tap(), healers or ("stream", "finalise"))
    play.to_the_end()
    return tuple(tap.calls)
