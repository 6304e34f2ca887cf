"""A call that changes something and may have happened: only a person, or a probe, says whether it did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import each, loop, manifest, output, plan, said, task, tool, world
from invariants import check
from machine import LAMBDA_SECONDS, UNWIND, Killed, TimedOut, World
from test_waits_and_children import CHILD_BUDGET, family

from shared.api.listing import dead
from shared.compiler import compile_manifest
from shared.errors import Conflict, PermanentFailure, RateLimited, StepTimeout, TransientFailure
from shared.ledger.records import Failure
from shared.manifest import Limits, Retry
from shared.runtime.ending import request
from shared.runtime.gates import Word, decide_gate
from shared.runtime.journal import Change
from shared.runtime.parking import NOT_KNOWN, Order, resume_step
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.scopes import fail_item
from shared.runtime.words import possible
from shared.testing import FakeModels, FakeTools, FixedDefinitions


def change(name, *needs, say=None, reconcile=None, **more):
    """Return a step whose call changes something and can be undone."""
    undo = {"tool": "do", "with": {"say": f"undo ${{ steps.{name}.output }}"}}
    spec = {"tool": "do", "with": {"say": say or name}, "compensate": undo, "reconcile": reconcile}
    return plan(name, "tool", needs, risk="reversible", spec=spec, **more)


def fails(**words):
    """Return a tool that raises by word, as often as errors are listed; the last one for ever."""

    def do(arguments, _):
        errors = words.get(arguments["say"], [])
        if errors:
            raise (errors.pop(0) if len(errors) > 1 else errors[0])
        return arguments["say"]

    return do


LOST, NO = StepTimeout("?"), PermanentFailure("no")
ITEMS = {"over": ["x", "y"], "on_failure": "collect_all"}


def word(w, action, step, scope="", result="given"):
    order = Order(action, "ops", result=result if action == "accept" else None)
    resume_step(w.steps, task(w, step, scope), order, UNWIND)


def body_of(kind, *steps, **more):
    return each(*steps, **ITEMS, **more) if kind == "map" else loop(*steps, until="true", **more)


@pytest.mark.parametrize("rule", ["fail", "continue"])
@pytest.mark.parametrize(("kind", "scope"), [("map", "each[1]/"), ("loop", "again[1]/")])
@pytest.mark.parametrize("action", ["accept", "skip", "retry", "fail"])
def test_an_item_waits_for_the_word_on_a_call_that_may_have_happened(rule, kind, scope, action):
    items = "${ index == 1 ? 'a' : 'fine' }" if kind == "map" else "a"
    w = world(body_of(kind, change("a", say=items, on_error=rule), tool("b", "a")), do=fails(a=[LOST]))
    run = w.start({})
    assert (run.status, w.records.step(f"{scope}a").status) == ("RUNNING", "unknown")
    assert w.head.state == "paused"
    w.tools._functions["do"] = lambda arguments, _: arguments["say"]
    word(w, action, "a", scope)
    run.go()
    if action == "fail":
        w.unwind()
        assert w.records.step(f"{scope}a").given_up == "ops"
    else:
        assert run.status == "SUCCEEDED"
        assert w.records.step(f"{scope}a").status == ("skipped" if action == "skip" else "completed")
    assert w.head.ended == ("failed" if action == "fail" else "completed")
    check(w)


def _answer_all(w):
    """Unwind the run while a person leaves every call in doubt as it is."""

    def word():
        step = next(one for one in w.records.steps() if one.status == "unknown" and not one.settled)
        resume_step(w.steps, task(w, step.path), Order("skip", "ops"), UNWIND)

    w.unwind(word)


@pytest.mark.parametrize("policy", ["fail_fast", "collect_all"])
@pytest.mark.parametrize("left", ["retrying", "paused"])
def test_a_call_in_doubt_outlives_the_failure_of_its_item(policy, left):
    retry = Retry(1, base_delay=60.0, jitter=False) if left == "retrying" else Retry(0)
    doubtful = change("a", on_error="pause" if left == "paused" else "continue", retry=retry)
    steps = (doubtful, tool("b", on_error="fail"))
    w = world(each(*steps, over=[1], on_failure=policy, on_error="continue"), do=fails(a=[LOST], b=[NO]))
    run = w.start({})
    assert (run.status, w.records.step("each[0]/a").status) == ("RUNNING", "unknown")
    check(w)
    with pytest.raises(Conflict):
        word(w, "retry", "a", "each[0]/")
    word(w, "accept", "a", "each[0]/")
    assert run.go().status == "SUCCEEDED"
    assert w.records.step("each").status == ("failed" if policy == "fail_fast" else "completed")
    check(w)


@pytest.mark.parametrize("error", [LOST, Killed()])
def test_a_call_is_in_doubt_that_fails_after_its_item(error):
    def do(arguments, _):
        failure = Failure("permanent", "no")
        w.journal.transact(w.records, lambda seen: Change(None, *fail_item(seen, "each[0]/", failure, whole=False)))
        raise error

    w = world(each(change("a", on_error="fail"), over=[1]), do=do)
    run = w.start({})
    assert (run.status, w.records.step("each[0]/a").status) == ("RUNNING", "unknown")
    word(w, "skip", "a", "each[0]/")
    assert run.go().status == "SUCCEEDED"
    assert output(w, "each")["failed"] == 1
    check(w)


def given_up(kind="irreversible"):
    """Return a world in which a person has given up finding out what became of a call of ``a``, and its execution."""
    if kind == "fallback":
        w = standing_in(tool("z"), change("a", "z", fallback="f"), tool("b", "a"), a=[NO], f=[LOST])
    elif kind == "reversible":
        w = world(change("z"), change("a", "z", on_error="continue"), tool("b", "a"), do=fails(a=[LOST]))
    else:
        spec = {"approves": "a", "approvers": ["finance"], "on_expiry": "reject"}
        gate = plan("g", "human_gate", ("z",), timeout=60.0, spec=spec)
        paid = replace(tool("a", "g"), risk="irreversible", approved_by="g")
        w = world(tool("z"), gate, paid, tool("b", "a"), do=fails(a=[LOST]))
    run = w.start({})
    approve(w)
    run.go()
    assert (w.head.state, w.records.step("a").status) == ("paused", "unknown")
    word(w, "fail", "a")
    run.go()
    return w, run


def approve(w):
    gate = w.records.gate("g")
    if gate and gate.status == "open":
        decide_gate(w.steps, w.journal, "g", Word("approved", "fatima@example.test"))


KINDS = ["irreversible", "reversible", "fallback"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_a_person_gives_up_stays_unknown_and_its_run_fails(kind):
    w, run = given_up(kind)
    assert run.status.startswith("FAILED")
    w.unwind()
    assert (w.head.ended, w.head.reason) == ("failed", f"step a: given up by ops, {NOT_KNOWN}")
    paths = ["a", "a/fallback"] if kind == "fallback" else ["a"]
    for step in map(w.records.step, paths):
        assert (step.status, step.settled, step.given_up) == ("unknown", True, "ops")
    events = [event for event in w.journal.events() if event.type == "call_given_up"]
    undoable = kind != "irreversible"
    assert [(event.path, event.data) for event in events] == [
        (path, {"by": "ops", "not_undone": undoable}) for path in paths
    ]
    ((_, letter),) = dead(w.store, w.tenant, None, 9)
    assert (letter.path, letter.error_class, letter.key) == ("a", "unknown_outcome", w.records.step("a").call.key)
    assert "given up by ops: whether its call happened is not known" in letter.message
    assert ("is not undone" in letter.message) == undoable
    assert [one for one in said(w) if "undo" in one] == (["undo z"] if kind == "reversible" else [])
    check(w)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", ["accept", "did_not_happen", "fail"])
def test_what_was_given_up_is_asked_about_again_when_the_run_is_resumed(kind, action):
    w, _ = given_up(kind)
    w.unwind()
    w.tools._functions["do"] = lambda arguments, _: arguments["say"]
    before, calls = said(w), {"a", "f"}
    resume_run(w.steps, w.journal, Resume("ops"))
    run = w.execution()
    assert (w.records.step("a").status, w.head.state) == ("unknown", "paused")
    assert not calls.intersection(said(w)[len(before) :])
    check(w)
    word(w, action, "a")
    run.go()
    approve(w)
    run.go()
    if action == "fail":
        w.unwind()
    denied = action == "did_not_happen"
    ends = {"fail": "failed", "did_not_happen": "paused" if kind == "fallback" else "completed"}
    assert w.head.state == ends.get(action, "completed")
    assert calls.intersection(said(w)[len(before) :]) == ({"a"} if denied and kind != "fallback" else set())
    check(w)


def test_a_call_that_was_given_up_holds_back_no_later_end_of_its_run():
    w, _ = given_up("reversible")
    w.unwind()
    w.tools._functions["do"] = fails(z=[NO])
    resume_run(w.steps, w.journal, Resume("ops"))
    run = w.execution()
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    run.go()
    w.unwind()
    assert (w.head.ended, w.records.step("a").given_up) == ("cancelled", "ops")
    check(w)


def test_while_a_run_ends_a_call_in_doubt_is_accepted_denied_skipped_or_given_up_and_not_made_again():
    w = world(change("a", retry=Retry(0), on_error="pause"), do=fails(a=[LOST]))
    w.start({})
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w.call("${ControlFunction}", {"run": w.engine.executions[UNWIND, f"{w.run}.1"]["run"], "op": "unwind"})
    assert possible(w.records, w.records.step("a")) == ("accept", "did_not_happen", "skip", "fail")
    with pytest.raises(Conflict, match="ends as cancelled: of a, say accept with its result, did_not_happen, skip or"):
        word(w, "retry", "a")
    word(w, "fail", "a")
    w.unwind()
    assert (w.head.ended, w.head.reason, w.records.step("a").given_up) == ("cancelled", "by ops", "ops")
    check(w)


def test_a_process_that_dies_in_a_failed_item_holds_nothing():
    def do(arguments, _):
        if arguments["say"] == "b":
            raise NO
        raise Killed

    w = world(each(tool("b", on_error="fail"), tool("a"), over=[1], on_failure="collect_all"), do=do)
    assert w.start({}).status == "SUCCEEDED"
    assert output(w, "each")["failed"] == 1
    check(w)


@pytest.mark.parametrize("second", [PermanentFailure("duplicate"), RateLimited("later")])
def test_a_second_failure_does_not_remove_the_doubt_about_the_first(second):
    w = world(change("a", retry=Retry(1), on_error="continue"), do=fails(a=[LOST, second]))
    run = w.start({})
    assert (run.status, w.records.step("a").status) == ("RUNNING", "unknown")
    word(w, "skip", "a")
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_a_probe_that_finds_nothing_removes_the_doubt():
    probe = {"tool": "do", "with": {"say": "look"}, "found": "result == 'yes'", "conclusive_after": 0}
    step = change("a", retry=Retry(1), on_error="continue", reconcile=probe)
    w = world(step, do=fails(a=[LOST, NO]))
    assert w.start({}).status == "SUCCEEDED"
    assert (w.records.step("a").status, said(w)) == ("failed", ["a", "look", "a"])
    check(w)


def test_a_probe_that_fails_proves_nothing():
    probe = {"tool": "do", "with": {"say": "look"}, "found": "result == 'yes'", "conclusive_after": 0}
    step = change("a", retry=Retry(1), on_error="continue", reconcile=probe)
    w = world(step, do=fails(a=[LOST], look=[PermanentFailure("401")]))
    w.start({})
    assert (w.head.state, w.records.step("a").status) == ("paused", "unknown")
    check(w)


def test_a_retry_that_no_budget_is_left_for_does_not_remove_the_doubt():
    step = change("a", retry=Retry(1), budget=Limits(steps=1), on_error="pause")
    w = world(step, do=fails(a=[LOST]))
    w.start({})
    assert w.records.step("a").reason == "budget_exceeded"
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    _answer_all(w)
    assert [event.type for event in w.journal.events()].count("step_unknown") == 1
    check(w)


def standing_in(*steps, **words):
    """Return a world with a fallback ``f`` that changes something, and a tool that fails by word."""
    made = manifest(*steps)
    made = replace(made, steps={**made.steps, "f": change("f")})
    return World(compile_manifest(made), FakeModels(lambda _: "yes"), FakeTools({"do": fails(**words)}))


def test_no_fallback_stands_in_for_a_call_that_may_have_happened():
    w = standing_in(change("a", fallback="f"), a=[LOST])
    run = w.start({})
    assert (said(w), w.records.step("a").status) == (["a"], "unknown")
    word(w, "skip", "a")
    assert run.go().status == "SUCCEEDED"
    check(w)


@pytest.mark.parametrize("action", ["accept", "skip"])
@pytest.mark.parametrize("rule", ["fail", "continue", "pause"])
def test_the_word_on_a_fallback_in_doubt_is_given_on_its_step(rule, action):
    step = change("a", fallback="f", on_error=rule)
    w = standing_in(step, a=[NO], f=[TransientFailure("?")])
    run = w.start({})
    assert (run.status, w.records.step("a").status) == ("RUNNING", "unknown")
    with pytest.raises(Conflict):
        word(w, "retry", "a")
    word(w, action, "a")
    assert run.go().status == "SUCCEEDED"
    wanted = {"accept": ("completed", "completed"), "skip": ("skipped", "skipped")}[action]
    assert (w.records.step("a").status, w.records.step("a/fallback").status) == wanted
    check(w)


def test_a_step_that_a_person_lets_be_tried_again_has_its_fallback_again():
    w = standing_in(change("a", fallback="f"), a=[NO], f=[NO])
    run = w.start({})
    assert (w.records.step("a").status, w.records.step("a").reason) == ("paused", "step_error")
    w.tools._functions["do"] = fails(a=[NO])
    word(w, "retry", "a")
    assert run.go().status == "SUCCEEDED"
    assert (w.records.step("a").status, w.records.step("a").by) == ("completed", "fallback")
    assert said(w) == ["a", "f", "a", "f"]
    check(w)


def test_a_fallback_is_not_given_up_while_its_process_may_be_alive():
    w = standing_in(change("a", fallback="f"), a=[NO], f=[LOST])
    do = w.tools._functions["do"]

    def stalls(arguments, call):
        if arguments["say"] == "f":
            raise TimedOut
        return do(arguments, call)

    w.tools._functions["do"] = stalls
    before = w.clock.now()
    w.start({})
    (lost,) = [event for event in w.journal.events() if event.type == "attempt_lost"]
    assert (lost.path, lost.at - before >= LAMBDA_SECONDS * 1000) == ("a/fallback", True)
    assert w.records.step("a").status == "unknown"
    check(w)


def test_what_a_fallback_did_is_undone_and_what_its_step_did_not_do_is_not():
    w = standing_in(change("a", fallback="f"), tool("b", "a", on_error="fail"), a=[NO], b=[NO])
    w.start({})
    w.unwind()
    assert said(w) == ["a", "f", "b", "undo f"]
    check(w)


def test_an_item_that_has_failed_waits_for_the_end_of_its_child():
    child = compile_manifest(manifest(tool("c"), name="child", budget=CHILD_BUDGET))
    sub = plan("sub", "sub_workflow", (), spec={"workflow": "child", "version": None, "with": {}})
    w = world(each(sub, tool("b", on_error="fail"), over=[1]), do=fails(b=[NO], c=[NO]))
    definitions = FixedDefinitions(w.unit.manifest, child.manifest)
    w.define(definitions)
    run = w.start({})
    ports = (w.models, w.tools, w.store, w.blobs, w.clock, w.engine, w.mail)
    below = World(child, *ports, run=w.records.step("each[0]/sub").child).define(definitions)
    assert (run.status, below.head.unwinding) == ("RUNNING", "cancelled")
    check(w)
    below.execution()
    below.unwind()
    assert run.go().status == "SUCCEEDED"
    check(w)
    check(below)


def test_a_child_that_could_not_be_created_leaves_nothing_paused_behind():
    w, _ = family(tool("c"), budget=Limits(steps=1000))
    w.start({})
    assert w.head.state == "paused"
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w.unwind()
    assert w.head.state == "cancelled"
    check(w)
