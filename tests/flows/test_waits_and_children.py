"""Waits and child runs, over fakes."""

from __future__ import annotations

import pytest
from bodies import manifest, output, plan, refuse, said, task, tool, world
from invariants import check
from machine import UNWIND, World

from shared.compiler import compile_manifest
from shared.manifest import Edge, Limits, StepPlan
from shared.runtime.ending import request
from shared.runtime.parking import Order, resume_step
from shared.runtime.task import Task
from shared.runtime.waits import Arrival, deliver
from shared.testing import FixedDefinitions


def test_waits_for_a_time_and_until_a_moment():
    w = world(
        plan("short", "wait", (), spec={"for": 90}),
        plan("moment", "wait", ("short",), spec={"until": "2026-12-24T18:00:00Z"}),
    )
    begun = w.clock.now()
    assert w.start({}).status == "SUCCEEDED"
    assert w.clock.now() >= max(begun + 90_000, 1_798_135_200_000)
    assert output(w, "moment") == {"waited": "until", "event": None}
    check(w)


DAYS = 86_400


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"for": 364 * DAYS}, "completed"),
        ({"for": 364 * DAYS + 1}, "paused"),
        ({"for": "${ input.long }"}, "paused"),
        ({"until": "2027-09-20T13:59:59Z"}, "completed"),
        ({"until": "2027-09-21T14:00:00Z"}, "paused"),
        ({"until": "9999-12-31T23:59:59Z"}, "paused"),
    ],
    ids=str,
)
def test_a_wait_lasts_less_than_a_year(spec, status):
    w = world(plan("w8", "wait", (), spec=spec))
    w.start({"long": 1e308})
    step = w.records.step("w8")
    assert step.status == status
    assert status == "completed" or "longer than 364 days" in step.failure.message
    check(w)


def waiting_for(name="paid", match=None, needs=(), **more):
    event = {"name": name, "match": match, "timeout": 60.0}
    return plan("w8", "wait", needs, timeout=60.0, spec={"event": event}, **more)


def test_an_event_completes_the_wait_that_it_matches():
    w = world(waiting_for(match="event.amount > 5"), tool("a", "w8", say="${ steps.w8.output.event.amount }"))
    run = w.start({})
    assert not deliver(w.steps, task(w, ""), Arrival("e1", "paid", {"amount": 1}))
    assert run.go().status == "RUNNING"
    assert deliver(w.steps, task(w, ""), Arrival("e2", "paid", {"amount": 9}))
    assert run.go().status == "SUCCEEDED"
    assert said(w) == [9]
    check(w)


def test_an_event_that_comes_early_is_kept_and_used_once():
    def do(arguments, _):
        if arguments["say"] == "a":
            deliver(w.steps, task(w, ""), Arrival("e1", "paid", {"n": 1}))
            deliver(w.steps, task(w, ""), Arrival("e1", "paid", {"n": 1}))
        return arguments["say"]

    first = waiting_for()
    first = StepPlan(**{**{n: getattr(first, n) for n in first.__slots__}, "needs": (Edge("a"),)})
    second = StepPlan(**{**{n: getattr(first, n) for n in first.__slots__}, "id": "again", "needs": (Edge("w8"),)})
    w = world(tool("a"), first, second, do=do)
    run = w.start({})
    assert w.records.step("w8").status == "completed"
    assert run.status == "RUNNING"
    deliver(w.steps, task(w, ""), Arrival("e2", "paid", {"n": 2}))
    assert run.go().status == "SUCCEEDED"
    assert output(w, "again")["event"] == {"n": 2}
    check(w)


@pytest.mark.parametrize("data", [{}, {"amount": "x"}, None, [1], "text"])
def test_an_event_of_which_the_match_cannot_be_evaluated_is_another_one(data):
    w = world(
        plan("nap", "wait", (), timeout=60.0, spec={"for": 5}), waiting_for(match="event.amount > 5", needs=("nap",))
    )
    w.patient = True
    run = w.start({})
    assert not deliver(w.steps, task(w, ""), Arrival("early", "paid", data))
    run.go()
    assert not deliver(w.steps, task(w, ""), Arrival("late", "paid", data))
    assert deliver(w.steps, task(w, ""), Arrival("good", "paid", {"amount": 9}))
    assert run.go().status == "SUCCEEDED"


