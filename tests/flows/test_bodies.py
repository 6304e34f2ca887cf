"""Maps and loops: whole runs as compiled, over fakes."""

from __future__ import annotations

import pytest
from bodies import each, loop, output, plan, refuse, said, task, tool, world
from invariants import check
from machine import UNWIND, Killed

from shared.manifest import Body, Edge, Retry, StepPlan
from shared.runtime.ending import request
from shared.runtime.parking import Order, resume_step


def test_a_map_runs_its_body_for_every_item_and_keeps_each_result():
    inner = each(
        tool("a", say="${ thing } ${ index } ${ item }"), tool("b", "a", say="${ steps.a.output }!"), over=["x", "y"]
    )
    w = world(tool("first"), inner, tool("last", "each", say="${ steps.each.output.completed }"))
    assert w.start({}).status == "SUCCEEDED"
    assert [item["output"] for item in output(w, "each")["items"]] == [{"b": "x 0 x!"}, {"b": "y 1 y!"}]
    assert said(w)[-1] == 2
    assert w.records.step("each[1]/b").status == "completed"
    check(w)


def test_a_map_over_nothing_completes():
    w = world(each(tool("a"), over="${ input.list }"))
    assert w.start({"list": []}).status == "SUCCEEDED"
    assert output(w, "each") == {"items": [], "completed": 0, "failed": 0}
    check(w)


def test_a_map_over_no_list_fails_the_step():
    w = world(each(tool("a"), over="${ input.list }", on_error="continue"))
    assert w.start({"list": 3}).status == "SUCCEEDED"
    assert w.records.step("each").failure.error_class == "permanent"
    check(w)


def test_collect_all_keeps_index_status_and_error_of_every_item():
    steps = (tool("a", say="${ item }", on_error="fail"), tool("b", "a"))
    w = world(each(*steps, over=["good", "bad", "fine"]), do=refuse("bad"))
    assert w.start({}).status == "SUCCEEDED"
    result = output(w, "each")
    assert [(item["index"], item["status"]) for item in result["items"]] == [
        (0, "completed"),
        (1, "failed"),
        (2, "completed"),
    ]
    assert result["items"][1]["error"]["message"] == "no"
    assert (result["completed"], result["failed"]) == (2, 1)
    assert w.records.step("each[1]/b") is None
    check(w)


def test_fail_fast_opens_no_further_item_and_fails_the_map_with_the_items_class():
    steps = (tool("a", say="${ item }", on_error="fail"), tool("b", "a"))
    w = world(each(*steps, over=["bad", "good"], on_failure="fail_fast", on_error="continue"), do=refuse("bad"))
    assert w.start({}).status == "SUCCEEDED"
    step = w.records.step("each")
    assert (step.status, step.failure.error_class) == ("failed", "permanent")
    assert "good" not in said(w) or "b" not in said(w)
    check(w)


@pytest.mark.parametrize(("quorum", "status"), [(1, "completed"), (2, "completed"), (3, "failed")])
def test_a_quorum_of_items_decides_the_map(quorum, status):
    steps = (tool("a", say="${ item }", on_error="fail"),)
    w = world(
        each(*steps, over=["good", "bad", "fine"], on_failure={"quorum": quorum}, on_error="continue"), do=refuse("bad")
    )
    assert w.start({}).status == "SUCCEEDED"
    assert w.records.step("each").status == status
    check(w)


def test_an_item_that_pauses_leaves_the_others_alone_and_can_be_resumed():
    w = world(each(tool("a", say="${ item }"), over=["good", "bad"]), do=refuse("bad"))
    run = w.start({})
    assert w.head.state == "paused"
    assert w.records.step("each[0]/a").status == "completed"
    resume_step(w.steps, task(w, "a", "each[1]/"), Order("accept", "ops", result="given"), UNWIND)
    assert run.go().status == "SUCCEEDED"
    assert [item["output"] for item in output(w, "each")["items"]] == [{"a": "good"}, {"a": "given"}]
    check(w)


def test_conditions_and_collect_work_inside_items():
    steps = (tool("a", say="${ item }"), tool("b", Edge("a", when="index == 0")))
    w = world(each(*steps, over=["x", "y"], collect="${ steps.a.output + '/' + steps.b.status }"))
    assert w.start({}).status == "SUCCEEDED"
    assert [item["output"] for item in output(w, "each")["items"]] == ["x/completed", "y/skipped"]
    check(w)


