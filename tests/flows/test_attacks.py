"""What once broke a run, kept: each case names the promise that it was against."""

from __future__ import annotations

import json

import pytest
from invariants import check
from invoices import posted, types, word, world
from invoices import task as invoice_task
from machine import UNWIND, Killed, TimedOut
from test_other_runs import called, failing, gated, statuses, task, tool
from test_other_runs import world as made

from shared.errors import Conflict, InvalidRequest, PermanentFailure, RateLimited, StepTimeout, TransientFailure
from shared.manifest import Edge, Retry, StepPlan
from shared.runtime.ending import request
from shared.runtime.gates import Word, decide_gate
from shared.runtime.parking import Order, decide_resume, resume_step
from shared.runtime.protocol import Outcome

DEEP = "[" * 3000 + "]" * 3000
UNDO = {"compensate": {"tool": "do", "with": {"step": "undo"}}}


@pytest.mark.parametrize("reply", [DEEP, '"\\ud800"', '{"\\ud800": 1}', "9" * 400, "1e999", "NaN", '"\\u0000"', ""])
def test_whatever_a_model_answers_is_charged_and_asked_again(reply):
    w = world()
    answer, replies = w.models._answer, [reply]
    w.models._answer = lambda request: replies.pop() if replies else answer(request)
    assert w.start({"document": "Invoice"}).status == "SUCCEEDED"
    failed = [event.data for event in w.journal.events() if event.type == "step_failed"]
    assert [data["error"]["class"] for data in failed] == ["invalid_output"]
    check(w)


@pytest.mark.parametrize("result", [2**60, "\ud800", {"\ud800": 1}, float("nan"), {"a": object()}])
def test_a_result_that_cannot_be_kept_never_means_that_nothing_happened(result):
    w = gated(do=lambda *_: result)
    run = w.start({})
    decide_gate(w.steps, w.journal, "g", Word("approved", "fatima@example.test"))
    run.go()
    assert w.records.step("a").status == "unknown"
    check(w)


@pytest.mark.parametrize("error", [StepTimeout, TransientFailure, Killed, TimedOut])
def test_an_irreversible_call_that_may_have_happened_is_not_repeated_by_anybody(error):
    def do(*_):
        raise error("?")

    w = gated(do=do)
    run = w.start({})
    decide_gate(w.steps, w.journal, "g", Word("approved", "fatima@example.test"))
    run.go()
    assert (w.head.state, w.records.step("a").status) == ("paused", "unknown")
    with pytest.raises(Conflict):
        resume_step(w.steps, task(w, "a"), Order("retry", "ops"), UNWIND)
    assert called(w) == ["a"]
    check(w)


@pytest.mark.parametrize("wish", [float("inf"), float("nan"), -1.0, 1e300])
def test_a_far_side_cannot_make_us_wait_for_ever(wish):
    w, limited = world(), [True]
    answer = w.models.complete

    def complete(request):
        if limited.pop() if limited else False:
            raise RateLimited("429 \ud800", retry_after=wish)
        return answer(request)

    w.models.complete = complete
    before = w.clock.now()
    assert w.start({"document": "Invoice"}).status == "SUCCEEDED"
    assert w.clock.now() - before < 60_000
    check(w)


@pytest.mark.parametrize("risk", ["read", "reversible"])
@pytest.mark.parametrize("rule", ["pause", "continue", "fail"])
def test_a_fallback_whose_process_dies_holds_nothing(risk, rule):
    def do(arguments, _):
        if arguments["step"] == "f":
            raise Killed
        raise PermanentFailure("no")

    w = made(tool("a", fallback="f", on_error=rule), tool("f", risk=risk, spec=UNDO), do=do)
    run = w.start({})
    assert w.head.open == 0
    check(w)
    if risk == "reversible" and rule != "fail":
        # Whether it happened is for a person to say, whatever the policy.
        assert (run.status, w.records.step("a").status) == ("RUNNING", "unknown")
        resume_step(w.steps, task(w, "a"), Order("accept", "ops", result="done"), UNWIND)
        assert run.go().status == "SUCCEEDED"
        assert w.records.step("a/fallback").status == "completed"
        check(w)
    elif rule == "continue":
        assert (run.status, w.head.state) == ("SUCCEEDED", "completed")


def test_a_late_delivery_does_not_take_a_step_away_from_the_person_it_waits_for():
    w = made(tool("a"), do=failing("a"))
    w.start({})
    w.unit.manifest.steps["a"].spec["with"]["step"] = "${ nothing.here }"
    w.clock.sleep(5)
    event = {"op": "run", "step": "a", "run": w.engine.executions["machine:w:1", f"{w.run}.1"]["run"]}
    with pytest.raises(Exception, match=r".*"):
        w.call("${StepFunction}", event)
    assert (w.head.paused, w.records.step("a").status) == (1, "paused")
    check(w)


def test_a_parked_router_that_is_delivered_again_stays_parked():
    routes = [{"to": "x", "when": "1 / 0 > 0"}]
    spec = {"strategy": "rules", "routes": routes, "default": "x"}
    w = made(StepPlan("r", "router", (), spec=spec), tool("x", "r"))
    run = w.start({})
    assert w.head.state == "paused"
    routes[0]["when"] = "true"
    event = {"op": "run", "step": "r", "run": w.engine.executions["machine:w:1", f"{w.run}.1"]["run"]}
    with pytest.raises(Exception, match="paused"):
        w.call("${ControlFunction}", event)
    check(w)
    with pytest.raises(InvalidRequest, match="route"):
        resume_step(w.steps, task(w, "r"), Order("accept", "ops", result={"route": "y"}), UNWIND)
    resume_step(w.steps, task(w, "r"), Order("accept", "ops", result={"route": "x"}), UNWIND)
    assert run.go().status == "SUCCEEDED"
    assert called(w) == ["x"]
    check(w)


