"""A declared probe says what became of a call that may have happened, before any person is asked."""

from __future__ import annotations

from dataclasses import replace

import agents
import pytest
from bodies import manifest, plan, tool
from invariants import check
from machine import UNWIND, Killed, World
from test_doubt import word

from shared.compiler import compile_manifest
from shared.errors import Conflict, StepTimeout, TransientFailure
from shared.manifest import Limits, Retry, StepPlan
from shared.runtime.ending import request
from shared.runtime.gates import Word, decide_gate
from shared.runtime.journal import Change
from shared.runtime.mailing import ask_again
from shared.runtime.parking import Order
from shared.testing import FakeModels, FakeTools

FIND = {"tool": "find", "with": {"key": "${ call.idempotency_key }"}, "found": "result.count > 0"}
LOST = StepTimeout("?")


class FarSide:
    """Posts a document a key; what it posts may be found late, and it may be down."""

    def __init__(self, *, arrives=True, answers=(), dies=False):
        self.posted, self.arrives, self.answers, self.dies = [], arrives, list(answers), dies
        self.world, self.meanwhile = None, lambda _: None

    def do(self, arguments, call):
        if arguments["say"] != "pay":
            return arguments["say"]
        if self.arrives:
            self.posted.append(call.idempotency_key)
        self.arrives = True
        self.meanwhile(self.world)
        if self.dies:
            self.dies = False
            raise Killed
        raise LOST

    def find(self, arguments, _):
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return {"count": answer}
        return {"count": self.posted.count(arguments["key"])}


def paid(far_side, *, risk="reversible", after=0.0, probe=True, patient=False, **more):
    undo = {"tool": "do", "with": {"say": "undo"}} if risk == "reversible" else None
    spec = {"tool": "do", "with": {"say": "pay"}, "compensate": undo}
    spec["reconcile"] = FIND | {"conclusive_after": after} if probe else None
    steps = [tool("after", "pay")]
    gated = {}
    if risk == "irreversible":
        gate = {"approves": "pay", "approvers": ["finance"], "on_expiry": "reject"}
        steps.append(StepPlan("g", "human_gate", (), dependents=("pay",), timeout=3600.0, on_error="fail", spec=gate))
        gated = {"approved_by": "g"}
    steps.append(plan("pay", "tool", ("g",) if gated else (), risk=risk, spec=spec, **gated, **more))
    limits = Limits(usd=10**9, tokens=1000, steps=20, active_time=600.0)
    made = replace(manifest(*steps), budget=limits)
    tools = FakeTools({"do": far_side.do, "find": far_side.find})
    w = far_side.world = World(compile_manifest(made), FakeModels(lambda _: ""), tools, patient=patient)
    run = w.start({})
    if gated:
        decide_gate(w.steps, w.journal, "g", Word("approved", "fatima@example.test"))
        run.go()
    return w, run


def probed(w):
    return [event.data["found"] for event in w.journal.events() if event.type == "call_probed"]


@pytest.mark.parametrize("risk", ["reversible", "irreversible"])
@pytest.mark.parametrize("dies", [False, True])
def test_what_is_found_completes_the_step_and_nothing_is_called_twice(risk, dies):
    far_side = FarSide(dies=dies)
    w, run = paid(far_side, risk=risk)
    assert run.status == "SUCCEEDED"
    assert len(far_side.posted) == 1
    assert (w.records.step("pay").status, w.records.step("pay").by) == ("completed", "reconcile")
    assert w.records.step("after").status == "completed"
    check(w)


def test_a_far_side_that_is_slow_to_know_is_asked_again():
    far_side = FarSide(answers=[TransientFailure("down"), 0, 0])
    w, run = paid(far_side, risk="irreversible", after=3600.0)
    assert run.status == "SUCCEEDED"
    assert probed(w) == [False, False, False, True]
    assert len(far_side.posted) == 1
    check(w)


def test_who_is_not_found_too_early_stays_unknown_and_a_person_sees_what_was_answered():
    far_side = FarSide(arrives=False)
    w, run = paid(far_side, risk="irreversible", after=3600.0)
    assert (run.status, w.head.state, w.records.step("pay").status) == ("RUNNING", "paused", "unknown")
    assert probed(w) == [False] * 4
    assert '{"count":0}' in w.records.step("pay").failure.message
    word(w, "accept", "pay", result="by hand")
    run.go()
    assert run.status == "SUCCEEDED"
    check(w)


