"""The invoice workflow, whole runs: as it is compiled, over fakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from invariants import check
from machine import FINANCE, UNWIND, Killed, TimedOut, World

from shared.compiler import compile_file
from shared.errors import Conflict, Forbidden, InvalidRequest, PermanentFailure, RateLimited, TransientFailure
from shared.ports import Usage
from shared.runtime.gates import Word, decide_gate
from shared.runtime.parking import Order, Raise, resume_step
from shared.runtime.task import Task
from shared.runtime.unwinding import request
from shared.testing import FakeModels, FakeTools

INVOICE = compile_file(Path(__file__).parents[2] / "workflows" / "invoice.yaml")
FIELDS = {
    "vendor": "Contoso",
    "number": "C-1",
    "issued": "2026-10-01",
    "due": "2026-11-01",
    "currency": "EUR",
    "net": 100,
    "tax": 20,
    "amount": 120,
    "lines": [{"description": "Paper", "total": 100}],
}


def world(amount=120, confidence=0.95, **tools):
    fields = {**FIELDS, "amount": amount, "net": amount - 20, "lines": [{"description": "Paper", "total": amount - 20}]}
    sure = {"category": "goods", "confidence": confidence, "reason": "known vendor"}

    def answer(request):
        return json.dumps(fields if "vendor" in request.schema["properties"] else sure)

    ready = {
        "check_invoice": lambda arguments, _: {"total": arguments["amount"], "lines": 1},
        "erp_post": lambda _, call: {"document": f"D-{call.idempotency_key[:6]}"},
        "erp_void": lambda arguments, _: {"document": arguments["document"], "status": "void"},
        "erp_find": lambda *_: {"count": 0, "document": ""},
    }
    return World(INVOICE, FakeModels(answer), FakeTools(ready | tools))


def types(world):
    return [f"{event.type}:{event.path}" if event.path else event.type for event in world.journal.events()]


def word(decision, by=FINANCE[0].email, **more):
    return Word(decision, by, **more)


def posted(world):
    return [call for name, _, call in world.tools.calls if name == "erp_post"]


def task(world, step):
    return Task("run", step, "", world.run, world.tenant, "invoice", 1, world.head.epoch, "", "person", 0)


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


def test_an_invoice_that_fails_validation_pauses_and_can_be_given_up():
    def refuse(*_):
        raise PermanentFailure("The lines do not add up.")

    w = world(check_invoice=refuse)
    run = w.start({"document": "Invoice"})
    assert w.head.state == "paused"
    assert w.records.step("validate").failure.message == "The lines do not add up."
    check(w)
    resume_step(w.steps, task(w, "validate"), Order("fail", "ops"), UNWIND)
    assert run.go().status == "FAILED Signalbox.RunFailed"
    w.unwind()
    assert w.head.state == "failed"
    check(w)


def test_a_paused_step_can_be_retried():
    fails = [True]

    def once(arguments, _):
        if fails.pop() if fails else False:
            raise PermanentFailure("not now")
        return {"total": arguments["amount"], "lines": 1}

    w = world(check_invoice=once)
    run = w.start({"document": "Invoice"})
    assert w.head.state == "paused"
    resume_step(w.steps, task(w, "validate"), Order("retry", "ops"), UNWIND)
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_a_paused_step_can_be_skipped_and_what_needs_it_is_skipped_too():
    def refuse(*_):
        raise PermanentFailure("no")

    w = world(check_invoice=refuse)
    run = w.start({"document": "Invoice"})
    resume_step(w.steps, task(w, "validate"), Order("skip", "ops"), UNWIND)
    assert run.go().status == "SUCCEEDED"
    skipped = {step.path for step in w.records.steps() if step.status == "skipped"}
    assert skipped == {"validate", "classify", "branch", "review", "post"}
    check(w)


@pytest.mark.parametrize("death", [Killed, TimedOut])
@pytest.mark.parametrize("when", ["before the answer", "after the answer"])
def test_a_process_that_dies_in_extract_costs_a_retry_and_nothing_else(death, when):
    w = world()
    answer, died = w.models.complete, []

    def dies(request):
        if not died:
            died.append(True)
            if when == "after the answer":
                answer(request)
            raise death
        return answer(request)

    w.models.complete = dies
    assert w.start({"document": "Invoice"}).status == "SUCCEEDED"
    step = w.records.step("extract")
    assert (step.attempt, step.retries) == (2, 1)
    lost = next(event for event in w.journal.events() if event.type == "attempt_lost")
    assert lost.data["used"]["tokens"] > 0, "usage that was never learned stays charged"
    check(w)


def test_a_process_that_dies_after_posting_is_found_by_the_probe_and_posts_once():
    w = world()
    w.tools._functions["erp_post"] = lambda *_: (_ for _ in ()).throw(Killed)
    w.tools._functions["erp_find"] = lambda *_: {"count": 1, "document": "D-7"}
    assert w.start({"document": "Invoice"}).status == "SUCCEEDED"
    step = w.records.step("post")
    assert len(posted(w)) == 1
    assert (step.by, json.loads(step.output.text)["document"]) == ("reconcile", "D-7")
    check(w)


def test_a_process_that_dies_before_posting_posts_again_with_the_same_key():
    w, died = world(), []

    def post(_, call):
        if not died:
            died.append(True)
            raise Killed
        return {"document": call.idempotency_key}

    w.tools._functions["erp_post"] = post
    before = w.clock.now()
    assert w.start({"document": "Invoice"}).status == "SUCCEEDED"
    first, second = posted(w)
    assert first.idempotency_key == second.idempotency_key
    assert w.clock.now() - before >= 900_000, "nothing is dispatched again while the old process may live"
    check(w)


def test_rate_limits_wait_as_long_as_the_provider_asks_and_move_along_the_chain():
    w, asked = world(), []
    answer = w.models.complete

    def limited(request):
        asked.append(request.model)
        if len(asked) == 1:
            raise RateLimited("429", retry_after=33.0)
        return answer(request)

    w.models.complete = limited
    assert w.start({"document": "Invoice"}).status == "SUCCEEDED"
    retry = next(event for event in w.journal.events() if event.type == "step_retrying")
    assert retry.data["delay_ms"] == 33_000
    assert asked[:2] == ["claude-haiku-4-5", "claude-sonnet-4-5"]
    check(w)


def test_retries_end_and_the_step_pauses():
    def down(*_):
        raise TransientFailure("503")

    w = world()
    w.models.complete = down
    w.start({"document": "Invoice"})
    assert w.head.state == "paused"
    assert types(w).count("step_retrying:extract") == 2
    check(w)


def test_a_reply_that_does_not_fit_is_charged_and_tried_again():
    w = world()
    answer, replies = w.models._answer, ["no json", '{"vendor": 3}']
    w.models._answer = lambda request: replies.pop(0) if replies else answer(request)
    assert w.start({"document": "Invoice"}).status == "SUCCEEDED"
    failures = [event.data["error"]["class"] for event in w.journal.events() if event.type == "step_failed"]
    assert failures == ["invalid_output", "invalid_output"]
    check(w)


def test_a_budget_refuses_before_spending_and_goes_on_where_it_stopped_when_raised():
    w = world()
    w.unit = INVOICE
    run = w.start({"document": "word " * 3000})
    assert w.head.state == "completed", "counted exactly, it fits"
    w = world()
    w.models.ceiling = lambda *_, **__: Usage(60_001, 0, 1)
    run = w.start({"document": "Invoice"})
    assert w.head.state == "paused"
    assert w.records.step("extract").reason == "budget_exceeded"
    assert w.models.requests == []
    check(w)
    del w.models.ceiling
    resume_step(w.steps, task(w, "extract"), Order("retry", "ops", more=Raise(tokens=1000)), UNWIND)
    assert run.go().status == "SUCCEEDED"
    assert w.records.run.limit_tokens == 61_000
    check(w)


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
    sleep = w.clock.sleep

    def later(seconds):
        sleep(seconds)
        if seconds == 300:
            resume_step(w.steps, task(w, "post/compensate"), Order("skip", "ops"), UNWIND)

    w.clock.sleep = later
    assert w.unwind().status == "SUCCEEDED"
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
