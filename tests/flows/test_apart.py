"""Maps and loops with a time-out or a budget: each has a run of its own, which the one ends and the other limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import BUDGET, each, loop, output, plan, refuse, said, tool
from machine import UNWIND
from town import NUMBERS, Town, task_in

from shared.budget import rules
from shared.budget.rules import Refusal
from shared.errors import Conflict
from shared.manifest import Limits
from shared.runtime.envelopes import find_more
from shared.runtime.journal import Change
from shared.runtime.parking import Order, Raise, resume_step
from shared.values import load

ITEMS = [*range(6)]
GATE = {"approvers": ["finance"], "subject": "Go?", "on_expiry": "reject", "approves": None, "show": None}
ROOMS = [10_000, 300]
"""History events: one execution holds the map, or its own run is split into parts."""


def own(step, *, timeout=364 * 86_400.0, **budget):
    """Return a map or a loop as the compiler makes it from one with a time-out or a budget."""
    return replace(step, apart=True, timeout=timeout, budget=Limits(**budget))


def gate(*needs, **more):
    return plan("g", "human_gate", needs, spec=GATE, timeout=600.0, **more)


@pytest.mark.parametrize("room", ROOMS)
def test_a_map_with_a_budget_runs_in_a_run_of_its_own_and_its_output_is_as_ever(room):
    body = each(tool("a", say="${ steps.first.output + string(thing) }"), over=NUMBERS, needs=["first"])
    after = tool("after", "each", say="${ string(steps.each.output.completed) }")
    town = Town(tool("first", say="f"), own(body, steps=20), after, room=room).start({"numbers": [*range(20)]})
    assert town.w.head.state == "completed"
    assert said(town.w)[-1] == "20"
    assert [one["output"] for one in output(town.w, "each")["items"]] == [{"a": f"f{n}"} for n in range(20)]
    below = town.below("each")
    assert (below.head.state, below.records.run.part, len(town.w.engine.executions) > 2) == (
        "completed",
        "each",
        room == 300,
    )
    assert town.w.records.step("each").spent.steps == 20
    assert town.w.head.left_steps == 60 - 22
    town.check()


@pytest.mark.parametrize("room", ROOMS)
def test_everything_inside_reserves_no_more_than_the_budget_and_parks_where_that_is_used_up(room):
    town = Town(own(each(tool("a", say="${ thing }"), over=NUMBERS), steps=13), tool("beside"), room=room)
    town.start({"numbers": [*range(20)]})
    assert len([word for word in said(town.w) if word != "beside"]) == 13
    below = town.below("each")
    assert below.records.run.limit_steps <= 13
    assert town.w.head.left_steps >= 60 - 13 - 1
    town.check()
    for world in town.worlds():
        for step in world.records.steps():
            if step.status == "paused":
                assert step.reason == "budget_exceeded"
                job = task_in(world, step.path.removesuffix("a"))
                resume_step(world.steps, job, Order("retry", "ops", more=Raise(steps=1)), UNWIND)
                town.go()
    assert town.w.head.state == "completed"
    town.check()


@pytest.mark.parametrize(
    "gone",
    [
        lambda seen: replace(seen.step("each"), child="another"),
        lambda seen: replace(seen.step("each"), settled=True),
        lambda seen: replace(seen.head, ended="stopped"),
    ],
    ids=["another child", "settled", "ended"],
)
def test_a_run_that_nobody_waits_for_any_more_is_not_raised_for_nothing(gone):
    town = Town(own(each(tool("a", say="${ thing }"), over=NUMBERS), steps=13), room=10_000)
    town.start({"numbers": [*range(20)]})
    below = town.below("each")
    limit = below.records.run.limit_steps
    paused = next(step.path for step in below.records.steps() if step.status == "paused")
    town.w.journal.transact(town.w.records, lambda seen: Change(None, (gone(seen),)))
    order = Order("retry", "ops", more=Raise(steps=1))
    with pytest.raises(Conflict) as refused:
        resume_step(below.steps, task_in(below, paused.removesuffix("a")), order, UNWIND)
    assert refused.value.problem == "parent_gone"
    assert below.records.run.limit_steps == limit


def test_a_budget_is_a_limit_and_what_the_run_has_left_another():
    town = Town(own(each(tool("a", say="${ thing }"), over=NUMBERS), steps=50), budget=replace(BUDGET, steps=8))
    town.start({"numbers": [*range(20)]})
    assert len(said(town.w)) == 8
    assert (town.w.head.left_steps, town.below("each").head.left_steps) == (0, 0)
    town.check()


def test_the_active_time_of_what_is_inside_is_limited_together():
    body = tool("a", say="${ loop.iteration }", timeout=40.0)
    town = Town(own(loop(body, until="loop.iteration == 3"), active_time=30.0)).start()
    below = town.below("again")
    assert (below.head.state, below.records.step("again[1]/a").reason) == ("paused", "budget_exceeded")
    town.check()


def test_active_time_is_not_taken_back_from_what_runs():
    def asks(given, _):
        while_it_runs.append((take_back(), town.below("each").records.run.limit_active))
        return given["say"]

    def take_back():
        left = rules.active_left(town.w.head, town.w.clock.now())
        lacking = Refusal("active_time", left + 20_000, left)
        return find_more(town.w.steps, town.w.journal, town.w.records, lacking)

    while_it_runs = []
    step = own(each(tool("a", timeout=50.0), gate("a"), over=[1]), active_time=60.0)
    town = Town(step, budget=replace(BUDGET, active_time=100.0), do=asks)
    town.start()
    assert while_it_runs == [(False, 50_000)]
    assert town.below("each").head.open == 0
    assert (take_back(), town.below("each").records.run.limit_active) == (True, 30_000)
    town.check()


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("kind", ["map", "loop"])
def test_a_time_out_ends_everything_inside_and_the_step_has_timed_out(room, kind):
    made = (
        each(tool("a", say="${ thing }"), gate("a"), over=NUMBERS)
        if kind == "map"
        else loop(tool("a"), gate("a"), until="false", times=20)
    )
    step = replace(own(made, timeout=60.0), on_error="continue")
    town = Town(step, tool("after", step.id), plan("free", "transform", spec={"set": {"n": 1}}), room=room)
    town.start({"numbers": [*range(20)]})
    assert town.w.head.state == "running"
    assert town.expire(step.id).w.head.state == "completed"
    known = town.w.records.step(step.id)
    assert (known.status, known.failure.error_class, town.below(step.id).head.state) == (
        "timed_out",
        "timeout",
        "timed_out",
    )
    assert town.w.records.step("after").status == "skipped"
    assert not [gate for world in town.worlds() for gate in world.records.gates() if gate.status == "open"]
    town.check()


@pytest.mark.parametrize("policy", ["pause", "fail", "fallback"])
def test_after_a_time_out_the_cascade_goes_on_as_for_any_step(policy):
    spare = plan("spare", "transform", spec={"set": {"n": 1}})
    step = own(each(gate(), over=ITEMS), timeout=60.0)
    step = replace(step, fallback="spare") if policy == "fallback" else replace(step, on_error=policy)
    town = Town(step, templates=(spare,)).start().expire("each")
    states = {"pause": "paused", "fail": "failed", "fallback": "completed"}
    assert town.w.head.state == states[policy]
    known = town.w.records.step("each")
    statuses = {"pause": "paused", "fail": "timed_out", "fallback": "completed"}
    assert known.status == statuses[policy]
    town.check()


@pytest.mark.parametrize("rule", ["collect_all", "fail_fast", {"quorum": 3}])
@pytest.mark.parametrize("room", ROOMS)
def test_what_fails_inside_is_judged_as_ever(rule, room):
    body = tool("a", say="${ string(item) }", on_error="fail")
    made = own(each(body, over=NUMBERS, on_failure=rule, on_error="continue"), steps=30)
    town = Town(made, room=room, do=refuse("5")).start({"numbers": [*range(20)]})
    assert town.w.head.state == "completed"
    step = town.w.records.step("each")
    if rule == "fail_fast":
        assert (step.status, step.failure.error_class) == ("failed", "permanent")
        assert "item 5: no" in step.failure.message
    else:
        items = load(step.output, town.w.blobs)["items"]
        assert [one["index"] for one in items if one["status"] == "failed"] == [5]
    town.check()


@pytest.mark.parametrize("room", ROOMS)
def test_a_loop_with_a_budget_goes_on_until_it_is_good_or_fails_as_ever(room):
    body = tool("a", say="${ loop.iteration + (loop.previous == null ? 0 : loop.previous.a) }")
    town = Town(own(loop(body, until="loop.iteration >= 17", times=40), steps=17), room=room).start()
    assert output(town.w, "again") == {"iterations": 17, "output": {"a": 153}}
    town.check()
    town = Town(own(loop(tool("a"), until="false", times=17, on_error="fail"), steps=17), room=room).start()
    assert town.w.head.state == "failed"
    assert "`until` did not hold after 17 iterations" in town.w.head.reason
    town.check()


def test_no_list_no_items_and_a_condition_that_does_not_hold():
    town = Town(own(each(tool("a"), over="${ input }", on_error="continue"), steps=5)).start({"numbers": 1})
    assert "not over a list" in town.w.records.step("each").failure.message
    town = Town(own(each(tool("a"), over=NUMBERS), steps=5)).start({"numbers": []})
    assert output(town.w, "each") == {"items": [], "completed": 0, "failed": 0}
    town = Town(replace(own(each(tool("a"), over=NUMBERS), steps=5), when="false")).start({"numbers": []})
    assert (town.w.records.step("each").status, len(town.w.engine.executions)) == ("skipped", 1)
    town.check()


@pytest.mark.parametrize("room", ROOMS)
def test_own_runs_in_own_runs_share_what_the_outer_one_may_use(room):
    inner = own(each(tool("a", say="${ string(thing) }"), over=NUMBERS, name="inner"), steps=4)
    town = Town(own(each(inner, over=[0, 1, 2]), steps=10), room=room).start({"numbers": [*range(4)]})
    assert len(said(town.w)) == 10
    outer = town.below("each")
    assert outer.records.run.limit_steps == 10
    town.check()


def test_a_body_sees_the_frames_around_its_map():
    inner = own(each(tool("a", say="${ loop.previous == null ? 'none' : loop.previous.b }"), over=[1]), steps=4)
    deeper = tool("b", "each", say="${ 'b' + string(loop.iteration) }")
    again = loop(deeper, inner, until="loop.iteration == 2")
    town = Town(replace(again, body=replace(again.body, order=("each", "b")))).start()
    assert town.w.head.state == "completed"
    assert said(town.w) == ["none", "b1", "b1", "b2"]
    town.check()


UNDO = {"tool": "do", "with": {"say": "${ 'undo ' + steps.a.output }"}}


def reversible(say):
    spec = {"tool": "do", "with": {"say": say}, "compensate": UNDO, "reconcile": None}
    return plan("a", "tool", (), spec=spec, risk="reversible")


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("timed_out", [False, True])
def test_what_was_done_inside_is_undone_when_the_run_fails(room, timed_out):
    more = [gate("a")] if timed_out else []
    step = replace(own(each(reversible("${ string(item) }"), *more, over=ITEMS), timeout=60.0), on_error="continue")
    bad = replace(tool("bad", "each", on_error="fail"), needs=()) if timed_out else tool("bad", "each", on_error="fail")
    town = (
        Town(step, bad, do=refuse("bad"), room=room)
        if not timed_out
        else Town(replace(step, on_error="fail"), room=room)
    )
    town.start()
    if timed_out:
        town.expire("each")
    assert town.w.head.state == "failed"
    undone = sorted(word for word in said(town.w) if word.startswith("undo"))
    assert undone == [f"undo {n}" for n in ITEMS]
    town.check()


@pytest.mark.parametrize("room", ROOMS)
def test_cancelling_the_run_ends_its_own_runs(room):
    town = Town(own(each(gate(), over=ITEMS), timeout=600.0), room=room).start()
    assert sum(world.head.waiting for world in town.worlds()) == len(ITEMS)
    assert town.cancel().w.head.state == "cancelled"
    assert (town.below("each").head.state, town.w.records.step("each").status) == ("cancelled", "failed")
    town.check()


def test_who_gives_up_a_step_inside_gives_up_the_run():
    town = Town(own(each(tool("a", say="${ string(item) }"), over=ITEMS), steps=9), do=refuse("5"), room=10_000).start()
    below = town.below("each")
    resume_step(below.steps, task_in(below, "each[5]/"), Order("fail", "ops"), UNWIND)
    assert (town.go().w.head.state, below.head.state) == ("failed", "failed")
    assert "given up by ops" in town.w.head.reason
    town.check()
