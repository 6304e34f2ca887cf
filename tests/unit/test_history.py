"""What attempts have used: counted once, whatever the stream delivers, and turned into estimates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.budget import history
from shared.budget.history import UNKNOWN_REQUEST, Usage, estimates
from shared.ledger.records import Event, Head, Run, run_partition
from shared.manifest import Body, Limits, Manifest, StepPlan, Turns
from shared.ports import Key, Write
from shared.runtime.runs import listed
from shared.values import Value
from tests.unit.stores import store

__all__ = ["store"]

PK = run_partition("acme", "R")


def ended(kept, *events):
    pins = {name: name for name in ("hash", "machine", "initiator", "trigger")} | {"version": 1, "created": 1}
    run = Run(id="R", tenant="acme", workflow="w", input=Value("d", 2, text="{}"), **pins)
    kept.commit([Write(Key(PK, "RUN"), listed(run, Head()).to_item(), None)])
    log(kept, 1, *events)


def log(kept, first, *events):
    for seq, (kind, path, data) in enumerate(events, first):
        event = Event(seq=seq, at=1, type=kind, path=path, data=data)
        kept.commit([Write(Key(PK, event.sk), event.to_item(), None)])


def closed(path="draft", usd=100, tokens=10, model="m", kind="step_completed"):
    return kind, path, {"used": {"usd": usd, "tokens": tokens, "steps": 1}, "model": model}


def known(kept):
    return {(one.path, one.model): (one.count, one.usd, one.tokens) for one in history.read(kept, "acme", "w")}


def test_closed_attempts_are_added_by_step_and_model(store):
    ended(
        store,
        ("run_started", None, {}),
        closed("each[0]/draft"),
        closed("each[1]/draft", usd=300, kind="step_failed"),
        closed("each[1]/draft", model="n"),
        ("attempt_lost", "each[2]/draft", {"used": {"usd": 999, "tokens": 9, "steps": 1}}),
        closed("free", usd=0, tokens=0),
    )
    history.count(store, PK)
    assert known(store) == {("each/draft", "m"): (2, 400, 20), ("each/draft", "n"): (1, 100, 10)}


def test_a_run_is_counted_once_and_goes_on_where_it_was_counted(store):
    ended(store, closed(), closed())
    history.count(store, PK)
    history.count(store, PK)
    assert known(store) == {("draft", "m"): (2, 200, 20)}
    log(store, 3, ("step_resumed", "draft", {}), closed())
    history.count(store, PK)
    assert known(store) == {("draft", "m"): (3, 300, 30)}


def test_more_steps_than_one_transaction_holds(store):
    ended(store, *(closed(f"s{number}") for number in range(200)), closed("s0"))
    history.count(store, PK)
    assert len(known(store)) == 200
    assert known(store)["s0", "m"] == (2, 200, 20)


def test_a_run_that_is_gone_is_passed_over(store):
    history.count(store, PK)
    assert known(store) == {}


@pytest.mark.parametrize(
    ("costs", "least", "most"), [([100] * 10, 100, 100), ([100] * 9 + [10**6], 100, 127), ([5, 10**6], 10**6, 10**6)]
)
def test_nine_of_ten_stay_below(costs, least, most):
    usage = Usage(path="p", model="m")
    for cost in costs:
        usage = usage.plus(cost, 0)
    assert least <= usage.p90 <= most


def manifest(*plans):
    return Manifest("w", "", {}, Limits(), {plan.id: plan for plan in plans}, tuple(plan.id for plan in plans))


def agent(name, *models):
    return StepPlan(name, "agent", spec={"model": list(models)})


def test_an_estimate_is_the_mean_of_the_first_model_where_there_is_a_history_of_it():
    used = [Usage(path="draft", model="n").plus(900, 1).plus(900, 1), Usage(path="draft", model="m").plus(100, 10)]
    (found,) = estimates(manifest(agent("draft", "m", "n")), [replace(each, rev=1) for each in used])
    assert (found.model, found.usd, found.tokens, found.attempts) == ("m", 100, 10, 1)
    (found,) = estimates(manifest(agent("draft", "x", "n")), used)
    assert (found.model, found.usd, found.attempts) == ("n", 900, 2)


def test_without_history_a_model_step_is_taken_for_ten_cents_and_a_tool_for_its_cost():
    tool = StepPlan("post", "tool", spec={"tool": "t", "cost": 7})
    inside = StepPlan("each", "map", spec={}, body=Body({"draft": agent("draft", "m")}, ("draft",)))
    free = StepPlan("set", "transform", spec={"set": {}})
    found = estimates(manifest(tool, inside, free), ())
    assert [(one.path, one.usd, one.attempts) for one in found] == [("post", 7, 0), ("each/draft", UNKNOWN_REQUEST, 0)]


def test_an_agent_with_tools_costs_what_its_turns_do():
    turn = StepPlan("turn", "turn", spec={"model": ["m", "n"]})
    helped = StepPlan("serve", "turns", turns=Turns(turn, {}, 6, 8))
    (found,) = estimates(manifest(helped), [])
    assert (found.path, found.model, found.usd) == ("serve/turn", "m", UNKNOWN_REQUEST)
    (found,) = estimates(manifest(helped), [Usage(path="serve/turn", model="m").plus(70, 7)])
    assert (found.path, found.usd, found.attempts) == ("serve/turn", 70, 1)
