"""Admission and settlement: never above a limit, nothing reserved at the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.budget.rules import Refusal, admitted, lacking, refusals, release, step_refusals
from shared.ledger.records import Amount, Head, Step
from shared.manifest import Limits

LIMIT = 100


def admit(head, hold, timeout, now):
    return next(refusals(head, hold, timeout, now), None) or admitted(head, hold, now)


def short(head, hold):
    return next(lacking(head, hold), None)


def step_short(limits, spent, hold, timeout=0, **more):
    step = Step(path="s", step="s", type="tool", status="running", spent=spent, **more)
    return next(step_refusals(limits, step, hold, timeout), None)


amounts = st.builds(Amount, st.integers(0, 40), st.integers(0, 40), st.just(1))


@given(st.lists(st.tuples(st.sampled_from(["open", "close"]), amounts, st.integers(0, 30)), max_size=60))
def test_spent_and_reserved_never_exceed_a_limit(moves):
    head = Head(left_usd=LIMIT, left_tokens=LIMIT, left_steps=10, active_left=1000)
    held, spent, now = [], Amount(), 0
    for kind, amount, passed in moves:
        now += passed
        if kind == "open":
            admitted = admit(head, amount, 10, now)
            if not isinstance(admitted, Refusal):
                head, _ = admitted, held.append(amount)
        elif held:
            hold = held.pop(0)
            used = Amount(min(hold.usd, amount.usd), min(hold.tokens, amount.tokens), 1)
            head, spent = release(head, hold, used, now), spent + used
        reserved = sum((hold for hold in held), Amount())
        assert head.left_usd == LIMIT - spent.usd - reserved.usd >= 0
        assert head.left_tokens == LIMIT - spent.tokens - reserved.tokens >= 0
        assert head.left_steps == 10 - spent.steps - reserved.steps >= 0
        assert head.open == len(held)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(1, 9)), max_size=12))
def test_active_time_is_the_union_of_open_times_and_stays_below_its_limit(jobs):
    head, open_until, now, active = Head(active_left=30), [], 0, []
    for wait, timeout, duration in jobs:
        until = now + wait
        while open_until and min(open_until) <= until:
            now = min(open_until)
            open_until.remove(now)
            head = release(head, Amount(), Amount(), now)
        now = until
        admitted = admit(head, Amount(), timeout, now)
        if not isinstance(admitted, Refusal):
            head = admitted
            open_until.append(now + min(duration, timeout))
            active.append((now, now + min(duration, timeout)))
    moments = {moment for start, end in active for moment in range(start, end)}
    assert len(moments) <= 30


def test_a_refusal_says_which_budget_what_was_wanted_and_what_is_left():
    refusal = short(Head(left_usd=10_000_000), Amount(usd=20_000_000))
    assert str(refusal) == "The run's usd budget is exceeded: USD 0.020000 wanted, USD 0.010000 left."
    refusal = step_short(Limits(tokens=100), Amount(tokens=90), Amount(tokens=20))
    assert str(refusal) == "The step's tokens budget is exceeded: 20 wanted, 10 left."
    refusal = admit(Head(active_left=1000), Amount(), 2000, 0)
    assert str(refusal) == "The run's active_time budget is exceeded: 2 s wanted, 1 s left."


def test_after_an_overrun_even_what_costs_nothing_is_refused():
    head = release(Head(left_usd=0, open=1), Amount(usd=5), Amount(usd=9), 0)
    assert head.left_usd == -4
    assert short(head, Amount()) is not None


def test_no_limit_means_no_refusal():
    head = admit(Head(), Amount(10**15, 10**9, 1), 10**9, 0)
    assert isinstance(head, Head)
    assert (head.left_usd, head.active_deadline) == (None, None)


def test_a_step_may_use_its_budget_up_and_not_one_more():
    limits = Limits(usd=100, tokens=100, steps=2)
    assert step_short(limits, Amount(60, 60, 1), Amount(40, 40, 1)) is None
    for more in (Amount(41, 40, 1), Amount(40, 41, 1), Amount(40, 40, 2)):
        assert isinstance(step_short(limits, Amount(60, 60, 1), more), Refusal)


def test_a_step_has_active_time_of_its_own_for_all_its_attempts():
    limits = Limits(active_time=10.0)
    assert step_short(limits, Amount(), Amount(), 4000, active=6000) is None
    assert step_short(limits, Amount(), Amount(), 4001, active=6000) == Refusal("active_time", 4001, 4000, "step")


def test_what_a_person_adds_belongs_to_the_budget_of_the_step_too():
    limits = Limits(usd=100, steps=1, active_time=1.0)
    spent, raised = Amount(80, 0, 1), Amount(30, 0, 1)
    assert step_short(limits, spent, Amount(50, 0, 1), raised=raised) is None
    assert step_short(limits, spent, Amount(51, 0, 1), raised=raised).left == 50
    assert step_short(limits, Amount(), Amount(), 1500, active=1000, raised_active=1500) is None


def test_an_audit_takes_what_does_not_fit_and_names_every_dimension():
    head = Head(left_usd=1, left_tokens=1, left_steps=0, active_left=10)
    assert [each.dimension for each in refusals(head, Amount(2, 1, 1), 11, 0)] == ["usd", "steps", "active_time"]
    head = admitted(head, Amount(2, 1, 1), 0)
    assert (head.left_usd, head.left_tokens, head.left_steps, head.open) == (-1, 0, -1, 1)


def test_the_last_close_never_moves_back():
    head = release(Head(open=2), Amount(), Amount(), 90)
    assert release(head, Amount(), Amount(), 40).last_close == 90
