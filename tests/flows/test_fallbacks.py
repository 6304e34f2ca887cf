"""What stands in for a step that has failed: once it was chosen, the step itself does nothing any more."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from bodies import BUDGET, body, each, manifest, output, plan, task, tool
from bodies import world as bodies_world
from invariants import check
from machine import UNWIND, Killed, World

from shared.compiler import compile_manifest
from shared.errors import PermanentFailure, ServiceHeld, TransientFailure
from shared.ids import sha256
from shared.ledger.seal import Seal, SealedStore
from shared.manifest import Limits, Retry
from shared.runtime.parking import Order, resume_step
from shared.runtime.raising import Raise
from shared.runtime.steps import NotOpened
from shared.testing import FakeModels, FakeTools, MemoryStore

MODEL = "claude-haiku-4-5"


def world(*steps, do, stand_in=None, slots=1000, model=lambda _: "yes", **more):
    made = manifest(*steps, **more)
    made = replace(made, steps={**made.steps, "f": stand_in or tool("f")}, max_parallel=slots)
    return World(compile_manifest(made), FakeModels(model), FakeTools({"do": do}))


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
@pytest.mark.parametrize("on_error", ["pause", "continue"])
def test_a_late_delivery_of_the_step_does_not_work_beside_its_fallback(moment, on_error):
    """It was called once more, beside its fallback; its result settled it, and was then exchanged for the other."""
    told = []

    def late():
        run = {"id": w.run, "tenant": w.tenant, "workflow": "w", "version": 1, "epoch": 1}
        with suppress(NotOpened):
            w.call("${StepFunction}", {"run": run, "op": "run", "step": "a", "entered": "0"})

    def do(arguments, _):
        told.append(arguments["say"])
        if told == ["a"]:
            raise PermanentFailure("no")
        if told[-1] == "f" and moment == "meanwhile":
            late()
        return arguments["say"]

    def begins(writes):
        if moment == "before" and any(one.key.sk == "STEP#a/fallback" for one in writes):
            w.store.before_commit = lambda _: None
            late()

    w = world(tool("a", fallback="f", on_error=on_error), tool("b", "a"), do=do)
    w.store.before_commit = begins
    assert w.start({}).status == "SUCCEEDED"
    assert (told, output(w, "a"), w.records.step("a").by) == (["a", "f", "b"], "f", "fallback")
    check(w)


@pytest.mark.parametrize(("rule", "status"), [("pause", "paused"), ("continue", "failed")])
def test_a_late_delivery_of_a_fallback_changes_nothing_once_it_has_failed(rule, status):
    """It was called once more, and its step, of which a person was asked or that had settled, completed by it."""
    given = []
    do = no("f", error=PermanentFailure, times=1)
    w = world(tool("a", fallback="f", on_error=rule), tool("b", "a"), do=do)
    call = w.call
    w.call = lambda function, event: given.append((function, event)) or call(function, event)
    run = w.start({})
    (late,) = [one for one in given if one[1]["op"] == "fallback"]
    with suppress(NotOpened):
        call(*late)
    assert (w.records.step("a").status, do.told) == (status, ["a", "f"])
    assert run.status == ("RUNNING" if rule == "pause" else "SUCCEEDED")
    check(w)


def no(*busy, error=TransientFailure, times=1000):
    """Return a tool that refuses ``a``, and so many times what is ``busy``; ``do.told`` is what it was called with."""

    def do(arguments, _):
        do.told.append(arguments["say"])
        if arguments["say"] == "a" or (arguments["say"] in busy and do.told.count(arguments["say"]) <= times):
            raise PermanentFailure("no") if arguments["say"] == "a" else error("busy")
        return arguments["say"]

    do.told = []
    return do


# the cascade of its own attempts


@pytest.mark.parametrize("risk", ["read", "reversible"])
@pytest.mark.parametrize(("times", "by"), [(2, "fallback"), (3, None)])
def test_a_fallback_is_tried_as_often_as_its_own_policy_says(times, by, risk):
    """It had one attempt, whatever its `retry` said: one busy moment of the far side was a failed step."""
    do = no("f", times=times)
    f = changes(tool("f", retry=Retry(2, base_delay=3.0, jitter=False)), risk)
    w = world(tool("a", fallback="f", on_error="continue"), tool("b", "a"), do=do, stand_in=f)
    before = w.clock.now()
    run = w.start({})
    if by is None and risk == "reversible":  # nobody knows whether the last one happened
        assert (w.records.step("a").status, do.told) == ("unknown", ["a", "f", "f", "f"])
        check(w)
        return
    assert run.status == "SUCCEEDED"
    assert do.told == ["a", "f", "f", "f", *(["b"] if by else [])]
    assert len({call.idempotency_key for _, given, call in w.tools.calls if given["say"] == "f"}) == 1
    assert w.clock.now() - before >= 9000
    assert (w.records.step("a").by, w.records.step("a/fallback").retries) == (by, 2)
    check(w)


def changes(plan, risk):
    if risk == "read":
        return plan
    spec = {**plan.spec, "compensate": {"tool": "do", "with": {"say": "undo"}}}
    return replace(plan, risk=risk, spec=spec)


def test_a_lost_call_of_a_fallback_is_looked_for_before_it_is_repeated():
    """A person was asked at once what became of it, although its definition says how to find out."""
    told = []

    def do(arguments, call):
        told.append(arguments["say"])
        if arguments["say"] == "a":
            raise PermanentFailure("no")
        if arguments["say"] == "f":
            raise Killed  # after it has happened
        return {"count": 1}

    f = changes(tool("f", retry=Retry(1)), "reversible")
    f.spec["reconcile"] = {"tool": "do", "with": {"say": "find"}, "found": "result.count == 1"}
    w = world(tool("a", fallback="f"), do=do, stand_in=f)
    assert w.start({}).status == "SUCCEEDED"
    assert (told, w.records.step("a").by, w.records.step("a/fallback").by) == (
        ["a", "f", "find"],
        "fallback",
        "reconcile",
    )
    check(w)


@pytest.mark.parametrize("rule", ["pause", "continue", "fail"])
@pytest.mark.parametrize("level", ["run", "step"])
def test_a_fallback_that_the_budget_refuses_waits_for_more_of_it(rule, level):
    """The step failed of it, whatever was wrong before, and nobody was asked."""
    limits = replace(BUDGET, steps=1) if level == "run" else BUDGET
    f = tool("f", budget=Limits(steps=0) if level == "step" else Limits())
    w = world(tool("a", fallback="f", on_error=rule), do=no(), budget=limits, stand_in=f)
    run = w.start({})
    assert (w.head.state, w.records.step("a").reason) == ("paused", "budget_exceeded")
    paused = next(event for event in w.journal.events() if event.type == "step_paused")
    assert (paused.data["level"], paused.data["dimension"]) == (level, "steps")
    check(w)
    resume_step(w.steps, task(w, "a"), Order("retry", "ops", more=Raise(steps=2)), UNWIND)
    assert run.go().status == "SUCCEEDED"
    assert w.records.step("a").by == "fallback"
    check(w)


@pytest.mark.parametrize("rule", ["continue", "fail"])
def test_a_fallback_that_reads_what_somebody_else_wrote_pauses_its_step(rule):
    """Its step failed by its policy: who had tampered with the output was told to nobody."""
    made = manifest(tool("z"), tool("a", "z", fallback="f", on_error=rule))
    made = replace(made, steps={**made.steps, "f": tool("f", say="${ steps.z.output }")})
    store = SealedStore(MemoryStore(), Seal.of("key"))
    do = no()

    def tampers(arguments, call):
        if arguments["say"] == "a":
            key = next(key for key in store._store.items if key.sk == "STEP#z")
            text = '"forged"'
            output = {"digest": sha256(text.encode()), "size": len(text), "text": text, "blob": None}
            store._store.items[key] = {**store._store.items[key], "output": output}
        return do(arguments, call)

    w = World(compile_manifest(made), FakeModels(lambda _: ""), FakeTools({"do": tampers}), store=store)
    w.start({})
    assert (w.head.state, w.records.step("a").reason) == ("paused", "attestation_mismatch")


def test_a_fallback_waits_with_the_breaker_of_its_service():
    """It failed its step at once where any other step waits until the service works again."""
    do = no()
    w = world(tool("a", fallback="f", on_error="continue"), do=do)
    failure = ServiceHeld("do", retry_after=30)

    class Holds:
        held = 3

        def check(self, ask):
            if ask.path == "a/fallback" and self.held:
                self.held -= 1
                raise failure

        def note(self, *_):
            """Hear nothing."""

    object.__setattr__(w.steps, "breakers", Holds())
    assert w.start({}).status == "SUCCEEDED"
    assert (do.told, w.records.step("a").by) == (["a", "f"], "fallback")
    check(w)


@pytest.mark.parametrize("rule", ["continue", "fail", "pause"])
def test_an_attempt_of_an_items_fallback_that_is_lost_is_closed(rule):
    """Where the item failed of it, its record stayed open for ever, with its hold: the costs did not add up."""

    def dies(arguments, _):
        if arguments["say"] == "a":
            raise PermanentFailure("no")
        raise Killed

    inside = body(tool("a", fallback="f", on_error=rule))
    w = bodies_world(replace(each(over=[1, 2]), body=replace(inside, steps={**inside.steps, "f": tool("f")})), do=dies)
    w.start({})
    lost = w.records.step("each[0]/a/fallback")
    assert (lost.open, lost.status, lost.spent.steps) == (False, "failed", 1)
    check(w)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_fallback_that_died_before_it_began_stands_in_when_a_person_has_its_step_tried_again(retries):
    """Where it waits for a slot it was cancelled for good: the step then failed without it."""
    f = tool("f", retry=Retry(retries, jitter=False))
    w = world(tool("a", fallback="f", on_error="pause"), tool("z"), do=no("f", times=retries), slots=1, stand_in=f)
    opened = []

    def dies(writes):
        opens = any(one.key.sk == "STEP#a/fallback" and one.item["status"] == "running" for one in writes)
        opened.extend([opens] * opens)
        if opens and len(opened) > retries and not healed:
            raise Killed

    healed = []
    w.store.before_commit = dies
    run = w.start({})
    assert (w.records.step("a").status, w.records.step("a/fallback").open) == ("paused", False)
    check(w)
    healed.append(True)
    resume_step(w.steps, task(w, "a"), Order("retry", "ops"), UNWIND)
    assert run.go().status == "SUCCEEDED"
    assert (w.records.step("a").by, w.head.slots) == ("fallback", 0)
    check(w)


@pytest.mark.parametrize("kind", ["agent", "tool", "transform"])
@pytest.mark.parametrize(("chosen", "taken"), [("x", ["x"]), ("y", ["y"]), ("elsewhere", [])])
def test_what_stands_in_for_a_router_says_which_route_is_taken(kind, chosen, taken):
    """The router completed without a route: everything behind it was skipped, and the run had completed."""
    routes = {"strategy": "llm", "prompt": "", "model": [MODEL], "routes": [{"to": "x"}], "default": "y"}
    router = plan("r", "router", spec=routes, fallback="f", on_error="pause", timeout=60.0)
    specs = {
        "agent": {"model": [MODEL], "system": None, "prompt": "spare"},
        "tool": tool("f").spec,
        "transform": {"set": {"route": chosen}},
    }

    def model(request):
        if "spare" not in request.prompt:
            raise PermanentFailure("down")
        return json.dumps({"route": chosen})

    w = world(
        router,
        tool("x", "r"),
        tool("y", "r"),
        do=lambda given, _: {"route": chosen} if given["say"] == "f" else "done",
        model=model,
        stand_in=plan("f", kind, spec=specs[kind], timeout=60.0),
    )
    run = w.start({})
    assert [name for name in "xy" if (w.records.step(name) or w.records.step("r")).status == "completed"] == taken
    assert (run.status, w.head.state) == (("SUCCEEDED", "completed") if taken else ("RUNNING", "paused"))
    check(w)
