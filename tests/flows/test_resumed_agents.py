"""A run that ended early goes on in the middle of an agent: what its model has said and read stays as it was."""

from __future__ import annotations

from dataclasses import replace

import agents
import pytest
from agents import book, calls, desk, events, look, says
from invariants import check
from machine import UNWIND, Execution
from test_resume import NO, Versions, resumed

from shared.compiler import compile_manifest
from shared.errors import Conflict
from shared.runtime.ending import request
from shared.runtime.host import Published
from shared.runtime.parking import Order
from shared.runtime.resuming import Resume, resume_run


def researched(*script, shop, **others):
    """Return a desk whose agent looks and books twice, and whose run has failed then, as the script says."""
    booked = (calls(look(), book("a")), calls(book("b")))
    w = desk(*booked, *script, shop=shop, unit=agents.compiled(on_error="fail"), **others)
    agents.asked(w)
    w.unwind()
    assert (w.head.ended, shop.live) == ("failed", 0)
    check(w)
    return w


def test_an_agent_goes_on_after_its_completed_turns_and_what_was_undone_is_called_anew():
    shop, replies = agents.Shop(), iter(["no JSON"] * 3)
    w = researched(lambda _: next(replies, says("at last")), shop=shop)
    asked, keys = len(w.models.requests), {call.idempotency_key for *_, call in w.tools.calls}
    told = w.models.requests[-1]
    run = resumed(w)
    assert (run.status, agents.value(w, "after")) == ("SUCCEEDED", {"said": "at last"})
    anew = [(name, arguments, call) for name, arguments, call in w.tools.calls if call.idempotency_key not in keys]
    assert [(name, arguments["item"], call.path) for name, arguments, call in anew] == [
        ("reserve", "a", "research/turn[1]/call[1]"),
        ("reserve", "b", "research/turn[2]/call[0]"),
    ]
    assert [w.records.step(call.path).call.dispatch for *_, call in anew] == [2, 2]
    assert (len(w.models.requests) - asked, shop.live) == (1, 2)
    last = w.models.requests[-1]
    assert (last.system, last.prompt, [turn.calls for turn in last.turns]) == (
        told.system,
        told.prompt,
        [turn.calls for turn in told.turns],
    )
    assert [[result.failed for result in turn.results] for turn in last.turns] == [[False, False], [False]]
    check(w)


def test_an_agents_calls_are_undone_in_every_epoch():
    shop = agents.Shop()
    w = researched("no JSON", shop=shop)
    resumed(w)
    assert shop.live == 2
    w.unwind()
    assert (w.head.ended, shop.live, [one["item"] for one in shop.freed]) == ("failed", 0, ["b", "a", "b", "a"])
    check(w)


def test_what_a_model_was_told_of_a_call_that_failed_stays_so():
    def refuses(*_):
        raise NO

    shop, replies = agents.Shop(), iter(["no JSON"] * 3)
    w = researched(lambda _: next(replies, says()), shop=shop, look_up=refuses)
    run = resumed(w)
    assert (run.status, [name for name, *_ in w.tools.calls].count("look_up")) == ("SUCCEEDED", 1)
    assert w.models.requests[-1].turns[0].results[0].text == "Failed (permanent): no"
    check(w)


def test_proposed_calls_that_were_not_made_are_cancelled_and_made_in_the_next_epoch():
    w = desk(calls(book("a"), book("b")), says())
    reserve = w.tools._functions["reserve"]

    def once(arguments, call):
        request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
        return reserve(arguments, call)

    w.tools._functions["reserve"] = once
    agents.asked(w)
    w.unwind()
    assert (w.head.ended, agents.status(w, "research/turn[1]/call[1]")) == ("cancelled", "cancelled")
    w.tools._functions["reserve"] = reserve
    assert resumed(w).status == "SUCCEEDED"
    assert [arguments["item"] for name, arguments, _ in w.tools.calls if name == "reserve"] == ["a", "a", "b"]
    assert (len(w.models.requests), len(events(w, "call_proposed"))) == (2, 2)
    check(w)


def test_an_agent_without_a_completed_turn_is_asked_anew():
    replies = iter(["no JSON"] * 3)
    w = desk(lambda _: next(replies, says()), unit=agents.compiled(on_error="fail"))
    agents.asked(w)
    w.unwind()
    fresh = Published("desk", 2, "h2", "machine:desk:2", _asking_else(w.unit.manifest))
    w.define(Versions(w.unit.manifest, fresh))
    resume_run(w.steps, w.journal, Resume("ops", fresh))
    run = Execution(w, compile_manifest(fresh.manifest).asl, w.engine.executions[fresh.machine, f"{w.run}.2"])
    assert (run.status, w.models.requests[-1].prompt) == ("SUCCEEDED", "Say: who?")


def test_another_version_must_not_change_what_an_agent_has_been_asked_or_has_called():
    w = researched("no JSON", shop=agents.Shop())
    manifest_ = w.unit.manifest
    research = manifest_.steps["research"]
    fewer = replace(research, turns=replace(research.turns, tools={"look_up": research.turns.tools["look_up"]}))
    without = replace(manifest_, steps={**manifest_.steps, "research": fewer})
    for wrong, told in ((_asking_else(manifest_), "spec of step research"), (without, r"call\[1\] is gone")):
        with pytest.raises(Conflict, match=told):
            resumed(w, Published("desk", 2, "h2", "machine:desk:2", wrong))


def _asking_else(manifest_):
    research = manifest_.steps["research"]
    other = replace(research, spec={**research.spec, "prompt": "Say: ${ input.document }"})
    return replace(manifest_, steps={**manifest_.steps, "research": other})


def test_a_call_of_an_agent_that_was_given_up_is_looked_for_again_and_not_made_anew():
    shop = agents.Shop()
    shop.late = 99
    w = desk(calls(book()), says(), shop=shop)
    run, path = agents.asked(w), "research/turn[1]/call[0]"
    agents.resume(w, run, path, Order("fail", "ops"))
    w.unwind()
    assert (w.head.ended, w.records.step(path).given_up) == ("failed", "ops")
    check(w)
    kept, shop.late = dict(shop.kept), 0
    assert resumed(w).status == "SUCCEEDED"
    assert (w.records.step(path).by, shop.kept) == ("reconcile", kept)
    check(w)
