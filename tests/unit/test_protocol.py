"""Closing is valid on the fence only."""

from __future__ import annotations

from dataclasses import replace

from shared.ledger.records import Amount, Head, Step
from shared.runtime.journal import Snapshot
from shared.runtime.protocol import Outcome, close_attempt

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
