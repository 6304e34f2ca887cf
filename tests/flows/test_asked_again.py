"""A gate that is asked once more, since a call did not happen, ends in its time and as its definition says."""

from __future__ import annotations

import pytest
from bodies import each, manifest, plan
from invariants import check
from machine import UNWIND, World
from test_doubt import word

from shared.compiler import compile_manifest
from shared.errors import Conflict, StepTimeout
from shared.manifest import StepPlan
from shared.runtime.gates import Word, decide_gate, expire_again
from shared.runtime.mending import mend
from shared.runtime.resuming import Resume, resume_run
from shared.testing import FakeModels, FakeTools

HOUR = 3600


def asked(rule="reject", scope="", on_error="continue", **more):
    """Return a world whose payment was lost, did not happen, and is asked for once more; its calls, its execution."""
    calls = []

    def pay(_, call):
        calls.append(call.idempotency_key)
        if len(calls) == 1:
            raise StepTimeout("?")
        return "paid"

    spec = {"approves": "pay", "approvers": ["finance"], "on_expiry": rule, **more}
    gate = StepPlan("g", "human_gate", (), dependents=("pay",), timeout=8.0 * HOUR, on_error="fail", spec=spec)
    call = {"tool": "pay", "with": {}, "compensate": None, "reconcile": None}
    step = plan("pay", "tool", ("g",), risk="irreversible", spec=call, approved_by="g", on_error=on_error)
    steps = (each(gate, step, over=["x"]),) if scope else (gate, step)
    w = World(compile_manifest(manifest(*steps)), FakeModels(lambda _: ""), FakeTools({"pay": pay}))
    run = w.start({})
    decide_gate(w.steps, w.journal, f"{scope}g", Word("approved", "fatima@example.test"))
    run.go()
    w.clock.sleep(5 * HOUR)
    word(w, "did_not_happen", "pay", scope)
    assert w.records.gate(f"{scope}g").expires == w.clock.now() + 8 * HOUR * 1000
    return w, calls, run.go()


def unanswered(rule, scope="", **more):
    """Return the same after nobody has decided in time."""
    w, calls, run = asked(rule, scope, **more)
    passes(w, 8.1)
    return w, calls, run.go()


def passes(w, hours):
    w.clock.sleep(hours * HOUR)
    return [(one.what, one.done) for one in mend(w.steps, w.tenant, w.run, UNWIND)]


@pytest.mark.parametrize("rule", ["reject", "approve"])
def test_nobody_decides_and_the_step_fails_as_rejected_and_is_never_called_again(rule):
    w, calls, run = asked(rule)
    assert ("gate_due", "expired") not in passes(w, 7.9)
    assert ("gate_due", "expired") in passes(w, 0.2)
    assert run.go().status == "SUCCEEDED"
    failure = w.records.step("pay").failure
    assert (w.records.gate("g").status, failure.error_class, len(calls)) == ("expired", "rejected", 1)
    assert "within 28800 s" in failure.message
    with pytest.raises(Conflict):
        decide_gate(w.steps, w.journal, "g", Word("approved", "ben@example.test"))
    check(w)


@pytest.mark.parametrize("scope", ["", "each[0]/"])
def test_fail_fails_what_the_step_belongs_to_whatever_its_own_policy(scope):
    w, calls, _ = unanswered("fail", scope)
    if not scope:
        w.unwind()
    assert (w.head.ended, len(calls)) == ("completed" if scope else "failed", 1)
    if scope:
        assert w.records.step("each[0]").failure.error_class == "rejected"
    check(w)


def test_pause_pauses_the_step():
    w, calls, run = unanswered("pause")
    step = w.records.step("pay")
    assert (w.head.state, step.status, step.reason) == ("paused", "paused", "step_error")
    word(w, "accept", "pay", result="by hand")
    assert (run.go().status, len(calls)) == ("SUCCEEDED", 1)
    check(w)


@pytest.mark.parametrize("scope", ["", "each[0]/"])
def test_a_step_whose_new_approval_was_not_given_is_asked_about_once_more_by_a_retry(scope):
    w, calls, run = unanswered("pause", scope)
    before = w.records.gate(f"{scope}g")
    word(w, "retry", "pay", scope)
    gate = w.records.gate(f"{scope}g")
    assert (before.status, gate.status, gate.dispatch, w.head.state) == ("expired", "open", 2, "waiting_for_human")
    assert gate.id != before.id
    check(w)
    decide_gate(w.steps, w.journal, f"{scope}g", Word("approved", "ben@example.test", request=gate.id))
    assert (run.go().status, w.head.ended, len(calls)) == ("SUCCEEDED", "completed", 2)
    check(w)


@pytest.mark.parametrize("rule", ["reject", "fail"])
def test_a_run_that_ended_without_its_new_approval_asks_for_it_when_it_is_resumed(rule):
    w, calls, run = unanswered(rule, on_error="fail")
    w.unwind()
    assert w.head.ended == "failed"
    resume_run(w.steps, w.journal, Resume("ops"))
    run = w.execution()
    gate = w.records.gate("g")
    assert (gate.status, w.records.step("g").status) == ("open", "waiting")
    decide_gate(w.steps, w.journal, "g", Word("approved", "ben@example.test", request=gate.id))
    assert (run.go().status, len(calls)) == ("SUCCEEDED", 2)
    check(w)


def test_it_reminds_and_escalates_before_that():
    w, _, _ = asked(remind_after=2.0 * HOUR, escalate=[{"after": 4.0 * HOUR, "to": ["finance_lead"]}])
    assert ("gate_due", "reminded") in passes(w, 2.1)
    assert ("gate_due", "escalated") in passes(w, 2)
    assert ("gate_due", "expired") in passes(w, 4)
    told = [event.data for event in w.journal.events() if event.type == "gate_decided"][-1]
    assert told == {"decision": "expired", "by": "expiry", "tier": 2}


def test_who_decides_in_time_is_not_overtaken_and_a_second_look_changes_nothing():
    w, calls, run = asked()
    w.clock.sleep(7.9 * HOUR)
    decide_gate(w.steps, w.journal, "g", Word("approved", "ben@example.test"))
    w.clock.sleep(HOUR)
    assert not expire_again(w.steps, w.journal, "g")
    assert (run.go().status, len(calls)) == ("SUCCEEDED", 2)
    check(w)


def test_one_that_expires_twice_expires_once():
    w, _, run = asked()
    w.clock.sleep(9 * HOUR)
    assert expire_again(w.steps, w.journal, "g")
    assert not expire_again(w.steps, w.journal, "g")
    assert run.go().status == "SUCCEEDED"
    check(w)
