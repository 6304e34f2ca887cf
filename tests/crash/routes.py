"""The routes of a run, each with its fakes, what a person does, and how it must end."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import agents
import bodies
import invoices
from faults import Tap
from machine import FINANCE, World
from play import Play

from shared.budget.tenant import set_limits
from shared.compiler import compile_manifest
from shared.errors import PermanentFailure
from shared.manifest import YEAR, Edge, Limits, Manifest, Retry, StepPlan
from shared.runtime.gates import Word
from shared.testing import FakeModels, FakeTools

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.budget.shards import Amounts
    from shared.runtime.parking import Resumption


class Erp:
    """The far side: one document a key, however often it is asked."""

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}

    def post(self, _: Any, call: Any) -> dict[str, Any]:
        return {"document": self._put(call.idempotency_key)}

    def _put(self, key: str) -> str:
        self.documents.setdefault(f"D-{key[:8]}", "posted")
        return f"D-{key[:8]}"

    def void(self, arguments: dict[str, Any], _: Any) -> dict[str, Any]:
        self.documents[arguments["document"]] = "void"
        return {"document": arguments["document"], "status": "void"}

    def find(self, arguments: dict[str, Any], _: Any) -> dict[str, Any]:
        document = f"D-{arguments['key'][:8]}"
        there = document in self.documents
        return {"count": int(there), "document": document if there else ""}

    def found(self, step: Any) -> Any:
        document = next(iter(self.documents), None)
        return {"document": document} if document else None

    def mine(self, step: Any) -> Any:
        document = f"D-{step.call.key[:8]}" if step.call else ""
        return {"document": document} if document in self.documents else None

    @property
    def live(self) -> int:
        return sum(status == "posted" for status in self.documents.values())


class Bank:
    """A far side without keys: every call that arrives is one more transfer."""

    def __init__(self) -> None:
        self.transfers = 0

    def pay(self, *_: Any) -> dict[str, Any]:
        self.transfers += 1
        return {"transfer": self.transfers}

    def find(self, *_: Any) -> dict[str, Any]:
        return {"transfer": self.transfers, "count": self.transfers}

    def found(self, _: Any) -> Any:
        return {"transfer": 1} if self.transfers else None

    @property
    def live(self) -> int:
        return self.transfers


@dataclass(frozen=True)
class Route:
    """One way through a workflow: ``make`` builds it, ``ends`` are the states it may end in without a cancel."""

    make: Callable[[Tap], tuple[Play, Any]]
    ends: str


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


def payment(
    act: Callable[[Play], None], *, doubt: Resumption = "skip", reconcile: dict[str, Any] | None = None
) -> Callable[[Tap], Any]:
    """Return a route through a gate to an irreversible call; ``doubt`` is what people say of one that is not there."""

    def make(tap: Tap) -> tuple[Play, Bank]:
        bank = Bank()
        spec = {"approves": "pay", "approvers": ["finance"], "on_expiry": "reject"}
        gate = StepPlan(
            "g", "human_gate", (), dependents=("pay",), timeout=3600.0, on_error="fail", spec=spec, retry=Retry(2)
        )
        call = {"tool": "pay", "with": {"sum": 5}, "compensate": None, "reconcile": reconcile}
        pay = StepPlan("pay", "tool", (Edge("g"),), risk="irreversible", approved_by="g", spec=call)
        limits = Limits(usd=10**9, tokens=1000, steps=9, active_time=600.0)
        manifest = Manifest("w", "", {"type": "object"}, limits, {"g": gate, "pay": pay}, ("g", "pay"))
        world = World(
            compile_manifest(manifest), FakeModels(lambda _: ""), FakeTools({"pay": bank.pay, "find": bank.find})
        )
        return Play(world, act, tap, bank.found, doubt=doubt), bank

    return make


FIND = {"tool": "find", "with": {"key": "${ call.idempotency_key }"}, "found": "result.count > 0"}
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


def asking(step: StepPlan) -> StepPlan:
    """Return the map with somebody to be asked, after what it posts, who never answers."""
    spec = {"approves": None, "approvers": ["finance"], "on_expiry": "reject"}
    gate = bodies.plan("ask", "human_gate", ("post",), spec=spec, timeout=10 * 86_400.0, retry=Retry(2))
    return replace(step, body=bodies.body(post(), gate), on_error="fail")


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


def approve(play: Play) -> None:
    play.decide(Word("approved", FINANCE[0].email))


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
    "pay": Route(payment(approve), "completed"),
    "pay, denied": Route(payment(approve, doubt="did_not_happen"), "completed"),
    "pay, probed": Route(payment(approve, reconcile=FIND | {"with": {}}), "completed"),
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
}


def made(route: str, tap: Tap, healers: tuple[str, ...] = ("stream", "finalise")) -> tuple[Play, Any]:
    """Return the route's play, where these see to what dead processes have left, and its far side."""
    play, far_side = ROUTES[route].make(tap)
    play.healers = healers
    return play, far_side


def calls_of(route: str, *healers: str) -> tuple[str, ...]:
    """Return the calls that the route makes when nothing goes wrong."""
    play, _ = made(route, tap := Tap(), healers or ("stream", "finalise"))
    play.to_the_end()
    return tuple(copy.copy(tap.calls))
