"""Large maps and long loops as child executions, over fakes: the same outcome as in one execution."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import BUDGET, each, loop, output, plan, refuse, said, tool
from machine import UNWIND, Killed
from town import NUMBERS, Town, task_in

from shared.errors import Conflict
from shared.runtime.parking import Order, Raise, resume_step
from shared.values import load


def test_a_short_list_runs_in_the_execution_itself():
    town = Town(each(tool("a", say="${ item }"), over=NUMBERS), room=2000).start({"numbers": [1, 2, 3]})
    assert town.w.head.state == "completed"
    assert len(town.w.engine.executions) == 1
    town.check()


def test_a_long_list_runs_in_parts_and_ends_like_one():
    many = list(range(20))
    town = Town(each(tool("a", say="${ item * 2 }"), over=NUMBERS)).start({"numbers": many})
    assert town.w.head.state == "completed", [x.status for x in town.running.values()]
    items = output(town.w, "each")["items"]
    assert [(one["index"], one["output"]["a"]) for one in items] == [(n, n * 2) for n in many]
    assert len(town.parts()) == town.w.records.step("each").parts > 1
    assert town.below("each[0-3]").records.step("each[2]/a").status == "completed"
    assert town.w.records.step("each[0-3]").spent.steps == 4
    town.check()


def test_a_body_sees_what_stands_around_its_map():
    inner = each(tool("b", say="${ steps.first.output + thing + input.more }"), over=NUMBERS, needs=["first"])
    town = Town(tool("first", say="f"), inner).start({"numbers": [f"-{n}" for n in range(20)], "more": "!"})
    assert town.w.head.state == "completed"
    assert said(town.w)[-1] == "f-19!"
    town.check()


@pytest.mark.parametrize("rule", ["collect_all", "fail_fast", {"quorum": 3}])
def test_what_fails_in_a_part_is_judged_by_the_whole(rule):
    body = tool("a", say="${ string(item) }", on_error="fail")
    town = Town(each(body, over=NUMBERS, on_failure=rule), do=refuse("5")).start({"numbers": list(range(20))})
    if rule == "fail_fast":
        assert (town.w.head.state, town.w.records.step("each").failure.error_class) == ("paused", "permanent")
    else:
        assert town.w.head.state == "completed"
        assert [one["index"] for one in output(town.w, "each")["items"] if one["status"] == "failed"] == [5]
    town.check()


def test_the_first_failure_stops_the_other_parts():
    body = (tool("a", say="${ string(item) }", on_error="fail"), plan("w", "wait", ("a",), spec={"for": 60}))
    gate = plan("g", "human_gate", ("a",), spec=GATE, timeout=600.0)
    town = Town(each(body[0], gate, over=NUMBERS, on_failure="fail_fast", on_error="continue"), do=refuse("19"))
    town.start({"numbers": list(range(20))})
    assert town.w.head.state == "completed"
    statuses = {town.w.records.step(path).status for path in town.parts()}
    assert statuses == {"cancelled", "completed"}
    town.check()


GATE = {
    "approvers": ["finance"],
    "subject": "Go?",
    "on_expiry": "reject",
    "approves": None,
    "show": None,
    "not_initiator": False,
    "channels": ["email"],
}


@pytest.mark.parametrize("rule", ["collect_all", "fail_fast"])
def test_what_cannot_be_collected_in_a_part_fails_its_items_and_not_the_run(rule):
    body = each(tool("a", say="x"), over=NUMBERS, on_failure=rule, collect="${ steps.a.output.nope }")
    town = Town(replace(body, on_error="continue")).start({"numbers": list(range(20))})
    assert town.w.head.state == "completed"
    step = town.w.records.step("each")
    if rule == "fail_fast":
        assert "nope" in step.failure.message
    else:
        assert {one["status"] for one in load(step.output, town.w.blobs)["items"]} == {"failed"}
    town.check()


@pytest.mark.parametrize("ends", ["completed", "failed"])
def test_parts_that_end_with_a_failed_map_undo_what_they_did_only_when_the_run_fails(ends):
    last = tool("f", "a", say="${ 'f' + string(item) }", on_error="fail")
    body = each(reversible("${ string(item) }"), last, over=NUMBERS, on_failure="fail_fast", on_error="continue")
    after = [] if ends == "completed" else [tool("bad", say="bad", on_error="fail")]
    town = Town(body, *after, do=refuse("f7", "bad")).start({"numbers": list(range(8))})
    done = [int(word) for word in said(town.w) if str(word).isdigit()]
    undone = [int(word.split()[1]) for word in said(town.w) if str(word).startswith("undo")]
    assert town.w.head.state == ends
    assert sorted(undone) == ([] if ends == "completed" else sorted(done))
    town.check()


def test_maps_in_maps_are_split_where_they_must_be():
    inner = each(tool("b", say="${ string(thing) + steps.a.output }"), over=NUMBERS, name="inner", needs=["a"])
    town = Town(each(tool("a", say="${ string(thing) }"), inner, over=NUMBERS), budget=replace(BUDGET, steps=500))
    town.start({"numbers": list(range(12))})
    assert town.w.head.state == "completed"
    assert len(said(town.w)) == 12 + 12 * 12
    items = load(town.w.records.step("each").output, town.w.blobs)["items"]
    assert items[3]["output"]["inner"]["items"][11]["output"] == {"b": "113"}
    town.check()


def test_a_long_loop_runs_in_parts():
    body = tool("a", say="${ loop.iteration + (loop.previous == null ? 0 : loop.previous.a) }")
    town = Town(loop(body, until="loop.iteration >= 17", times=40), budget=replace(BUDGET, steps=500)).start()
    assert town.w.head.state == "completed"
    assert said(town.w) == [n * (n + 1) // 2 for n in range(1, 18)]
    assert output(town.w, "again") == {"iterations": 17, "output": {"a": 153}}
    assert len(town.parts("again")) > 1
    town.check()


def test_a_long_loop_that_never_ends_fails_and_so_does_one_whose_body_fails():
    town = Town(loop(tool("a"), until="false", times=17, on_error="fail")).start()
    assert town.w.head.state == "failed"
    assert "17 iterations" in town.w.head.reason
    town.check()
    town = Town(
        loop(
            tool("a", say="${ string(loop.iteration) }", on_error="fail"), until="false", times=17, on_error="continue"
        ),
        do=refuse("9"),
    ).start()
    assert town.w.head.state == "completed"
    assert town.w.records.step("again").failure.message.startswith("Iteration 9 failed")
    town.check()


def test_parts_take_more_of_the_envelope_than_their_share_until_nothing_is_left():
    many = list(range(20))
    shy = Town(each(tool("a", say="${ item }"), over=NUMBERS), budget=replace(BUDGET, steps=20)).start(
        {"numbers": many}
    )
    assert (shy.w.head.state, shy.w.head.left_steps) == ("completed", 0)
    shy.check()
    poor = Town(each(tool("a", say="${ item }"), over=NUMBERS), budget=replace(BUDGET, steps=18)).start(
        {"numbers": many}
    )
    assert len(said(poor.w)) == 18
    poor.check()
    for path in poor.parts():
        below = poor.below(path)
        for step in below.records.steps():
            if step.status == "paused":
                job = task_in(below, step.path.removesuffix("a"))
                resume_step(below.steps, job, Order("retry", "ops", more=Raise(steps=1)), UNWIND)
    assert poor.go().w.head.state == "completed"
    poor.check()


def test_a_process_that_dies_when_it_has_taken_more_leaves_a_step_that_asks_again():
    town = Town(each(tool("a", say="${ item }"), over=NUMBERS), budget=replace(BUDGET, steps=20))
    commit, taken = town.w.store.commit, []

    def dying(writes):
        if len(taken) == 1:
            taken.append("dead")
            raise Killed
        commit(writes)
        if not taken and any(write.item.get("type") == "child_raised" for write in writes):
            taken.append("more")

    town.w.store.commit = dying
    town.start({"numbers": list(range(20))})
    assert taken == ["more", "dead"]
    assert town.w.head.state == "completed"
    town.check()


def test_a_step_beside_takes_back_what_parts_do_not_need():
    gate = plan("g", "human_gate", (), spec=GATE, timeout=600.0)
    later = plan("w", "wait", (), spec={"for": 5})
    beside = [tool(f"b{n}", "w") for n in range(8)]
    town = Town(each(gate, over=NUMBERS), later, *beside, budget=replace(BUDGET, steps=12))
    town.start({"numbers": list(range(20))})
    assert {town.w.records.step(one.id).status for one in beside} == {"completed"}
    assert town.w.head.left_steps + sum(town.below(path).head.left_steps for path in town.parts()) == 4
    assert town.w.head.left_steps == 0
    town.check()


UNDO = {"tool": "do", "with": {"say": "${ 'undo ' + steps.a.output }"}}


def reversible(say):
    spec = {"tool": "do", "with": {"say": say}, "compensate": UNDO, "reconcile": None}
    return plan("a", "tool", (), spec=spec, risk="reversible")


def test_what_completed_parts_did_is_undone_when_the_run_fails():
    town = Town(
        each(reversible("${ string(item) }"), over=NUMBERS), tool("bad", "each", on_error="fail"), do=refuse("bad")
    )
    town.start({"numbers": list(range(20))})
    assert town.w.head.state == "failed"
    assert sorted(said(town.w)[21:]) == sorted(f"undo {n}" for n in range(20))
    assert {town.w.records.step(path).status for path in town.parts()} == {"compensated"}


def test_cancelling_the_run_ends_its_parts():
    gate = plan("g", "human_gate", (), spec=GATE, timeout=600.0)
    town = Town(each(gate, over=NUMBERS)).start({"numbers": list(range(20))})
    assert sum(town.below(path).head.waiting for path in town.parts()) == 20
    assert town.cancel().w.head.state == "cancelled"
    assert {town.below(path).head.state for path in town.parts()} == {"cancelled"}
    town.check()


def test_what_a_part_inside_an_item_did_is_undone_by_its_own_path():
    inner = each(reversible("${ string(thing) }"), over=NUMBERS, name="inner", on_failure="fail_fast")
    town = Town(each(inner, over=[0, 1]), tool("bad", "each", on_error="fail"), do=refuse("bad"))
    town.start({"numbers": list(range(12))})
    assert town.w.head.state == "failed"
    undone = [word for word in said(town.w) if str(word).startswith("undo")]
    assert sorted(undone) == sorted(f"undo {n}" for n in [*range(12)] * 2)


def test_who_gives_up_a_step_in_a_part_that_is_not_paused_fails_nobody():
    town = Town(each(tool("a", say="${ string(item) }"), over=NUMBERS), do=refuse("5")).start({"numbers": [*range(20)]})
    below = town.below(next(path for path in town.parts() if town.below(path).head.paused))
    done = next(step.path for step in below.records.steps() if step.path.endswith("/a") and step.status == "completed")
    with pytest.raises(Conflict) as refused:
        resume_step(below.steps, task_in(below, done.removesuffix("a")), Order("fail", "ops"), UNWIND)
    assert refused.value.problem == "not_paused"
    assert (town.w.head.unwinding, below.head.unwinding) == (None, None)


def test_who_gives_up_a_step_in_a_part_gives_up_the_run():
    town = Town(each(tool("a", say="${ string(item) }"), over=NUMBERS), do=refuse("5")).start({"numbers": [*range(20)]})
    path = next(path for path in town.parts() if town.below(path).head.paused)
    below = town.below(path)
    resume_step(below.steps, task_in(below, "each[5]/"), Order("fail", "ops"), UNWIND)
    town.go()
    assert (town.w.head.state, town.below(path).head.state) == ("failed", "failed")
    assert "given up by ops" in town.w.head.reason
    town.check()
