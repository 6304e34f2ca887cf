"""Opening reuses the arguments of the first attempt, closing is valid on the fence only, and both may be repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.errors import PolicyViolation
from shared.ledger.records import Amount, Call, Failure, Head, Step
from shared.manifest import StepPlan
from shared.runtime.journal import Snapshot
from shared.runtime.protocol import Ask, Opened, Outcome, Stopped, abandon, close_attempt, open_attempt, skip
from shared.runtime.task import Task
from shared.values import Value

OPENED = Step(
    path="a",
    step="a",
    type="tool",
    status="running",
    open=True,
    attempt=1,
    fence=1,
    holder="first",
    hold=Amount(5, 0, 1),
)


def seen(step: Step) -> Snapshot:
    return Snapshot({"HEAD": Head(open=1, left_usd=95), "STEP#a": step})


def test_the_holder_closes_and_what_it_did_not_use_is_given_back():
    change = close_attempt(OPENED, Outcome(used=Amount(2, 0, 1)), 1000, seen(OPENED))
    assert change.result is not None
    assert (change.result.status, change.result.spent, change.result.open) == ("completed", Amount(2, 0, 1), False)
    (head,) = [record for record in change.records if isinstance(record, Head)]
    assert (head.open, head.left_usd) == (0, 98)


def test_a_result_that_comes_after_a_takeover_changes_nothing():
    taken = replace(OPENED, attempt=2, fence=3, holder="second")
    change = close_attempt(OPENED, Outcome(used=Amount(2, 0, 1)), 1000, seen(taken))
    assert (change.result, change.records, change.notes) == (None, (), ())


def test_a_close_whose_answer_was_lost_is_recognised():
    done = close_attempt(OPENED, Outcome(used=Amount(2, 0, 1)), 1000, seen(OPENED)).result
    again = close_attempt(OPENED, Outcome(used=Amount(2, 0, 1)), 2000, seen(done))
    assert (again.result, again.records, again.notes) == (done, (), ())


ARGUMENTS, OTHERS = Value("d1", 2, text="{}"), Value("d2", 2, text="[]")


def ask(arguments):
    task = Task("run", "a", "", "r", "acme", "w", 1, 1, "", "second", 900_000)
    call = Call("do", "reversible", 1, ARGUMENTS.digest, key="k", at=0)
    plan = StepPlan("a", "tool", risk="reversible", spec={"tool": "do"})
    return Ask(task, plan, "a", Amount(steps=1), arguments, 1000, call=call)


def failed(**more):
    call = ask(ARGUMENTS).call
    return Step(
        path="a", step="a", type="tool", status="retrying", attempt=1, fence=1, arguments=ARGUMENTS, call=call, **more
    )


def test_a_retry_with_other_arguments_under_the_same_ledger_key_is_an_error():
    with pytest.raises(PolicyViolation, match="not those of its first attempt"):
        open_attempt(ask(OTHERS), seen(failed()))
    assert isinstance(open_attempt(ask(ARGUMENTS), seen(failed())).result, Opened)


def test_a_delivery_that_has_lost_its_slot_opens_nothing():
    crowded = replace(ask(ARGUMENTS), slot=True)
    assert isinstance(open_attempt(crowded, seen(failed())).result, Stopped)
    assert isinstance(open_attempt(crowded, seen(failed(slot=True))).result, Opened)


def test_a_new_attempt_begins_to_count_probes_anew():
    opened = open_attempt(ask(ARGUMENTS), seen(failed(probes=3, failure=Failure("transient", "?")))).result
    assert (opened.step.probes, opened.step.failure) == (0, None)


@pytest.mark.parametrize(("now", "over"), [(9000, 9000), (50_000, 20_000)])
def test_a_lost_attempts_call_has_not_begun_after_its_process_was_surely_dead(now, over):
    step = replace(OPENED, lease=20_000, until=10_000, opened=1000)
    head, freed, note = abandon(Head(open=1, left_usd=95), step, now)
    assert (freed.ended, freed.fence, freed.open, freed.spent) == (over, 2, False, Amount(5, 0, 1))
    assert (freed.active, head.last_close) == (min(now, 10_000) - 1000, min(now, 10_000))
    assert note.data["used"] == {"usd": 5, "tokens": 0, "steps": 1}


@pytest.mark.parametrize(
    ("used", "overrun"),
    [(Amount(5, 0, 1), False), (Amount(6, 0, 1), True), (Amount(5, 1, 1), True), (Amount(0, 0, 1), False)],
)
def test_usage_above_its_reservation_is_charged_and_recorded_as_an_overrun(used, overrun):
    change = close_attempt(OPENED, Outcome(used=used), 1000, seen(OPENED))
    (note,) = change.notes
    assert (note.data.get("overrun", False), change.result.spent) == (overrun, used)


def test_what_closes_after_its_time_is_recorded_as_an_overrun():
    late = replace(OPENED, until=999)
    (note,) = close_attempt(late, Outcome(used=Amount(5, 0, 1)), 1000, seen(late)).notes
    assert note.data["overrun"]


BEGUN = replace(OPENED, started=900)


@pytest.mark.parametrize(
    "known",
    [
        BEGUN,
        replace(BEGUN, open=False, status="retrying"),
        replace(BEGUN, open=False, status="failed"),
        replace(OPENED, open=False, attempt=0, status="paused"),
        replace(OPENED, open=False, status="ready", settled=True),
    ],
    ids=["open", "retrying", "failed", "paused", "settled"],
)
def test_a_step_to_which_something_has_happened_is_not_skipped(known):
    change = skip(ask(ARGUMENTS).plan, "a", "no active edge", 1000, seen(known))
    assert (change.result, change.records, change.notes) == (known, (), ())


@pytest.mark.parametrize("known", [None, replace(OPENED, open=False, attempt=0, status="ready")])
def test_a_step_to_which_nothing_has_happened_is_skipped(known):
    before = seen(known) if known else Snapshot({"HEAD": Head()})
    assert skip(ask(ARGUMENTS).plan, "a", "no active edge", 1000, before).result.status == "skipped"