def test_an_event_that_never_comes_is_a_timeout():
    w = world(waiting_for(on_error="continue"))
    run = w.start({})
    w.clock.sleep(66)
    assert run.expire().status == "SUCCEEDED"
    assert (w.records.step("w8").status, w.records.step("w8").failure.error_class) == ("timed_out", "timeout")
    check(w)


CHILD_BUDGET = Limits(usd=10**6, steps=5, active_time=600.0)


def family(*plans, budget=CHILD_BUDGET, do=None, **more):
    child = compile_manifest(manifest(*plans, name="child", budget=budget))
    spec = {"workflow": "child", "version": None, "with": {"word": "hello"}}
    w = world(plan("sub", "sub_workflow", (), spec=spec, **more), tool("after", "sub"), do=do)
    return w.define(FixedDefinitions(w.unit.manifest, child.manifest)), child


def child_of(w, child):
    run = World(child, w.models, w.tools, w.store, w.blobs, w.clock, w.engine, w.mail, run=w.records.step("sub").child)
    return run.define(w.steps.definitions)


def test_a_sub_workflow_runs_as_its_own_run_and_answers_its_parent():
    w, child = family(tool("c", say="${ input.word }"))
    run = w.start({})
    assert (run.status, w.head.left_steps) == ("RUNNING", 55)
    below = child_of(w, child)
    assert below.execution().status == "SUCCEEDED"
    assert run.go().status == "SUCCEEDED"
    assert output(w, "sub") == {"run": below.run, "status": "completed", "outputs": {"c": "hello"}}
    assert w.records.step("sub").spent.steps == 1
    check(w)
    check(below)


def test_a_paused_child_leaves_its_parent_waiting_and_still_answers_it_when_resumed():
    w, child = family(tool("c", say="bad"), do=refuse("bad"))
    run = w.start({})
    below = child_of(w, child)
    inside = below.execution()
    assert (below.head.state, run.go().status) == ("paused", "RUNNING")
    job = Task("run", "c", "", below.run, w.tenant, "child", 1, 1, "", "person", 0)
    resume_step(below.steps, job, Order("accept", "ops", result="given"), UNWIND)
    assert inside.go().status == "SUCCEEDED"
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_a_child_that_fails_fails_the_step_and_gives_its_envelope_back():
    w, child = family(tool("c", say="bad", on_error="fail"), do=refuse("bad"), on_error="continue")
    run = w.start({})
    below = child_of(w, child)
    below.execution()
    below.unwind()
    assert run.go().status == "SUCCEEDED"
    assert w.records.step("sub").failure.error_class == "permanent"
    check(w)


def test_cancelling_the_parent_ends_the_child():
    w, child = family(tool("c", say="bad"), do=refuse("bad"))
    run = w.start({})
    below = child_of(w, child)
    inside = below.execution()
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    sleep, ended = w.clock.sleep, []

    def later(seconds):
        sleep(seconds)
        if not ended:
            ended.append(below.unwind())

    w.clock.sleep = later
    assert w.unwind().status == "SUCCEEDED"
    inside.go()
    run.go()
    assert (w.head.state, below.head.state) == ("cancelled", "cancelled")
    check(w)
    check(below)


def test_a_child_whose_time_is_over_is_ended_and_the_step_times_out():
    w, child = family(tool("c", say="bad"), do=refuse("bad"), timeout=60.0, on_error="continue")
    run = w.start({})
    below = child_of(w, child)
    below.execution()
    sleep, ended = w.clock.sleep, []

    def later(seconds):
        sleep(seconds)
        if not ended:
            ended.append(below.unwind())

    w.clock.sleep = later
    assert run.expire().status == "SUCCEEDED"
    assert (w.records.step("sub").status, below.head.state) == ("timed_out", "timed_out")
    check(w)


def test_an_envelope_that_does_not_fit_pauses_the_step():
    w, _ = family(tool("c"), budget=Limits(steps=1000))
    w.start({})
    assert (w.head.state, w.records.step("sub").reason) == ("paused", "budget_exceeded")
    check(w)
