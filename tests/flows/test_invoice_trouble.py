"""Runs of the invoice workflow in which something goes wrong."""

from __future__ import annotations

import json

import pytest
from invariants import check
from invoices import posted, task, types, world
from machine import UNWIND, Killed, TimedOut

from shared.errors import PermanentFailure, RateLimited, TransientFailure
from shared.ports import Usage
from shared.runtime.parking import Order, Raise, resume_step


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