def test_a_loop_runs_until_its_condition_holds_and_sees_the_iteration_before():
    draft = tool("draft", say="${ loop.previous == null ? 'a' : loop.previous.draft + 'a' }")
    w = world(loop(draft, until="steps.draft.output == 'aaa'"), tool("end", "again"))
    assert w.start({}).status == "SUCCEEDED"
    assert said(w) == ["a", "aa", "aaa", "end"]
    assert output(w, "again") == {"iterations": 3, "output": {"draft": "aaa"}}
    check(w)


def test_a_loop_that_never_gets_there_fails():
    w = world(loop(tool("a"), until="false", times=2, on_error="continue"))
    assert w.start({}).status == "SUCCEEDED"
    assert w.records.step("again").failure.error_class == "permanent"
    assert said(w) == ["a", "a"]
    check(w)


def test_a_step_that_fails_in_a_loop_fails_the_loop():
    w = world(
        loop(tool("a", say="bad", on_error="fail"), until="true", on_error="continue"), tool("b"), do=refuse("bad")
    )
    assert w.start({}).status == "SUCCEEDED"
    assert (w.records.step("again").status, w.records.step("b").status) == ("failed", "completed")
    check(w)


def test_a_loop_in_a_map_in_a_loop():
    inner = loop(tool("a", say="${ item }"), until="loop.iteration == 2", name="inner")
    middle = each(inner, over=["x", "y"], name="middle")
    w = world(loop(middle, until="loop.iteration == 2", name="outer"))
    assert w.start({}).status == "SUCCEEDED"
    assert sorted(said(w)) == ["x"] * 4 + ["y"] * 4
    assert w.records.step("outer[2]/middle[1]/inner[2]/a").status == "completed"
    check(w)


def test_a_map_or_loop_that_is_skipped_runs_nothing():
    w = world(
        tool("a"),
        each(tool("b"), over=[1], needs=[Edge("a", when="false")]),
        loop(tool("c"), until="true", needs=["each"]),
    )
    assert w.start({}).status == "SUCCEEDED"
    assert said(w) == ["a"]
    assert {w.records.step(name).status for name in ("each", "again")} == {"skipped"}
    check(w)


def test_a_fallback_stands_in_for_a_step_of_an_item():
    steps = (tool("a", say="${ item }", fallback="f"), tool("f", say="instead of ${ item }"))
    inner = each(*steps, over=["bad"])
    inner = StepPlan(**{**{n: getattr(inner, n) for n in inner.__slots__}, "body": Body(inner.body.steps, ("a",))})
    w = world(inner, do=refuse("bad"))
    assert w.start({}).status == "SUCCEEDED"
    assert output(w, "each")["items"][0]["output"] == {"a": "instead of bad"}
    check(w)


def test_a_killed_process_in_an_item_costs_a_retry():
    died = []

    def do(arguments, _):
        if arguments["say"] == "y" and not died:
            died.append(True)
            raise Killed
        return arguments["say"]

    w = world(each(tool("a", say="${ item }", retry=Retry(1)), over=["x", "y"]), do=do)
    assert w.start({}).status == "SUCCEEDED"
    assert w.records.step("each[1]/a").attempt == 2
    check(w)


def test_cancelling_undoes_what_items_did():
    spec = {"tool": "do", "with": {"say": "${ item }"}, "compensate": {"tool": "do", "with": {"say": "undo ${ item }"}}}
    inner = plan("a", "tool", (), risk="reversible", spec=spec)
    w = world(each(inner, over=["x", "y"]), tool("b", "each", say="bad"), do=refuse("bad"))
    w.start({})
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w.unwind()
    assert said(w)[-2:] == ["undo y", "undo x"]
    assert w.head.state == "cancelled"
    check(w)


def test_a_map_whose_entry_was_interrupted_is_entered_again():
    w, died = world(each(tool("a", say="${ item }"), over=["x"])), []

    def dies(writes):
        if not died and any(one.key.sk == "STEP#each" for one in writes):
            died.append(True)
            raise Killed

    w.store.before_commit = dies
    assert w.start({}).status == "SUCCEEDED"
    assert output(w, "each")["completed"] == 1
    check(w)
