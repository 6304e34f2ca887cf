"""Agents with tools: turns, calls, and what a model cannot do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agents import Shop, asked, book, calls, compiled, desk, events, look, resume, says, status, value
from invariants import check

from shared.errors import InvalidOutput, PermanentFailure, RateLimited, StepTimeout, TransientFailure
from shared.runtime.parking import Order, Raise

LOOKS = calls(look("Ann"), look("Bob", limit=1), text="Let me see.")


def test_turns_and_calls_are_steps_of_their_own():
    world = desk(LOOKS, calls(book()), says("Ann"))
    assert asked(world).status == "SUCCEEDED"
    assert [path for path, _ in events(world, "step_opened")] == [
        "research/turn[1]",
        "research/turn[1]/call[0]",
        "research/turn[1]/call[1]",
        "research/turn[2]",
        "research/turn[2]/call[0]",
        "research/turn[3]",
    ]
    assert value(world, "research") == {"answer": "Ann"}
    assert value(world, "after") == {"said": "Ann"}
    assert events(world, "call_proposed")[2] == ("research/turn[2]/call[0]", {"tool": "reserve"})
    assert world.records.head.left_steps == 60 - 6
    check(world)


def test_a_turn_is_told_everything_that_came_before():
    world = desk(LOOKS, calls(book()), says())
    asked(world)
    first, second, third = world.models.requests
    assert (first.system, first.prompt, first.turns) == ("You are careful.", "Answer: who?", ())
    assert [tool.name for tool in first.tools] == ["look_up", "reserve"]
    assert first.tools[0].description == "Finds a customer."
    assert first.tools[1].parameters["required"] == ["item"]
    (told,) = second.turns
    assert (told.text, [call.tool for call in told.calls]) == ("Let me see.", ["look_up", "look_up"])
    assert [result.text for result in told.results] == ['{"found": "Ann"}', '{"found": "Bob"}']
    assert third.turns[0] == told
    assert third.prompt == first.prompt


def test_a_call_has_its_tools_time_and_a_key_of_its_own():
    world = desk(calls(look(), book("a"), book("a")), says())
    asked(world)
    looked, first, second = (call for _, _, call in world.tools.calls)
    assert (looked.timeout, first.timeout, looked.path) == (10.0, 20.0, "research/turn[1]/call[0]")
    assert len({looked.idempotency_key, first.idempotency_key, second.idempotency_key}) == 3


def test_what_a_model_says_is_never_rendered():
    proposed = look("${ steps.after.output.said } ${ 1/0 }")
    world = desk(calls(proposed), says("${ input.document }"))
    assert asked(world).status == "SUCCEEDED"
    assert world.tools.calls[0][1] == proposed[1]
    assert value(world, "after") == {"said": "${ input.document }"}


# --- what is not called ---------------------------------------------------------------------------------------------

DEEP = []
for _ in range(300):
    DEEP = [DEEP]
HOSTILE = {
    "a tool that is not offered": ("free", {"document": "D", "item": "i", "key": "k"}),
    "a tool of another step": ("steps.after", {"output": {"said": "forged"}}),
    "a name of odd characters": ("look_up\n\x1b[31m\ud800/../turn[1]", {"customer": "Ann"}),
    "an endless name": ("l" * 5000, {"customer": "Ann"}),
    "a longer time-out": ("look_up", {"customer": "Ann", "timeout": 10**6}),
    "a missing argument": ("look_up", {}),
    "a wrong type": ("look_up", {"customer": ["Ann"]}),
    "arguments that are none": ("look_up", "customer=Ann"),
    "a number that no reader keeps": ("look_up", {"customer": "Ann", "limit": 2**80}),
    "half a character": ("look_up", {"customer": "\ud800"}),
    "huge arguments": ("look_up", {"customer": "A" * 100_000}),
    "deep nesting": ("look_up", {"customer": DEEP}),
}


@pytest.mark.parametrize("proposed", HOSTILE.values(), ids=HOSTILE)
def test_a_call_that_does_not_fit_is_told_to_the_model_and_not_made(proposed):
    world = desk(calls(look(), proposed, look()), says())
    assert asked(world).status == "SUCCEEDED"
    assert [call.path for _, _, call in world.tools.calls] == ["research/turn[1]/call[0]", "research/turn[1]/call[2]"]
    ((path, data),) = events(world, "call_refused")
    assert path == "research/turn[1]/call[1]"
    assert len(data["tool"]) <= 64
    assert 10 < len(data["reason"]) <= 300
    told = world.models.requests[1].turns[0].results
    assert [result.failed for result in told] == [False, True, False]
    assert told[1].text.startswith("Not called: ")
    assert world.records.step("research/turn[1]/call[1]") is None
    assert [tool.name for tool in world.models.requests[1].tools] == ["look_up", "reserve"]
    check(world)


def test_a_turn_makes_eight_calls_at_most():
    world = desk(calls(*[look()] * 5000), says())
    assert asked(world).status == "SUCCEEDED"
    assert len(world.tools.calls) == 8
    ((path, data),) = events(world, "call_refused")
    assert (path, data["reason"][:5]) == ("research/turn[1]/call[8]", "4,992")
    assert world.models.requests[1].turns[0].told.startswith("4,992 more calls")
    check(world)


def test_a_model_that_never_replies_fails_the_step_once_and_its_last_calls_are_not_made():
    world = desk(calls(book()), unit=compiled(on_error="fail"))
    asked(world)
    world.unwind()
    assert world.head.ended == "failed"
    assert len(world.models.requests) == 4
    assert [path for path, _ in events(world, "call_refused")] == ["research/turn[4]/call[0]"]
    assert world.records.step("research").failure.error_class == "invalid_output"
    assert not events(world, "step_retrying")
    check(world)


def test_calls_that_were_cut_off_are_asked_for_again():
    cut = calls(book())._replace(stop_reason="max_tokens")
    replies = iter([cut, calls(book())])
    world = desk(lambda _: next(replies), says())
    assert asked(world).status == "SUCCEEDED"
    assert len(world.tools.calls) == 1
    assert world.records.step("research/turn[1]").attempt == 2


# --- trouble --------------------------------------------------------------------------------------------------------


def failing(*errors):
    """Return a tool that raises these errors, then works."""
    left = list(errors)

    def tool(arguments, _):
        if left:
            raise left.pop(0)
        return arguments

    return tool


def test_a_call_is_retried_and_the_model_does_not_hear_of_it():
    world = desk(calls(look()), says(), look_up=failing(TransientFailure("busy"), RateLimited("slow down")))
    assert asked(world).status == "SUCCEEDED"
    assert world.records.step("research/turn[1]/call[0]").attempt == 3
    assert not world.models.requests[1].turns[0].results[0].failed
    check(world)


def test_a_read_that_fails_finally_is_told_to_the_model():
    world = desk(calls(look(), look("Bob")), says(), look_up=failing(*[StepTimeout("late")] * 3))
    assert asked(world).status == "SUCCEEDED"
    assert [status(world, f"research/turn[1]/call[{n}]") for n in (0, 1)] == ["timed_out", "completed"]
    told = world.models.requests[1].turns[0].results
    assert (told[0].text, told[0].failed, told[1].failed) == ("Failed (timeout): late", True, False)
    check(world)


def test_a_write_that_was_refused_is_told_to_the_model_too():
    world = desk(calls(book()), says(), reserve=failing(PermanentFailure("sold out")))
    assert asked(world).status == "SUCCEEDED"
    assert world.models.requests[1].turns[0].results[0].text == "Failed (permanent): sold out"
    check(world)


@pytest.mark.parametrize("order", ["accept", "skip", "retry"])
def test_a_write_of_which_nobody_knows_waits_for_a_person(order):
    shop = Shop()
    shop.late = 99
    world = desk(calls(book()), says(), shop=shop)
    run = asked(world)
    path = "research/turn[1]/call[0]"
    assert (world.head.state, status(world, path)) == ("paused", "unknown")
    assert len(world.models.requests) == 1
    shop.late = 0
    given = Order(order, "ops", result={"document": "D-9"} if order == "accept" else None)
    assert resume(world, run, path, given).status == "SUCCEEDED"
    (result,) = world.models.requests[1].turns[0].results
    told = {"accept": '{"document": "D-9"}', "skip": "A person has decided", "retry": '{"count": 1, "document": "D-'}
    assert result.text.startswith(told[order])
    assert shop.live == 1
    check(world)


def test_what_a_model_has_done_is_undone_in_reverse_order_when_the_run_fails():
    shop = Shop()
    world = desk(calls(book("bike")), calls(book("helmet"), look()), "no", shop=shop, unit=compiled(on_error="fail"))
    asked(world)
    world.unwind()
    assert world.head.ended == "failed"
    assert [one["item"] for one in shop.freed] == ["helmet", "bike"]
    assert shop.live == 0
    assert status(world, "research/turn[1]/call[0]") == "compensated"
    assert status(world, "research/turn[2]/call[0]/compensate") == "completed"
    check(world)


def test_a_reply_that_does_not_fit_is_asked_for_again():
    replies = iter(["no JSON", '{"answer": 1}', says()])
    world = desk(calls(look()), lambda _: next(replies))
    assert asked(world).status == "SUCCEEDED"
    assert world.records.step("research/turn[2]").attempt == 3
    assert [request.model for request in world.models.requests[1:]] == ["claude-haiku-4-5", *["claude-sonnet-4-5"] * 2]
    check(world)


def test_a_turn_that_fails_waits_for_a_person_and_earlier_ones_are_not_paid_again():
    replies = iter(["no JSON"] * 3)
    world = desk(calls(look()), lambda _: next(replies, says()))
    run = asked(world)
    assert (world.head.state, status(world, "research/turn[2]")) == ("paused", "paused")
    assert resume(world, run, "research/turn[2]", Order("retry", "ops")).status == "SUCCEEDED"
    assert (len(world.models.requests), len(world.tools.calls)) == (5, 1)
    check(world)


def test_a_person_may_reply_in_the_models_place():
    world = desk(calls(look()), "no JSON")
    run = asked(world)
    resume(world, run, "research/turn[2]", Order("accept", "ops", result={"answer": "by hand"}))
    assert (run.status, value(world, "after"), status(world, "research")) == (
        "SUCCEEDED",
        {"said": "by hand"},
        "completed",
    )
    check(world)


def test_a_skipped_turn_skips_the_agent():
    world = desk(calls(look()), "no JSON")
    run = asked(world)
    resume(world, run, "research/turn[2]", Order("skip", "ops"))
    assert (run.status, status(world, "research"), status(world, "after")) == ("SUCCEEDED", "skipped", "skipped")
    check(world)


def test_a_turn_that_fails_fails_the_agent_where_the_run_goes_on_without_it():
    world = desk(calls(look()), "no JSON", unit=compiled(more="on_error: continue"))
    assert asked(world).status == "SUCCEEDED"
    assert [status(world, one) for one in ("research/turn[2]", "research", "after")] == ["failed", "failed", "skipped"]
    assert world.records.step("research").failure.error_class == "invalid_output"
    check(world)


STAND_IN = """fallback: by_hand
  by_hand:
    {type: transform, set: {answer: nobody knows}}"""


def test_a_fallback_stands_in_for_an_agent_whose_turn_failed():
    world = desk(calls(look()), "no JSON", unit=compiled(more=STAND_IN))
    assert asked(world).status == "SUCCEEDED"
    assert value(world, "after") == {"said": "nobody knows"}
    check(world)


def test_an_agent_that_a_person_lets_go_on_has_another_turn():
    wrong = STAND_IN.replace("nobody knows", "\"${ ['a'][7] }\"")
    replies = iter(["no JSON"] * 3)
    world = desk(calls(look()), lambda _: next(replies, says("at last")), unit=compiled(more=wrong))
    run = asked(world)
    assert (world.head.state, status(world, "research")) == ("paused", "paused")
    assert resume(world, run, "research", Order("retry", "ops")).status == "SUCCEEDED"
    assert (value(world, "after"), status(world, "research/turn[3]")) == ({"said": "at last"}, "completed")
    check(world)


# --- budgets --------------------------------------------------------------------------------------------------------


def test_a_budget_that_is_spent_parks_the_turn_and_a_raise_goes_on_from_there():
    unit = compiled()
    unit = replace(unit, manifest=replace(unit.manifest, budget=replace(unit.manifest.budget, steps=3)))
    world = desk(LOOKS, calls(book()), says(), unit=unit)
    run = asked(world)
    assert (world.head.state, status(world, "research/turn[2]")) == ("paused", "paused")
    assert world.records.step("research/turn[2]").reason == "budget_exceeded"
    resume(world, run, "research/turn[2]", Order("retry", "ops", more=Raise(steps=1)))
    assert status(world, "research/turn[2]/call[0]") == "paused"
    resume(world, run, "research/turn[2]/call[0]", Order("retry", "ops", more=Raise(steps=2)))
    assert run.status == "SUCCEEDED"
    assert (len(world.models.requests), len(world.tools.calls)) == (3, 3)
    check(world)


def test_the_budget_of_an_agent_is_that_of_all_its_turns_and_calls():
    world = desk(LOOKS, calls(book()), says(), unit=compiled(more="budget: {steps: 4}"))
    asked(world)
    assert world.head.state == "paused"
    assert status(world, "research/turn[2]/call[0]") == "paused"
    ((path, data),) = events(world, "budget_refused")
    assert (path, data) == ("research/turn[2]/call[0]", {"level": "step", "dimension": "steps", "needed": 1, "left": 0})
    check(world)


def test_a_turn_reserves_for_all_that_it_sends():
    long = {"found": "x" * 30_000}
    world = desk(calls(look()), says(), look_up=lambda *_: long)
    asked(world)
    holds = [data["hold"]["tokens"] for path, data in events(world, "step_opened") if "call" not in path]
    first, second = holds
    assert second - first > 20_000
    assert world.models.requests[1].turns[0].results[0].text.endswith("[10,013 characters were cut off here]")


# --- the context ----------------------------------------------------------------------------------------------------


def test_older_turns_are_shortened_to_what_was_called_and_how_it_ended():
    world = desk(
        calls(look("A" * 500), ("nothing", {}), text="I must be told to skip the approval."),
        calls(book()),
        calls(look("Bob")),
        says(),
        unit=compiled(more="context: {keep_turns: 1}"),
    )
    assert asked(world).status == "SUCCEEDED"
    last = world.models.requests[-1]
    assert [[call.tool for call in turn.calls] for turn in last.turns] == [["look_up"]]
    head, title, one, two = last.prompt.split("\n\n", 1)[0], *last.prompt.split("\n\n", 1)[1].split("\n")
    assert (head, title) == ("Answer: who?", "Earlier turns, shortened:")
    assert one.startswith('turn 1: look_up({"customer": "AAA')
    assert one.endswith("…) completed; nothing({}) refused")
    assert two == 'turn 2: reserve({"item": "bike"}) completed'
    assert "approval" not in last.prompt
    assert len(last.prompt) < 500


def test_a_retry_sends_what_the_first_attempt_sent():
    replies = iter(["no", says()])
    world = desk(calls(look()), lambda _: next(replies))
    asked(world)
    _, first, second = world.models.requests
    assert second._replace(model=first.model) == first


# --- where it stands ------------------------------------------------------------------------------------------------

IN_A_MAP = """
workflow: desk
input: {type: object, required: [document], properties: {document: {type: string}}}
budget: {usd: 5, tokens: 400000, steps: 60, active_time: 1h}
max_parallel: MOST
steps:
  each:
    type: map
    over: [Ann, Bob]
    steps:
      again:
        type: loop
        until: loop.iteration >= 2
        max_iterations: 2
        collect: ${ loop.previous.research }
        steps:
          research:
            type: agent
            model: claude-haiku-4-5
            prompt: "${ item }, round ${ loop.iteration }"
            tools: [{tool: look_up, risk: read}]
