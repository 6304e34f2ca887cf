"""The interpreter: what begins when, and what follows failures, in every shape that compiled machines know."""

from __future__ import annotations

import pytest
from shapes import ONCE, body, failing, house, step

from shared.errors import PermanentFailure
from shared.manifest import Edge, Limits

CONTINUE = {"on_error": "continue"}


def each_of(over, **more):
    return {"over": over, "as": "item", "max_items": 40, "on_failure": "fail_fast", "collect": None} | more


def order(h, kind):
    return [event.split(":", 1)[1] for event in h.events if event.startswith(f"{kind}:")]


def test_a_step_begins_as_soon_as_its_own_sources_have_settled():
    """a→c, a→d, b→d: c does not wait for b, which waits two seconds for its retry."""
    h = house(step("a"), step("b", retry=ONCE), step("c", "a"), step("d", "a", "b"), tools={"b": failing(1)})
    h.start({}, patience=0)
    assert h.statuses == {"a": "completed", "b": "retrying", "c": "completed"}
    h.go()
    assert (h.head.state, h.statuses["d"]) == ("completed", "completed")


def test_any_runs_at_the_first_active_edge_and_later_sources_run_to_their_end():
    h = house(step("a"), step("b", retry=ONCE), step("c", "a", "b", join="any"), tools={"b": failing(1)})
    h.start({}, patience=0)
    assert (h.statuses["c"], h.head.state) == ("completed", "running")
    assert h.go().head.state == "completed"
    assert order(h, "step_opened").count("c") == 1


def test_a_quorum_waits_for_the_nth_and_is_skipped_when_that_has_become_impossible():
    tools = {"b": failing(error=PermanentFailure), "c": failing(error=PermanentFailure)}
    steps = (step("a"), step("b", **CONTINUE), step("c", **CONTINUE), step("d", "a", "b", "c", join=2), step("e", "d"))
    h = house(*steps, tools=tools).start({})
    assert (h.statuses["d"], h.statuses["e"], h.head.state) == ("skipped", "skipped", "completed")
    h = house(*steps, tools={"b": tools["b"]}).start({})
    assert (h.statuses["d"], h.head.state) == ("completed", "completed")


def test_conditions_routes_and_optional_sources_decide_on_entry():
    route = {"strategy": "rules", "routes": [{"to": "left", "when": "input.n > 1"}], "default": "right"}
    steps = (
        step("pick", type="router", spec=route),
        step("left", "pick"),
        step("right", "pick"),
        step("bad", optional=True, **CONTINUE),
        step("last", "left", "right", Edge("bad", optional=True)),
        step("never", Edge("left", when="steps.left.output.from == 'x'")),
    )
    h = house(*steps, tools={"bad": failing(error=PermanentFailure)}).start({"n": 2})
    found = {name: h.statuses[name] for name in ("left", "right", "bad", "last", "never")}
    wanted = {"left": "completed", "right": "skipped", "bad": "failed", "last": "completed", "never": "skipped"}
    assert (found, h.head.state) == (wanted, "completed")


def test_retries_then_fallback_then_the_rule():
    steps = (step("a", retry=ONCE, fallback="spare"), step("b", "a"))
    h = house(*steps, templates=(step("spare"),), tools={"a": failing()}).start({})
    assert h.head.state == "completed"
    assert (h.step("a").by, h.step("a/fallback").status) == ("fallback", "completed")
    assert order(h, "step_retrying") == ["a"]


def test_fail_ends_the_run_and_keeps_results_while_continue_lets_others_go_on():
    tools = {"b": failing(error=PermanentFailure)}
    h = house(step("a"), step("b", "a", on_error="fail"), step("c", "b"), tools=tools).start({})
    assert (h.head.state, h.statuses) == ("failed", {"a": "completed", "b": "failed"})
    h = house(step("a"), step("b", "a", **CONTINUE), step("c", "b"), step("d", "a"), tools=tools).start({})
    assert (h.head.state, h.statuses["c"], h.statuses["d"]) == ("completed", "skipped", "completed")


@pytest.mark.parametrize(("action", "state"), [("retry", "completed"), ("skip", "completed"), ("fail", "failed")])
@pytest.mark.parametrize("reborn", [False, True])
def test_pause_parks_only_that_step_until_a_person_says_how_it_goes_on(action, state, reborn):
    h = house(step("a"), step("b"), step("c", "b"), step("d", "a"), tools={"a": failing(1)}).start({})
    assert (h.head.state, h.statuses["c"]) == ("paused", "completed")
    assert h.engine.places.in_memory() == 0
    if reborn:
        h.reborn().go()
    assert h.resume("a", action).head.state == state
    assert h.engine.places.runs() == []


def test_a_budget_that_is_refused_parks_and_goes_on_when_it_is_raised():
    h = house(step("a"), step("b", "a"), budget=Limits(steps=1)).start({})
    assert (h.head.state, h.step("b").reason) == ("paused", "budget_exceeded")
    from shared.runtime.parking import Raise  # noqa: PLC0415

    h.reborn().resume("b", "retry", more=Raise(steps=1))
    assert h.head.state == "completed"


