"""A tenant's budget in shards: nothing is lost between them, and nobody takes what is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.budget import shards, tenant
from shared.errors import Conflict, StoreConflict, TenantBudgetExceeded
from shared.ledger.records import Head, Run
from shared.ports import Key, Write
from shared.testing import MemoryStore
from shared.values import Value
from tests.unit.stores import store

__all__ = ["store"]

NOVEMBER, DECEMBER = 1_793_500_000_000, 1_796_500_000_000


def run(number=0, **more):
    fields = {"limit_usd": 100, "limit_tokens": 1000, "limit_steps": 10, "limit_active": 60_000}
    pins = {
        "workflow": "w",
        "version": 1,
        "hash": "h",
        "machine": "m",
        "initiator": "i",
        "trigger": "api",
        "created": 1,
    }
    return Run(id=f"R{number}", tenant="acme", input=Value("d", 2, text="{}"), **pins, **(fields | more))


def head(run, used=0):
    return Head(
        left_usd=run.limit_usd - used,
        left_tokens=run.limit_tokens,
        left_steps=run.limit_steps,
        active_left=run.limit_active,
    )


def begin(kept, one, used=0):
    taken = tenant.take(kept, one, head(one, used), NOVEMBER)
    kept.commit(taken.writes) if taken.writes else None
    return taken.run


def end(kept, one, used=0):
    (ended,), writes = tenant.give_back(kept, one, head(one, used))
    kept.commit(writes)
    return ended


def set_usd(kept, usd, **more):
    return tenant.set_limits(kept, "acme", {"usd": usd}, **({"monthly": False, "now": NOVEMBER} | more))


def figures(kept):
    known = tenant.read(kept, "acme")
    return known.left["usd"], known.held["usd"], known.spent["usd"]


def test_a_run_holds_its_whole_limit_and_gives_back_what_it_did_not_use(store):
    set_usd(store, 1000)
    one = begin(store, run())
    assert one.drawn == ("usd",)
    assert figures(store) == (900, 100, 0)
    assert end(store, one, used=30).drawn == ()
    assert figures(store) == (970, 0, 30)


def test_a_run_that_its_own_shard_is_too_small_for_takes_the_rest_from_the_others(store):
    set_usd(store, 208)
    begin(store, run(1))
    begin(store, run(2))
    assert figures(store) == (8, 200, 0)
    with pytest.raises(TenantBudgetExceeded) as refused:
        begin(store, run(3))
    assert (refused.value.status, refused.value.problem) == (402, "tenant_budget_exceeded")
    assert figures(store) == (8, 200, 0)


def test_a_tenant_without_a_budget_limits_nothing_and_nothing_is_written(store):
    assert tenant.take(store, run(limit_usd=None), Head(), NOVEMBER).writes == ()
    assert tenant.give_back(store, run(), Head()) == ((), ())


def test_a_run_without_a_limit_where_its_tenant_has_one_is_refused_with_the_remedy(store):
    set_usd(store, 1000)
    with pytest.raises(Conflict, match="`budget` with usd") as refused:
        tenant.take(store, run(limit_usd=None), Head(), NOVEMBER)
    assert refused.value.problem == "run_limit_missing"


def test_children_and_runs_that_have_drawn_already_draw_nothing(store):
    set_usd(store, 10)
    for one in (run(parent="R9|sub"), run(drawn=("usd",))):
        assert tenant.take(store, one, head(one), NOVEMBER).writes == ()


def test_a_run_that_goes_on_after_its_end_draws_only_what_it_has_left(store):
    set_usd(store, 100)
    ended = end(store, begin(store, run()), used=60)
    again = begin(store, ended, used=60)
    assert figures(store) == (0, 100, 0)
    end(store, again, used=75)
    assert figures(store) == (25, 0, 75)


def test_a_raise_draws_more(store):
    set_usd(store, 150)
    one = begin(store, run())
    store.commit(tenant.take_more(store, one, {"usd": 50, "tokens": 7}, NOVEMBER))
    assert figures(store) == (0, 150, 0)
    with pytest.raises(TenantBudgetExceeded):
        tenant.take_more(store, one, {"usd": 1}, NOVEMBER)
    assert tenant.take_more(store, one, {"tokens": 7}, NOVEMBER) == ()


def test_two_who_take_from_one_shard_do_not_both_get_it(store):
    set_usd(store, 100)
    first, second = (tenant.take(store, run(number), head(run()), NOVEMBER) for number in (1, 2))
    store.commit(first.writes)
    with pytest.raises(StoreConflict):
        store.commit(second.writes)


def test_setting_a_limit_keeps_what_was_spent_and_is_held(store):
    set_usd(store, 1000)
    end(store, begin(store, run(1)), used=40)
    begin(store, run(2))
    set_usd(store, 120)
    assert figures(store) == (-20, 100, 40)
    with pytest.raises(TenantBudgetExceeded):
        begin(store, run(3))
    set_usd(store, 500)
    assert figures(store) == (360, 100, 40)


def test_a_dimension_that_is_no_longer_limited_still_knows_what_is_held(store):
    set_usd(store, 1000)
    one = begin(store, run())
    tenant.set_limits(store, "acme", {"tokens": 5000}, monthly=False, now=NOVEMBER)
    set_usd(store, 1000)
    assert figures(store) == (900, 100, 0)
    end(store, one, used=10)
    assert figures(store) == (990, 0, 10)


def test_a_monthly_budget_begins_anew_with_the_first_run_of_a_month():
    kept = MemoryStore()
    set_usd(kept, 100, monthly=True)
    end(kept, begin(kept, run(1)), used=90)
    with pytest.raises(TenantBudgetExceeded):
        begin(kept, run(2, limit_usd=20))
    taken = tenant.take(kept, run(3, limit_usd=20), head(run(limit_usd=20)), DECEMBER)
    kept.commit(taken.writes)
    assert figures(kept) == (80, 20, 0)


def test_an_audited_run_takes_what_is_not_there_and_says_so():
    kept = MemoryStore()
    set_usd(kept, 60)
    taken = tenant.take(kept, run(budget_mode="audit"), head(run()), NOVEMBER)
    kept.commit(taken.writes)
    assert [each.data() for each in taken.refusals] == [
        {"level": "tenant", "dimension": "usd", "needed": 100, "left": 60}
    ]
    assert figures(kept) == (-40, 100, 0)
    unlimited = tenant.take(kept, run(2, limit_usd=None, budget_mode="audit"), Head(), NOVEMBER)
    assert (unlimited.run.drawn, unlimited.writes) == ((), ())


moves = st.tuples(st.integers(0, 5), st.integers(1, 60), st.integers(0, 60))


@given(st.integers(0, 200), st.lists(moves, max_size=40))
def test_nothing_is_lost_between_the_shards(limit, steps):
    kept, running, spent = MemoryStore(), {}, 0
    set_usd(kept, limit)
    for number, wanted, used in steps:
        if number in running:
            one = running.pop(number)
            spent += min(used, one.limit_usd)
            end(kept, one, used=min(used, one.limit_usd))
            continue
        try:
            running[number] = begin(kept, run(number, limit_usd=wanted))
        except TenantBudgetExceeded:
            assert wanted > figures(kept)[0]
        held = sum(one.limit_usd for one in running.values())
        assert figures(kept) == (limit - held - spent, held, spent)
        assert all(shard.left["usd"] >= 0 for shard in tenant.read(kept, "acme").shards)


def test_a_shard_that_was_overdrawn_is_no_invitation_to_overdraw_the_tenant():
    kept = MemoryStore()
    set_usd(kept, 80)
    known = tenant.read(kept, "acme")
    bad = replace(known.shards[0], left={"usd": -50})
    kept.commit([Write(Key(shards.partition("acme"), bad.sk), bad.to_item(), bad.rev)])
    with pytest.raises(TenantBudgetExceeded):
        begin(kept, run(limit_usd=21))
    begin(kept, run(limit_usd=20))
    assert figures(kept)[0] == 0