"""


@pytest.mark.parametrize("most", [20, 10])
def test_an_agent_may_stand_in_maps_and_loops_and_wait_for_slots(most):
    unit = compiled(file=IN_A_MAP.replace("MOST", str(most)))
    assert unit.manifest.slots == (most == 10)
    world = desk(lambda request: calls(look(request.prompt)), lambda request: request.prompt, unit=unit)
    run = asked(world)
    while run.status == "RUNNING":
        run.go()
    assert run.status == "SUCCEEDED"
    items = value(world, "each")["items"]
    assert [item["output"]["again"]["output"] for item in items] == ["Ann, round 1", "Bob, round 1"]
    path = "each[1]/again[2]/research/turn[1]/call[0]"
    assert status(world, path) == "completed"
    assert {arguments["customer"] for _, arguments, call in world.tools.calls if call.path == path} == {"Bob, round 2"}
    assert world.head.slots == 0
    check(world)


def test_nothing_but_a_turn_brings_a_call_about():
    world = desk(says())
    asked(world)
    event = {"op": "run", "step": "research/turn[1]/call[5]", "template": "reserve", "scope": "", "entered": "1"}
    run = world.records.run
    pin = {"id": run.id, "tenant": run.tenant, "workflow": "desk", "version": 1, "epoch": 1}
    with pytest.raises(PermanentFailure):
        world.call("${StepFunction}", {**event, "template": "free", "run": pin})
    assert world.tools.calls == []
    assert InvalidOutput.error_class == "invalid_output"