def test_proof_that_is_near_is_waited_for():
    far_side = FarSide(arrives=False)
    w, run = paid(far_side, risk="irreversible", after=60.0, on_error="continue")
    assert run.status == "SUCCEEDED"
    assert (w.records.step("pay").status, far_side.posted) == ("failed", [])
    assert w.records.step("pay").failure.message.startswith("It did not happen.")
    check(w)


def test_a_reversible_call_that_did_not_happen_is_made_again_with_its_key():
    far_side = FarSide(arrives=False)
    w, run = paid(far_side, retry=Retry(1, on=("timeout",)))
    assert run.status == "SUCCEEDED"
    assert len(far_side.posted) == 1
    keys = {call.idempotency_key for name, _, call in w.tools.calls if name == "do" and call.path == "pay"}
    assert len(keys) == 1
    check(w)


def test_a_call_whose_process_died_long_ago_is_proved_not_to_have_happened():
    far_side = FarSide(arrives=False, dies=True)
    w, run = paid(far_side, after=3600.0, patient=True, retry=Retry(1))
    w.clock.sleep(2 * 3600)
    for _ in range(3):  # the waits for the process's end, before the retry, and before the probe of that
        run.go()
    assert (run.status, len(far_side.posted)) == ("SUCCEEDED", 1)
    check(w)


def test_each_attempt_is_asked_about_as_often_as_the_first():
    slow = [TransientFailure("down")] * 3
    far_side = FarSide(arrives=False, answers=[*slow, 0, *slow])
    w, run = paid(far_side, risk="irreversible")
    assert (run.status, w.records.step("pay").status) == ("RUNNING", "paused")
    word(w, "retry", "pay")
    assert run.go().status == "SUCCEEDED"
    assert (probed(w), len(far_side.posted)) == ([False] * 7 + [True], 1)
    check(w)


@pytest.mark.parametrize("after", [0.0, 7200.0])
@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("risk", ["reversible", "irreversible"])
def test_a_run_that_ends_has_the_far_side_asked_before_any_person(risk, arrives, after):
    far_side = FarSide(arrives=arrives)
    far_side.meanwhile = lambda w: request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w, _ = paid(far_side, risk=risk, after=after)
    w.unwind()
    assert w.head.ended == "cancelled"
    expected = {True: "compensated" if risk == "reversible" else "completed", False: "failed"}[arrives]
    assert w.records.step("pay").status == expected
    assert set(probed(w)) == {arrives}
    undone = [given for name, given, _ in w.tools.calls if given.get("say") == "undo"]
    assert len(undone) == (risk == "reversible" and arrives)
    check(w)


class Bank:
    """Calls that time out; whether they arrived, only a person can find out."""

    def __init__(self, lost=1):
        self.keys, self.lost, self.world = [], lost, None

    def do(self, arguments, call):
        if arguments["say"] != "pay":
            return arguments["say"]
        self.keys.append(call.idempotency_key)
        if len(self.keys) <= self.lost:
            raise LOST
        return "paid"

    def find(self, *_):
        raise AssertionError("nobody asks")


def in_doubt(*, risk="irreversible", lost=1, **more):
    bank = Bank(lost)
    w, run = paid(bank, risk=risk, probe=False, **more)
    if risk == "reversible":
        w.journal.transact(w.records, unknown)
    assert w.records.step("pay").status == "unknown"
    return bank, w, run


def unknown(seen):
    return Change(None, (replace(seen.step("pay"), status="unknown"),))


def approve(w, decision="approved"):
    decide_gate(w.steps, w.journal, "g", Word(decision, "ben@example.test"))


def test_an_irreversible_call_that_did_not_happen_needs_another_approval():
    bank, w, run = in_doubt()
    first = w.records.gate("g")
    word(w, "did_not_happen", "pay")
    run.go()
    asked = w.records.gate("g")
    assert (w.head.state, asked.status, asked.dispatch) == ("waiting_for_human", "open", 2)
    assert (asked.id != first.id, asked.digest) == (True, first.digest)
    assert len(bank.keys) == 1, "nothing is called before that"
    with pytest.raises(Conflict, match="asked once more"):
        decide_gate(w.steps, w.journal, "g", Word("approved", "fatima@example.test", request=first.id))
    approve(w)
    approve(w)
    run.go()
    assert run.status == "SUCCEEDED"
    assert len(bank.keys) == len(set(bank.keys)) == 2
    assert (w.records.step("pay").call.dispatch, w.records.gate("g").by) == (2, "ben@example.test")
    check(w)


