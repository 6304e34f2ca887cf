"""Runs of the invoice workflow: straight through, approved, rejected, expired, cancelled."""

from __future__ import annotations

import json

import pytest
from invariants import check
from invoices import INVOICE, posted, task, types, word, world
from machine import FINANCE, UNWIND

from shared.errors import Conflict, Forbidden, InvalidRequest, TransientFailure
from shared.runtime.ending import request
from shared.runtime.gates import decide_gate
from shared.runtime.parking import Order, resume_step


def test_a_small_and_certain_invoice_goes_straight_through():
    w = world()
    run = w.start({"document": "Invoice C-1"})
    assert run.status == "SUCCEEDED"
    assert w.head.state == "completed"
    assert types(w) == [
        "run_started",
        *(f"step_{what}:{step}" for step in ("extract", "validate", "classify") for what in ("opened", "completed")),
        "step_completed:branch",
        "step_skipped:review",
        "step_opened:post",
        "step_completed:post",
        "run_completed",
    ]
    assert len(posted(w)) == 1
    assert w.mail.messages == []
    check(w)


def test_a_large_invoice_waits_for_a_person_and_posts_once_when_approved():
    w = world(amount=9000)
    run = w.start({"document": "Invoice C-1"})
    assert (run.status, w.head.state) == ("RUNNING", "waiting_for_human")
    assert sorted(mail.to for mail in w.mail.messages) == sorted(person.email for person in FINANCE)
    check(w)
    decide_gate(w.steps, w.journal, "review", word("approved", note="fine"))
    decide_gate(w.steps, w.journal, "review", word("approved", note="fine"))
    assert run.go().status == "SUCCEEDED"
    assert len(posted(w)) == 1
    output = json.loads(w.records.step("review").output.text)
    assert (output["decision"], output["by"], output["notes"]) == ("approved", FINANCE[0].email, "fine")
    check(w)


def test_another_decision_after_the_first_is_refused_and_says_whose_the_first_was():
    w = world(amount=9000)
    w.start({"document": "Invoice"})
    decide_gate(w.steps, w.journal, "review", word("approved"))
    with pytest.raises(Conflict, match="approved by fatima@example"):
        decide_gate(w.steps, w.journal, "review", word("rejected", by=FINANCE[1].email))
    check(w)


def test_a_rejected_invoice_is_not_posted_and_the_run_fails():
    w = world(amount=9000)
    run = w.start({"document": "Invoice"})
    decide_gate(w.steps, w.journal, "review", word("rejected", note="duplicate"))
    assert run.go().status == "FAILED Signalbox.RunFailed"
    assert w.unwind().status == "SUCCEEDED"
    assert w.head.state == "failed"
    assert "duplicate" in w.head.reason
    assert posted(w) == []
    check(w)


def test_a_gate_that_nobody_decides_expires_and_nothing_is_posted():
    w = world(amount=9000)
    run = w.start({"document": "Invoice"})
    w.clock.sleep(24 * 3600 + 5)
    assert run.expire().status == "FAILED Signalbox.RunFailed"
    w.unwind()
    assert (w.head.state, w.records.gate("review").status) == ("failed", "expired")
    with pytest.raises(Conflict):
        decide_gate(w.steps, w.journal, "review", word("approved"))
    assert posted(w) == []
    check(w)


def test_a_decision_in_the_last_moment_wins_over_the_time_out():
    w = world(amount=9000)
    run = w.start({"document": "Invoice"})
    token = run.waiting[0]
    w.engine.gone.add(token)  # the engine has timed the token out already
    decide_gate(w.steps, w.journal, "review", word("approved"))
    w.engine.answers = [(token, "failure", {"error": "States.Timeout", "cause": ""})]
    assert run.go().status == "SUCCEEDED"
    assert len(posted(w)) == 1
    check(w)


