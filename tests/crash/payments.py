"""Routes on which somebody approves an irreversible payment: in time and too late, changed, in a map, resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bodies
from far_sides import Bank, Transfers
from machine import FINANCE, LEADS, World
from play import Play
from route import Route

from shared.compiler import compile_manifest
from shared.errors import PermanentFailure, TransientFailure
from shared.manifest import Edge, Limits, Manifest, Retry, StepPlan
from shared.runtime.gates import Word
from shared.testing import FakeModels, FakeTools

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults import Tap

    from shared.runtime.parking import Resumption


CHANGED = 4
TIERS: dict[str, Any] = {"remind_after": 3600.0, "escalate": [{"after": 40_000.0, "to": ["finance_lead"]}]}
EDIT = {"type": "object", "properties": {"sum": {"type": "integer"}}}
FIND = {"tool": "find", "with": {"key": "${ call.idempotency_key }"}, "found": "result.count > 0"}


def payment(
    act: Callable[[Play], None],
    *,
    doubt: Resumption = "skip",
    reconcile: dict[str, Any] | None = None,
    pays: int = 5,
    timeout: float = 3600.0,
    **gate: Any,
) -> Callable[[Tap], Any]:
    """Return a route through a gate to an irreversible call; ``doubt`` is what people say of one that is not there.

    ``pays`` is what is paid in the end.
    """

    def make(tap: Tap) -> tuple[Play, Bank]:
        bank = Bank(pays)
        spec = {"approves": "pay", "approvers": ["finance"], "on_expiry": "reject", **gate}
        asked = StepPlan(
            "g", "human_gate", (), dependents=("pay",), timeout=timeout, on_error="fail", spec=spec, retry=Retry(2)
        )
        call = {"tool": "pay", "with": {"sum": 5}, "compensate": None, "reconcile": reconcile}
        pay = StepPlan("pay", "tool", (Edge("g"),), risk="irreversible", approved_by="g", spec=call)
        limits = Limits(usd=10**9, tokens=1000, steps=9, active_time=600.0)
        manifest = Manifest("w", "", {"type": "object"}, limits, {"g": asked, "pay": pay}, ("g", "pay"))
        world = World(
            compile_manifest(manifest), FakeModels(lambda _: ""), FakeTools({"pay": bank.pay, "find": bank.find})
        )
        return Play(world, act, tap, bank.found, doubt=doubt), bank

    return make


def approve(play: Play) -> None:
    play.decide(Word("approved", FINANCE[0].email))


def two_approve(play: Play) -> None:
    """Two people, of whom the first changes what is paid. Each looks first, and says what they say twice."""
    for person in FINANCE:
        gate = play.asks()
        if gate:
            changes = None if gate.changes else {"sum": CHANGED}
            play.decide(Word("approved", person.email, digest=gate.digest, changes=changes))


def lead_approves(play: Play) -> None:
    """Nobody decides: those who were asked are reminded, the next tier begins, and its person approves."""
    gate = play.asks()
    for seconds in (TIERS["remind_after"], TIERS["escalate"][0]["after"]) if gate else ():
        play.let_come(gate.opened + int(seconds * 1000))
    if play.asks():
        play.decide(Word("approved", LEADS[0].email))


def approve_all(play: Play) -> None:
    """Approve whatever is open, as often as something is."""
    for gate in [gate for gate in play.world.records.gates() if gate.status == "open"]:
        play.decide(Word("approved", FINANCE[0].email), gate.path)
    play.acted = False


def asks(*needs: str) -> StepPlan:
    spec = {"approves": "pay", "approvers": ["finance"], "on_expiry": "reject"}
    return bodies.plan("g", "human_gate", needs, spec=spec, timeout=3600.0, on_error="fail", retry=Retry(2))


def pays(**more: Any) -> StepPlan:
    spec = {"tool": "pay", "with": {"sum": 5}, "compensate": None, "reconcile": None}
    return bodies.plan("pay", "tool", ("g",), risk="irreversible", approved_by="g", spec=spec, retry=Retry(0), **more)


def each(*plans: StepPlan) -> StepPlan:
    return bodies.each(*plans, over=[1, 2], on_failure="fail_fast", on_error="fail")


def again(*plans: StepPlan) -> StepPlan:
    return bodies.loop(*plans, until="loop.iteration >= 2", times=3, on_error="fail")


def paying(*plans: StepPlan, model: str = "", **play: Any) -> Callable[[Tap], Any]:
    """Return a route through these steps. What is called when the run is ``resumed`` first fails for good before that.

    What was looked up once is busy the first time.
    """

    def make(tap: Tap) -> tuple[Play, Transfers]:
        bank, busy = Transfers(), [True]
        tools = FakeTools({"pay": bank.pay})
        made = compile_manifest(bodies.manifest(*plans))
        world = World(made, FakeModels(lambda _: model), tools, breaks=True)

        def look(*_: Any) -> str:
            if busy.pop() if busy else False:
                raise TransientFailure("Come back later.")
            return "fine"

        def pay(arguments: dict[str, Any], call: Any) -> dict[str, Any]:
            if play.get("resumes") and world.head.epoch == 1:
                raise PermanentFailure("The account is closed.")
            return bank.pay(arguments, call)

        tools._functions |= {"look": look, "pay": pay}
        return Play(world, approve_all, tap, bank.found, doubt="did_not_happen", **play), bank

    return make


LOOK = bodies.plan(
    "look", "tool", spec={"tool": "look", "with": {}, "compensate": None, "reconcile": None}, retry=Retry(2)
)
WAIT = bodies.plan("wait", "wait", ("look",), spec={"for": 60})
CHOICE = {"strategy": "llm", "model": ["claude-haiku-4-5"], "prompt": "Which?", "default": "g"}
ROUTER = bodies.plan("choose", "router", spec={**CHOICE, "routes": [{"to": "g", "description": "pay"}]}, retry=Retry(2))
PAYMENTS = {
    "pay": Route(payment(approve), "completed"),
    "pay, two people": Route(payment(two_approve, pays=CHANGED, edit=EDIT, quorum=2), "completed"),
    "pay, escalated": Route(payment(lead_approves, timeout=10 * 86_400.0, **TIERS), "completed"),
    "pay, denied": Route(payment(approve, doubt="did_not_happen"), "completed"),
    "pay, probed": Route(payment(approve, reconcile=FIND | {"with": {}}), "completed"),
    "pay, by expiry": Route(payment(Play.expire, on_expiry="approve"), "completed"),
    "pay, cancelled": Route(payment(Play.cancel), "cancelled"),
    "pay, resumed": Route(paying(asks(), pays(on_error="fail"), resumes=True), "completed"),
    "pay in a map": Route(paying(each(asks(), pays())), "completed"),
    "pay in a map, resumed": Route(paying(each(asks(), pays(on_error="fail")), resumes=True), "completed"),
    "pay in a loop": Route(paying(again(asks(), pays())), "completed"),
    "look, wait, pay": Route(paying(LOOK, WAIT, asks("wait"), pays()), "completed"),
    "choose, pay": Route(paying(ROUTER, asks("choose"), pays(), model="g"), "completed"),
}