def test_who_approves_is_written_to_again_once():
    _, w, run = in_doubt()
    told = {"tenant": w.tenant, "run": w.run, "path": "g"}
    ask_again(w.gates, told)
    sent = len(w.mail.messages)
    word(w, "did_not_happen", "pay")
    w.mail.failure = TransientFailure("down")
    with pytest.raises(TransientFailure):
        ask_again(w.gates, told)
    w.mail.failure = None
    for _ in range(2):
        ask_again(w.gates, told)
    assert len(w.mail.messages) == 2 * sent, "once a request: before it, and repeated, nobody hears anything"
    approve(w)
    ask_again(w.gates, told)
    run.go()
    assert (run.status, len(w.mail.messages)) == ("SUCCEEDED", 2 * sent)
    check(w)


@pytest.mark.parametrize(("rule", "ends"), [("continue", "SUCCEEDED"), ("fail", "FAILED")])
def test_a_new_approval_that_is_refused_fails_the_step(rule, ends):
    bank, w, run = in_doubt(on_error=rule)
    word(w, "did_not_happen", "pay")
    approve(w, "rejected")
    run.go()
    assert run.status.startswith(ends)
    assert (w.records.step("pay").status, w.records.step("pay").failure.error_class) == ("failed", "rejected")
    assert len(bank.keys) == 1
    check(w)


def test_a_second_doubt_can_be_denied_as_well():
    bank, w, run = in_doubt(lost=2)
    for dispatch in (2, 3):
        word(w, "did_not_happen", "pay")
        assert w.records.gate("g").dispatch == dispatch
        approve(w)
        run.go()
    assert run.status == "SUCCEEDED"
    assert len(set(bank.keys)) == 3
    check(w)


def test_a_run_can_be_cancelled_while_an_approval_is_asked_for_again():
    bank, w, run = in_doubt()
    word(w, "did_not_happen", "pay")
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w.unwind()
    run.go()
    assert (w.head.ended, w.records.gate("g").status) == ("cancelled", "cancelled")
    with pytest.raises(Conflict):
        approve(w)
    assert len(bank.keys) == 1
    check(w)


def test_a_reversible_call_that_did_not_happen_is_made_anew_with_another_key():
    bank, w, run = in_doubt(risk="reversible")
    word(w, "did_not_happen", "pay")
    run.go()
    assert run.status == "SUCCEEDED"
    assert len(set(bank.keys)) == 2
    check(w)


def test_an_agents_call_that_did_not_happen_is_made_anew_with_what_its_model_proposed():
    shop = agents.Shop()
    shop.late = 99
    w = agents.desk(agents.calls(agents.book()), agents.says(), shop=shop)
    run, path = agents.asked(w), "research/turn[1]/call[0]"
    first = w.records.step(path)
    assert (first.status, first.reason) == ("unknown", "unknown_outcome")
    shop.late = 0
    shop.kept.clear()
    assert agents.resume(w, run, path, Order("did_not_happen", "ops")).status == "SUCCEEDED"
    again = w.records.step(path)
    assert (again.status, again.call.dispatch, again.arguments) == ("completed", 2, first.arguments)
    assert (list(shop.kept), len(w.models.requests)) == ([again.call.key], 2)
    check(w)


def test_an_agents_call_is_asked_about_while_its_run_ends():
    shop = agents.Shop()
    shop.late = 99
    w = agents.desk(agents.calls(agents.book()), agents.says(), shop=shop)
    agents.asked(w)
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    shop.late = 0
    w.journal.transact(w.records, unasked)
    w.unwind()
    assert (w.head.ended, w.records.step("research/turn[1]/call[0]").status) == ("cancelled", "compensated")
    assert shop.live == 0
    check(w)


def unasked(seen):
    return Change(None, (replace(seen.step("research/turn[1]/call[0]"), probes=0),))


def test_only_a_call_in_doubt_can_be_denied():
    w, _ = paid(FarSide(answers=[0] * 9), risk="irreversible", after=3600.0)
    word(w, "did_not_happen", "pay")
    with pytest.raises(Conflict):
        word(w, "did_not_happen", "pay")


def test_a_run_that_ends_is_told_that_a_call_did_not_happen():
    bank, w, _ = in_doubt()
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w.unwind(lambda: word(w, "did_not_happen", "pay"))
    assert (w.head.ended, w.records.step("pay").status, len(bank.keys)) == ("cancelled", "failed", 1)
    check(w)


def test_an_approval_of_one_dispatch_does_not_cover_another():
    _, w, run = in_doubt()
    word(w, "did_not_happen", "pay")
    w.journal.transact(
        w.records, lambda seen: Change(None, (replace(seen.step("pay"), status="retrying", reason=None),))
    )
    run.go()
    w.engine.succeed(run.waiting[0], {"action": "retry", "seconds": 0})
    run.go()
    assert w.records.step("pay").failure.error_class == "policy"