def test_no_more_than_max_parallel_steps_call_at_once_and_the_longest_way_goes_first():
    seen, running = [], [0]

    def tool(_, call):
        running[0] += 1
        seen.append((call.path, running[0]))
        running[0] -= 1
        return {}

    names = ("a", "b", "c", "d")
    h = house(*(step(n) for n in names), step("e", "d"), max_parallel=1, tools=dict.fromkeys("abcde", tool)).start({})
    assert h.head.state == "completed"
    assert [count for _, count in seen] == [1] * 5


def test_a_map_runs_its_body_for_every_item_and_collects():
    spec = each_of("${ input.list }", max_concurrency=2)
    inner = body(step("x", spec={"with": {"n": "${ item }"}}), step("y", "x"))
    h = house(step("each", type="map", spec=spec, body=inner), step("after", "each")).start({"list": [1, 2, 3]})
    assert h.head.state == "completed"
    assert [h.statuses[f"each[{n}]/{s}"] for n in range(3) for s in "xy"] == ["completed"] * 6
    assert order(h, "step_opened")[-1] == "after"


def test_a_map_over_nothing_completes():
    each = step("each", type="map", spec=each_of("${ input.list }"), body=body(step("x")))
    h = house(each, step("after", "each")).start({"list": []})
    assert (h.head.state, h.statuses) == ("completed", {"each": "completed", "after": "completed"})


def test_the_first_item_that_fails_ends_a_map_that_fails_fast_and_collect_all_goes_on():
    def tool(arguments, _):
        if arguments["n"] == 1:
            raise PermanentFailure("one")
        return {}

    for rule, state in (("fail_fast", "failed"), ("collect_all", "completed"), ({"quorum": 3}, "failed")):
        spec = each_of("${ input.list }", max_concurrency=1, on_failure=rule)
        inner = body(step("x", spec={"with": {"n": "${ item }"}}, on_error="fail"), step("y", "x"))
        each = step("each", type="map", spec=spec, body=inner, on_error="fail")
        h = house(each, tools={"x": tool}).start({"list": [0, 1, 2]})
        assert (rule, h.head.state) == (rule, state)
        assert ("each[2]/y" in h.statuses) == (rule != "fail_fast")


def test_a_loop_runs_its_body_until_its_condition_holds():
    spec = {"until": "loop.iteration >= 3", "max_iterations": 5, "collect": None}
    h = house(step("again", type="loop", spec=spec, body=body(step("x"), step("y", "x")))).start({})
    assert h.head.state == "completed"
    assert order(h, "step_opened") == [f"again[{n}]/{s}" for n in (1, 2, 3) for s in "xy"]


def test_a_wait_sleeps_without_memory_and_goes_on_after_a_restart_when_its_time_has_come():
    spec = {"for": 7200, "until": None, "event": None}
    h = house(step("pause", type="wait", spec=spec), step("b", "pause")).start({}, patience=60)
    assert (h.statuses, h.engine.places.in_memory()) == ({"pause": "waiting"}, 0)
    h.reborn().go(3000)
    assert "b" not in h.statuses
    assert h.go(7300).head.state == "completed"


def test_a_deadline_ends_the_run_as_timed_out():
    spec = {"for": 7200, "until": None, "event": None}
    h = house(step("pause", type="wait", spec=spec), deadline=600.0).start({}, patience=7300)
    assert h.head.state == "timed_out"


def test_a_resumed_run_has_its_deadline_anew_whoever_drives_it():
    spec = {"for": 900, "until": None, "event": None}
    h = house(step("a"), step("pause", "a", type="wait", spec=spec), deadline=600.0).start({}, patience=7300)
    assert h.head.state == "timed_out"
    h.again(590)
    h.clock.sleep(590)
    assert (h.head.state, h.head.epoch, h.statuses["pause"]) == ("running", 2, "waiting")
    assert h.reborn().go(5).head.state == "running"
    assert h.go(11).head.state == "timed_out"


def test_the_deadline_of_an_epoch_before_ends_no_later_one():
    spec = {"for": 500, "until": None, "event": None}
    tools = {"a": failing(1, error=PermanentFailure)}
    h = house(step("a", on_error="fail"), step("b", "a", type="wait", spec=spec), tools=tools, deadline=600.0)
    h.start({}, patience=0)
    assert h.head.state == "failed"
    h.clock.sleep(300)
    assert h.again(7300).head.state == "completed"


def test_a_bug_in_a_handler_stops_the_run_with_its_results_kept():
    h = house(step("a"), step("b", "a"))
    perform = h.engine.handlers.perform

    class Broken:
        steps = h.engine.handlers.steps

        @staticmethod
        def perform(task):
            if task.op == "cascade" or task.step == "b":
                raise RuntimeError("bug")
            return perform(task)

    h.engine.handlers = Broken
    h.start({})
    assert (h.head.state, h.statuses["a"]) == ("stopped", "completed")
    assert "bug" in h.head.reason