def test_a_token_registered_while_a_person_resumes_is_answered():
    w = made(tool("a"), do=failing("a"))
    w.start({})
    seen = w.journal.read(["STEP#a", "PARK#a/pause", "RUN"])
    order = Order("skip", "ops")
    w.store.items = {key: item for key, item in w.store.items.items() if not key.sk.startswith("PARK#")}
    fresh = w.journal.read(seen.asked)
    w.journal.transact(fresh, lambda again: decide_resume(again, "a", order, Outcome(), w.clock.now()))
    event = {"op": "park", "step": "a", "entered": "later", "token": "t"}
    w.call("${ControlFunction}", {**event, "run": w.engine.executions["machine:w:1", f"{w.run}.1"]["run"]})
    assert w.engine.answers[-1] == ("t", "success", {"action": "retry", "seconds": 0})


def test_a_run_with_more_parked_steps_than_a_transaction_holds_can_be_cancelled():
    names = [f"s{n}" for n in range(120)]
    w = made(*(StepPlan(name, "transform", (), spec={"set": {"v": "${ 1 / 0 }"}}) for name in names))
    w.start({})
    assert w.head.paused == 120
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w.unwind()
    assert w.head.state == "cancelled"
    check(w)


def test_what_a_compensation_costs_is_charged():
    w = made(tool("a", risk="reversible", spec=UNDO), tool("b", "a", on_error="fail"), do=failing("b"))
    w.tools.costs["do"] = 1000
    w.start({})
    w.unwind()
    assert statuses(w)["a"] == "compensated"
    check(w)


def test_a_compensation_that_a_person_made_counts_as_made():
    w = made(tool("a", risk="reversible", spec=UNDO), tool("b", "a", on_error="fail"), do=failing("b", "undo"))
    w.start({})

    def word():
        with pytest.raises(Conflict):
            resume_step(w.steps, task(w, "a/compensate"), Order("fail", "ops"), UNWIND)
        resume_step(w.steps, task(w, "a/compensate"), Order("accept", "ops", result="by hand"), UNWIND)

    w.unwind(word)
    assert statuses(w)["a"] == "compensated"
    check(w)


def test_a_call_that_may_have_happened_is_decided_before_a_cancelled_run_ends():
    w = world()
    documents = []

    def post(_, call):
        documents.append(call.idempotency_key)
        request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
        raise TransientFailure("the connection broke")

    def down(*_):
        raise TransientFailure("nobody can be asked")

    w.tools._functions |= {"erp_post": post, "erp_find": down}
    w.start({"document": "Invoice"})
    asked = []

    def word():
        asked.append(w.head.state)
        order = Order("accept", "ops", result={"document": "D-1"})
        resume_step(w.steps, invoice_task(w, "post"), order, UNWIND)

    w.unwind(word)
    assert asked == ["paused"]
    assert [arguments for name, arguments, _ in w.tools.calls if name == "erp_void"] == [{"document": "D-1"}]
    assert (w.head.state, w.records.step("post").status) == ("cancelled", "compensated")
    check(w)


def test_a_gate_told_late_leaves_its_whole_time_and_then_ends():
    w = world(amount=9000)
    w.mail.failure = TransientFailure("down")
    sleep = w.clock.sleep

    def up_again(seconds):
        sleep(seconds)
        if w.clock.now() > 1_790_000_000_000 + 20 * 3_600_000:
            w.mail.failure = None

    w.clock.sleep = up_again
    run = w.start({"document": "Invoice"})
    assert w.records.gate("review").expires >= w.clock.now() + 24 * 3_600_000
    w.clock.sleep(24 * 3600 - 60)
    decide_gate(w.steps, w.journal, "review", word("approved"))
    assert run.go().status == "SUCCEEDED"
    assert len(posted(w)) == 1
    check(w)


def test_a_gate_whose_function_started_late_expires_with_its_token():
    w = world(amount=9000)
    run = w.start({"document": "Invoice"})
    w.clock.sleep(24 * 3600 - 30)
    assert run.expire().status == "FAILED Signalbox.RunFailed"
    assert w.records.gate("review").status == "expired"
    check(w)


def test_a_head_stays_small_whatever_people_write():
    w = world(amount=9000)
    w.start({"document": "Invoice"})
    request(w.steps, w.journal, "cancelled", "\U0001f6a6" * 5000 + "\ud800", UNWIND)
    assert len(json.dumps(w.head.to_item(), ensure_ascii=False).encode()) < 1024
    w.unwind()
    assert types(w)[-1] == "run_cancelled"


def test_a_pure_step_whose_process_dies_is_simply_done_again():
    w, died = made(StepPlan("t", "transform", (), spec={"set": {"v": 1}}, retry=Retry(2)), tool("b", Edge("t"))), []

    def dies(_):
        if w.run and len(died) < 2:
            died.append(True)
            raise Killed

    w.store.before_commit = dies
    assert w.start({}).status == "SUCCEEDED"
    assert len(died) == 2
    check(w)
