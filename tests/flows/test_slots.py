"""Slots, over fakes: never more steps at work at once than ``max_parallel`` allows, and nobody is forgotten."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from bodies import each, loop, manifest, plan, refuse, said, task, tool
from invariants import check
from machine import Execution, Killed, World
from test_resume import Versions

from shared.asl.names import cascaded, fallback, standby
from shared.compiler import compile_manifest
from shared.errors import PermanentFailure, TransientFailure
from shared.ledger.records import Park
from shared.manifest import Retry
from shared.runtime.ending import request
from shared.runtime.host import Published
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.settle import register
from shared.runtime.slots import give_slots
from shared.testing import FakeModels, FakeTools


def world(*plans, slots, do=None):
    unit = compile_manifest(replace(manifest(*plans), max_parallel=slots))
    return World(unit, FakeModels(lambda _: "yes"), FakeTools({"do": do or (lambda given, _: given["say"])}))


def waiting(w):
    return sorted(park.path for park in w.records.parks() if park.kind == "slot" and not park.answer)


def wide(count, **more):
    names = [f"s{n}" for n in range(count)]
    return *(tool(name, **more) for name in names), tool("last", *names)


def slotted(unit, steps=None):
    for name, plan_ in (steps or unit.manifest.steps).items():
        if plan_.slot:
            yield name, plan_.slot
        if plan_.body:
            yield from slotted(unit, plan_.body.steps)


def test_where_nothing_can_be_too_many_there_is_no_await():
    unit = compile_manifest(replace(manifest(*wide(3)), max_parallel=3))
    assert not list(slotted(unit))
    assert not unit.manifest.slots
    assert not any("slot" in name for name in unit.asl["States"])


def test_the_longest_way_goes_first():
    plans = tool("a"), tool("b"), tool("c"), tool("b2", "b"), tool("c2", "c"), tool("c3", "c2")
    unit = compile_manifest(replace(manifest(*plans), max_parallel=2))
    assert dict(slotted(unit)) == {"a": 1, "b": 2, "c": 3, "b2": 1, "c2": 2, "c3": 1}


def test_steps_inside_bodies_wait_too_where_their_items_are_too_many():
    inner = each(tool("x"), tool("y"), over="${ input.list }")
    inner = replace(inner, spec={**inner.spec, "max_concurrency": 4})
    assert {name for name, _ in slotted(compile_manifest(replace(manifest(inner), max_parallel=7)))} == {"x", "y"}
    assert not list(slotted(compile_manifest(replace(manifest(inner), max_parallel=8))))


def most_at_once(w):
    open_, most = 0, 0
    for event in w.journal.events():
        open_ += (event.type == "step_opened") - (event.type in {"step_completed", "step_failed", "attempt_lost"})
        most = max(most, open_)
    return most


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_no_more_are_at_work_than_there_are_slots(slots):
    w = world(*wide(7), slots=slots)
    assert w.start({}).status == "SUCCEEDED"
    assert sorted(said(w)) == ["last", *(f"s{n}" for n in range(7))]
    assert most_at_once(w) <= slots
    assert w.head.slots == 0
    check(w)


@pytest.mark.parametrize("seed", range(40))
def test_any_graph_ends_within_its_slots(seed):
    dice = random.Random(seed)  # noqa: S311 - no secret
    names = [f"s{n}" for n in range(dice.randint(4, 12))]
    plans = [
        tool(name, *dice.sample(names[:n], dice.randint(0, min(n, 3))), join=dice.choice(["all", "all", "any"]))
        for n, name in enumerate(names)
    ]
    slots = dice.randint(1, 3)
    w = world(*plans, slots=slots, do=refuse(*(names[-1:] if seed % 3 else ())))
    assert w.start({}).status in {"SUCCEEDED", "RUNNING"}
    assert most_at_once(w) <= slots
    assert (w.head.slots, waiting(w)) == (0, [])
    assert w.head.state == ("paused" if w.head.paused else "completed")
    check(w)


def test_a_slot_is_given_up_between_attempts_and_by_what_stands_in():
    tries = []

    def do(given, _):
        tries.append(given["say"])
        if given["say"] == "s0" or (tries.count(given["say"]) == 1 and given["say"] in {"s1", "s2"}):
            raise TransientFailure("busy")
        return given["say"]

    retry = Retry(max_retries=1, base_delay=1.0, jitter=False)
    first = replace(tool("s0"), retry=retry, fallback="help")
    plans = first, tool("s1", retry=retry), tool("s2", retry=retry), tool("last", "s0", "s1", "s2"), tool("help")
    made = manifest(*plans)
    made = replace(made, order=tuple(name for name in made.order if name != "help"), max_parallel=1)
    w = World(compile_manifest(made), FakeModels(lambda _: "yes"), FakeTools({"do": do}))
    assert w.start({}).status == "SUCCEEDED"
    assert w.records.step("s0").by == "fallback"
    assert w.head.slots == 0
    check(w)


def test_a_paused_step_holds_no_slot():
    w = world(*wide(4, on_error="pause"), slots=1, do=refuse("s0"))
    w.start({})
    assert {step.path: step.status for step in w.records.steps()} == {
        "s0": "paused", "s1": "completed", "s2": "completed", "s3": "completed",
    }  # fmt: skip
    assert (waiting(w), w.head.slots) == ([], 0)
    check(w)


def test_who_waits_for_a_slot_is_released_when_the_run_ends():
    stopped = []

    def do(given, _):
        if not stopped:
            stopped.append(given["say"])
            request(w.steps, w.journal, "cancelled", "by ops", "machine:unwind")
        return given["say"]

    w = world(*wide(5), slots=1, do=do)
    run = w.start({})
    assert w.unwind().status == "SUCCEEDED"
    assert run.go().status != "RUNNING"
    assert (w.head.state, len(said(w)), w.head.slots) == ("cancelled", 1, 0)
    check(w)


def test_what_waited_for_a_slot_in_an_earlier_epoch_gets_none_before_it_waits_again():
    """A step that has not been reached yet kept the only place from those that it needs, and all waited for ever."""
    registered = []

    def do(given, _):
        if given["say"] == "bad" and w.head.epoch == 1:
            register(w.journal, Park(path="late/slot", kind="slot", token="old", entry="000001|9|0000"), [])
            registered.extend(waiting(w))
            raise PermanentFailure("no")
        return given["say"]

    w = world(tool("bad", on_error="fail"), tool("first"), tool("late", "first"), slots=1, do=do)
    w.start({})
    w.unwind()
    assert registered == ["late/slot"]
    resume_run(w.steps, w.journal, Resume("ops"))
    give_slots(w.steps, task(w, "bad"))
    assert (w.head.slots, w.records.step("late")) == (0, None)
    assert w.execution().status == "SUCCEEDED"
    check(w)


def test_who_waited_for_a_slot_and_is_gone_in_the_version_that_goes_on_is_forgotten():
    stopped = []

    def do(given, _):
        if not stopped:
            stopped.append(request(w.steps, w.journal, "cancelled", "by ops", "machine:unwind"))
        return given["say"]

    w = world(tool("a"), tool("b"), tool("old"), slots=1, do=do)
    run = w.start({})
    w.unwind()
    run.go()
    assert waiting(w)
    mended = replace(manifest(tool("a"), tool("c"), tool("d")), max_parallel=1, hash="mended")
    fresh = Published("w", 2, mended.hash, "machine:w:2", mended)
    w.define(Versions(w.unit.manifest, fresh))
    resume_run(w.steps, w.journal, Resume("ops", fresh))
    started = w.engine.executions[fresh.machine, f"{w.run}.2"]
    assert Execution(w, compile_manifest(mended).asl, started).status == "SUCCEEDED"
    assert (w.head.ended, said(w)) == ("completed", ["a", "c", "d"])


def test_items_that_will_not_run_give_their_slots_back():
    inner = each(tool("x", say="${ string(thing) }", on_error="fail"), over="${ input.list }", on_failure="fail_fast",
                 on_error="continue")  # fmt: skip
    w = world(inner, tool("other"), plan("t", "transform", ("each",), spec={"set": {}}), slots=1, do=refuse("1"))
    assert w.start({"list": [0, 1, 2, 3]}).status == "SUCCEEDED"
    assert w.head.slots == 0
    check(w)


def test_nobody_in_a_failed_item_keeps_a_slot_from_the_others():
    inner = each(
        tool("a", say="${ 'a' + string(thing) }", on_error="fail"),
        tool("b", say="${ 'b' + string(thing) }"),
        tool("c", "b", say="c"),
        over="${ input.list }",
    )
    beside = [tool("p"), tool("q", "p"), tool("r", "q"), tool("s", "r"), tool("t", "s")]
    w = world(inner, *beside, slots=2, do=refuse("a1", "a2"))
    assert w.start({"list": [0, 1, 2, 3]}).status == "SUCCEEDED"
    assert (w.head.state, w.head.slots, waiting(w)) == ("completed", 0, [])
    check(w)


def test_a_stand_in_that_died_before_it_opened_is_tried_again_with_its_slot():
    first = replace(tool("s0", on_error="continue"), fallback="help")
    made = manifest(first, tool("s1"), tool("help", say="help"))
    made = replace(made, order=("s0", "s1"), max_parallel=1)
    w = World(compile_manifest(made), FakeModels(lambda _: "yes"), FakeTools({"do": refuse("s0")}))
    call, died = w.call, []

    def dying(function, event):
        if event["op"] == "fallback" and not died:
            died.append(event)
            raise Killed
        return call(function, event)

    w.call = dying
    assert w.start({}).status == "SUCCEEDED"
    assert w.records.step("s0").by == "fallback"
    assert w.head.slots == 0
    check(w)


GATE = {"approves": None, "approvers": ["finance"], "on_expiry": "reject"}
FAILING = {"set": {"x": "${ input.nothing }"}}
STOOD_IN = {
    "a gate": plan("x", "human_gate", spec=GATE, timeout=600.0, fallback="help"),
    "a transform": plan("x", "transform", spec=FAILING, fallback="help"),
    "an event": plan("x", "wait", spec={"event": {"name": "e", "match": None, "timeout": 9.0}}, fallback="help"),
    "a map": each(plan("t", "transform", spec=FAILING), over="${ input.list }", name="x", fallback="help"),
    "a loop": loop(plan("t", "transform", spec=FAILING), until="true", name="x", fallback="help"),
    "a sub-workflow": plan("x", "sub_workflow", spec={"workflow": "y", "with": {}}, fallback="help"),
    "a tool": tool("x", fallback="help"),
}


def standing_in(*plans, slots):
    made = manifest(*plans, tool("help"))
    return compile_manifest(replace(made, order=made.order[:-1], max_parallel=slots))


@pytest.mark.parametrize("first", STOOD_IN.values(), ids=STOOD_IN)
def test_what_stands_in_for_a_step_of_any_kind_waits_for_a_slot_where_others_are_at_work(first):
    """It was at work beside as many as may be wherever the step that it stood in for calls nothing itself."""
    alone = standing_in(first, tool("after", "x"), slots=1)
    assert (alone.manifest.slots, alone.manifest.steps["help"].slot) == (False, 0)
    crowded = standing_in(first, tool("beside"), tool("after", "x"), slots=1)
    assert {name: crowded.manifest.steps[name].slot for name in ("beside", "help")} == {"beside": 1, "help": 2}
    assert bool(crowded.manifest.steps["x"].slot) == (first.type == "tool")
    states = dict(states_in(crowded.asl))
    assert states[standby("x")]["Next"] == fallback("x")
    cases = {case["StringEquals"]: case["Next"] for case in states[cascaded("x")]["Choices"]}
    assert cases["fallback"] == standby("x")


def states_in(machine):
    for name, state in machine["States"].items():
        yield name, state
        for branch in state.get("Branches", ()):
            yield from states_in(branch)


def test_a_stand_in_does_not_open_while_another_has_the_only_place():
    """A gate calls nothing, so its fallback asked for no place."""
    asked = []

    def do(given, _):
        if given["say"] == "beside":
            register(w.journal, Park(path="x/fallback/slot", kind="slot", token="t", entry="000001|0|0000"), [])
            give_slots(w.steps, task(w, "x"))
            asked.append((w.head.slots, waiting(w)))
        return given["say"]

    unit = standing_in(tool("beside"), STOOD_IN["a transform"], slots=1)
    w = World(unit, FakeModels(lambda _: "yes"), FakeTools({"do": do}))
    assert w.start({}).status == "SUCCEEDED"
    assert asked == [(0, ["x/fallback/slot"])]
    stood_in = w.records.step("x")
    assert (stood_in.by, w.head.slots, w.records.step("x/fallback").type) == ("fallback", 0, "tool")
    check(w)