def test_a_decision_is_bound_to_what_was_shown():
    w = world(amount=9000)
    w.start({"document": "Invoice"})
    with pytest.raises(Conflict, match="not what was shown"):
        decide_gate(w.steps, w.journal, "review", word("approved", digest="0" * 64))
    digest = w.records.gate("review").digest
    assert decide_gate(w.steps, w.journal, "review", word("approved", digest=digest)).status == "approved"


def test_a_cancelled_run_answers_its_gate_and_ends():
    w = world(amount=9000)
    run = w.start({"document": "Invoice"})
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    assert w.unwind().status == "SUCCEEDED"
    assert run.go().status == "FAILED Signalbox.RunFailed"
    assert (w.head.state, w.records.gate("review").status) == ("cancelled", "cancelled")
    with pytest.raises(Conflict):
        decide_gate(w.steps, w.journal, "review", word("approved"))
    with pytest.raises(Conflict):
        request(w.steps, w.journal, "cancelled", "again", UNWIND)
    check(w)


def test_a_run_that_is_cancelled_after_posting_voids_the_document():
    w = world()
    post = w.tools._functions["erp_post"]

    def cancelled_meanwhile(arguments, call):
        request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
        return post(arguments, call)

    w.tools._functions["erp_post"] = cancelled_meanwhile
    assert w.start({"document": "Invoice"}).status == "FAILED NotOpened"
    w.unwind()
    document = json.loads(w.records.step("post").output.text)["document"]
    assert [arguments for name, arguments, _ in w.tools.calls if name == "erp_void"] == [{"document": document}]
    assert (w.head.state, w.records.step("post").status) == ("cancelled", "compensated")
    check(w)


def test_a_compensation_that_keeps_failing_waits_for_a_person():
    w, voids = world(), []
    post = w.tools._functions["erp_post"]

    def cancelled_meanwhile(arguments, call):
        request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
        return post(arguments, call)

    def void(*_):
        voids.append(w.clock.now())
        raise TransientFailure("down")

    w.tools._functions["erp_post"] = cancelled_meanwhile
    w.tools._functions["erp_void"] = void
    w.start({"document": "Invoice"})
    word = Order("skip", "ops")
    ended = w.unwind(lambda: resume_step(w.steps, task(w, "post/compensate"), word, UNWIND))
    assert ended.status == "SUCCEEDED"
    assert len(voids) == 4
    assert w.head.state == "cancelled"
    check(w)


def test_one_idempotency_key_makes_one_run():
    w = world(amount=9000)
    w.start({"document": "Invoice"}, key="k1")
    first = w.run
    w.start({"document": "Invoice"}, key="k1")
    assert w.run == first
    with pytest.raises(Conflict, match="k1"):
        w.start({"document": "Another"}, key="k1")


def test_an_input_that_does_not_fit_is_refused_with_its_place():
    with pytest.raises(InvalidRequest, match=r"\$"):
        world().start({"dokument": "Invoice"})


def test_mail_that_cannot_be_sent_is_tried_again_and_the_gate_can_be_decided_meanwhile():
    w = world(amount=9000)
    w.mail.failure = TransientFailure("throttled")
    sleep, waits = w.clock.sleep, []

    def better_later(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            w.mail.failure = None
        sleep(seconds)

    w.clock.sleep = better_later
    run = w.start({"document": "Invoice"})
    assert (run.status, len(w.mail.messages)) == ("RUNNING", 2)
    assert waits == [5, 10, 20]
    decide_gate(w.steps, w.journal, "review", word("approved"))
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_who_started_the_run_may_not_decide_where_the_gate_says_so():
    w = world(amount=9000)
    plan = INVOICE.manifest.steps["review"]
    plan.spec["not_initiator"] = True
    try:
        w.start({"document": "Invoice"})
    finally:
        plan.spec["not_initiator"] = False
    with pytest.raises(Forbidden):
        decide_gate(w.steps, w.journal, "review", word("approved", by="alex@example.test"))
