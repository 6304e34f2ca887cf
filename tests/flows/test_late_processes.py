"""Processes that come late, or hear too late what they did: given up by the engine, delivered twice, answers lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import manifest, said, task, tool, world
from invariants import check
from machine import LAMBDA_SECONDS, UNWIND, TimedOut, World
from test_doubt import word
from test_probes import FarSide, approve, in_doubt, paid

from shared.compiler import compile_manifest
from shared.errors import ApprovalMismatch, StoreConflict, TransientFailure
from shared.manifest import Retry
from shared.runtime.cascade import cascade
from shared.runtime.steps import NotOpened
from shared.testing import FakeModels, FakeTools


def deliver(w, run, step, op="run"):
    """Deliver a step's task once more, beside the execution."""
    return w.call("${StepFunction}", {"op": op, "step": step, "run": run.input["run"]})


def before_its_commit(w, meanwhile):
    """Let all this happen just before the next commit."""

    def first(_):
        w.store.before_commit = lambda _: None
        meanwhile()

    w.store.before_commit = first


def loses_an_answer(w, number):
    """Let the answer to a commit be lost, so that its repetition by the client meets what it has written itself."""
    commit, commits = w.store.commit, []

    def lost(writes):
        commits.append(1)
        commit(writes)
        if len(commits) == number:
            raise StoreConflict("its own write")

    w.store.commit = lost


def events(w, kind):
    return [event for event in w.journal.events() if event.type == kind]


@pytest.mark.parametrize("first", ["denied", "approved"])
def test_a_process_that_was_given_up_does_not_make_a_call_that_is_to_be_made_anew(first):
    bank, w, run = in_doubt(lost=2)
    word(w, "did_not_happen", "pay")
    approve(w)

    def meanwhile():
        run.go()  # another process has made the call, of which nobody knows either
        word(w, "did_not_happen", "pay")
        if first == "approved":
            approve(w)

    before_its_commit(w, meanwhile)
    with pytest.raises(NotOpened):
        deliver(w, run, "pay")
    if first == "denied":
        approve(w)
    assert len(bank.keys) == 2
    assert run.go().status == "SUCCEEDED"
    assert (len(set(bank.keys)), w.records.step("pay").call.dispatch) == (3, 3)
    check(w)


def test_who_comes_while_an_approval_is_asked_for_once_more_changes_nothing():
    bank, w, run = in_doubt()
    word(w, "did_not_happen", "pay")
    before = w.records.step("pay")
    with pytest.raises(ApprovalMismatch):
        deliver(w, run, "pay")
    assert (w.records.step("pay"), len(bank.keys)) == (before, 1)
    approve(w)
    assert run.go().status == "SUCCEEDED"
    assert len(set(bank.keys)) == 2
    check(w)


def test_a_probe_of_an_earlier_attempt_says_nothing_about_the_next_one():
    far_side = FarSide(arrives=False, answers=[0] * 4)
    w, run = paid(far_side, risk="irreversible", after=3600.0)
    assert w.records.step("pay").status == "unknown"
    far_side.answers = [0]
    fence = w.records.step("pay").fence

    def meanwhile():
        word(w, "did_not_happen", "pay")
        approve(w)
        far_side.answers = [0] * 8
        run.go()

    before_its_commit(w, meanwhile)
    w.clock.sleep(3600)
    deliver(w, run, "pay", op="probe")
    step = w.records.step("pay")
    assert (step.status, step.fence > fence, len(far_side.posted)) == ("unknown", True, 1)
    check(w)


@pytest.mark.parametrize("number", [2, 3], ids=["open", "close"])
def test_who_hears_too_late_what_it_has_written_goes_on_as_if_it_had_heard(number):
    w = world(tool("a"))
    loses_an_answer(w, number)
    run = w.start({})
    assert (run.status, run.visited, said(w)) == ("SUCCEEDED", ["a", "finish", "completed"], ["a"])
    assert len(events(w, "step_opened")) == len(events(w, "step_completed")) == 1
    check(w)


def test_a_failure_before_the_call_is_told_once_however_often_it_is_recorded():
    w = world(tool("a", say="${ input.nowhere }", on_error="fail"))
    loses_an_answer(w, 2)
    w.start({})
    assert len(events(w, "step_failed")) == 1
    w.unwind()
    check(w)


@pytest.mark.parametrize(("seconds", "calls"), [(LAMBDA_SECONDS, ["a"]), (LAMBDA_SECONDS + 1, [])])
def test_a_call_is_made_only_by_a_process_that_outlasts_its_time_out(seconds, calls):
    w = world(tool("a", timeout=float(seconds), retry=Retry(1)))
    w.start({})
    assert said(w) == calls
    if not calls:
        step = w.records.step("a")
        assert (step.status, step.failure.error_class, step.attempt, step.spent.steps) == ("paused", "transient", 0, 0)
    check(w)


def test_a_delivery_that_the_engine_gave_up_before_it_opened_does_not_open_without_its_slot():
    unit = compile_manifest(replace(manifest(tool("a", retry=Retry(1)), tool("b")), max_parallel=1))
    w = World(unit, FakeModels(lambda _: ""), FakeTools({"do": lambda arguments, _: arguments["say"]}))
    call, late = w.call, []

    def gives_up(function, event):
        if event.get("step") == "a" and event["op"] == "run" and not late:
            late.append(event)
            raise TimedOut
        answer = call(function, event)
        if event["op"] == "cascade":  # which has taken the slot away by now
            with pytest.raises(NotOpened, match="its slot has gone to another step"):
                call("${StepFunction}", late[0])
            late.append("refused")
        return answer

    w.call = gives_up
    assert w.start({}).status == "SUCCEEDED"
    assert (late[1:], sorted(said(w)), w.head.slots) == (["refused"], ["a", "b"], 0)
    check(w)


@pytest.mark.parametrize("risk", ["read", "reversible"])
def test_a_late_visit_of_the_cascade_does_not_give_up_the_attempt_that_is_under_way(risk):
    visits, late = [], []

    def do(given, call):
        visits.append(w.records.step("a").cascade)
        if call.attempt < 3:
            raise TransientFailure("busy")
        visit = replace(task(w, "a"), op="cascade", entry=f"{visits[1]}|1", error="Lambda.Unknown")
        late.append(cascade(w.steps, visit, UNWIND))
        assert w.records.step("a").open
        return given["say"]

    w = world(tool("a", risk=risk, retry=Retry(2, jitter=False), on_error="pause"), do=do)
    assert w.start({}).status == "SUCCEEDED"
    assert (len(late), w.records.step("a").attempt) == (1, 3)
    check(w)
