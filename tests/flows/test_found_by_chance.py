"""What random graphs have found (tests/property), kept as small as it became."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import manifest, plan, task, tool, world
from invariants import check
from machine import UNWIND, Killed, World
from test_waits_and_children import CHILD_BUDGET, child_of, waiting_for

from shared.compiler import compile_manifest
from shared.errors import PermanentFailure
from shared.manifest import Edge
from shared.runtime.parking import Order, resume_step
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.waits import Arrival, deliver
from shared.testing import FakeModels, FakeTools, FixedDefinitions

BROKEN = "input.nowhere == 1"


def standing_in(stand_in, *steps, do):
    made = manifest(*steps)
    made = replace(made, steps={**made.steps, stand_in.id: stand_in})
    return World(compile_manifest(made), FakeModels(lambda _: "yes"), FakeTools({"do": do}))


def no(arguments, _):
    if arguments["say"] == "a":
        raise PermanentFailure("no")
    return arguments["say"]


@pytest.mark.parametrize(("value", "status"), [("${ input.n }", "completed"), ("${ input.nowhere }", "failed")])
def test_a_transform_can_stand_in(value, status):
    stand_in = plan("f", "transform", (), spec={"set": {"v": value}})
    w = standing_in(stand_in, tool("a", fallback="f", on_error="continue"), do=no)
    assert w.start({"n": 7}).status == "SUCCEEDED"
    assert w.records.step("a").status == w.records.step("a/fallback").status == status
    check(w)


def test_a_fallback_that_always_dies_at_once_is_not_begun_for_ever():
    w = standing_in(tool("f"), tool("a", fallback="f", on_error="continue"), do=no)

    def dies(writes):
        if any(one.key.sk == "STEP#a/fallback" for one in writes):
            raise Killed

    w.store.before_commit = dies
    assert w.start({}).status == "SUCCEEDED"
    assert w.records.step("a").status == "failed"
    check(w)


@pytest.mark.parametrize("join", ["all", "any", 2])
def test_a_condition_that_cannot_be_evaluated_fails_its_step_and_nobody_else(join):
    edges = (Edge("a", when=BROKEN), Edge("b", when="false"))
    w = world(tool("a"), tool("b"), tool("c", *edges, join=join, on_error="continue"), tool("d", "a"))
    assert w.start({}).status == "SUCCEEDED"
    assert {name: w.records.step(name).status for name in "abcd"} == {
        "a": "completed",
        "b": "completed",
        # Two of two can never be active, whatever the condition would say.
        "c": "failed",
        "d": "completed",
    }
    check(w)


def test_a_condition_that_cannot_be_evaluated_does_not_matter_where_another_edge_decides():
    w = world(tool("a"), tool("b", "a"), tool("c", Edge("a", when=BROKEN), Edge("b"), join="any"))
    assert w.start({}).status == "SUCCEEDED"
    assert w.records.step("c").status == "completed"
    check(w)


def test_a_late_source_wakes_nobody_who_waits_for_an_event():
    w = world(
        tool("a"), tool("b", "a"), tool("c", "b"), replace(waiting_for(), needs=(Edge("a"), Edge("c")), join="any")
    )
    run = w.start({})
    assert (run.status, w.records.step("w8").status) == ("RUNNING", "waiting")
    deliver(w.steps, task(w, ""), Arrival("e1", "paid", {"n": 1}))
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_a_late_source_wakes_nobody_who_waits_for_a_child():
    child = compile_manifest(manifest(tool("k"), name="child", budget=CHILD_BUDGET))
    spec = {"workflow": "child", "version": None, "with": {}}
    w = world(tool("a"), tool("b", "a"), tool("c", "b"), plan("sub", "sub_workflow", ("a", "c"), join="any", spec=spec))
    w.define(FixedDefinitions(w.unit.manifest, child.manifest))
    run = w.start({})
    assert run.status == "RUNNING"
    child_of(w, child).execution()
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_who_waits_again_for_an_event_has_its_whole_time_again():
    w = world(waiting_for())
    run = w.start({})
    w.clock.sleep(66)
    run.expire()
    assert w.head.state == "paused"
    resume_step(w.steps, task(w, "w8"), Order("retry", "ops"), UNWIND)
    assert run.go().status == "RUNNING"
    assert w.records.step("w8").due == w.clock.now() + 60_000
    deliver(w.steps, task(w, ""), Arrival("e1", "paid", {"n": 1}))
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_an_event_can_come_while_its_wait_is_only_just_registered():
    w = world(tool("a"), waiting_for())
    run = []

    def meanwhile(writes):
        # The wait registers between what the event's delivery has read and what it writes.
        if any(one.key.sk == "KEPT#e1" for one in writes) and not run:
            run.append(None)
            run.append(w.execution())

    w.run, _ = start_run(w.steps, w.steps.definitions.published("w"), StartRequest("acme", "alex", "api", {}, None))
    w.store.before_commit = meanwhile
    assert deliver(w.steps, task(w, ""), Arrival("e1", "paid", {"n": 1}))
    assert run[1].go().status == "SUCCEEDED"
    check(w)
