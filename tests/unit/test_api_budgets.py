"""Budgets over HTTP: a tenant without money, audited runs, raised active time."""

from __future__ import annotations

import pytest

from shared.budget.history import Usage, partition
from shared.budget.tenant import read, set_limits
from shared.ports import Key, Write
from tests.unit.api_client import ask, data, problem
from tests.unit.test_api_runs import fresh, paused

RUNS = "/v1/workflows/invoice/runs"


def poor(usd=1):
    world = fresh()
    set_limits(world.store, "acme", {"usd": usd}, monthly=False, now=world.clock.now())
    return world


def test_a_run_that_its_tenant_cannot_pay_is_refused_and_not_created():
    world = poor()
    answer = ask(world, "POST", RUNS, {"input": {"document": "x"}})
    assert problem(answer) == (402, "tenant_budget_exceeded")
    assert data(ask(world, "GET", "/v1/runs"))["runs"] == []


def test_an_audited_run_starts_all_the_same_and_tells_what_was_missing():
    world = poor()
    answer = ask(world, "POST", RUNS, {"input": {"document": "x"}, "budget_mode": "audit"})
    shown = data(ask(world, "GET", f"/v1/runs/{data(answer)['run']}"))
    assert shown["budget_mode"] == "audit"
    refused = {"path": None, "level": "tenant", "dimension": "usd", "needed": "0.50", "left": "0.000000001"}
    assert shown["would_refuse"] == [refused]
    assert read(world.store, "acme").left["usd"] < 0


def test_only_an_admin_lifts_the_limits_of_a_run():
    world, body = fresh(), {"input": {"document": "x"}, "budget_mode": "audit"}
    assert problem(ask(world, "POST", RUNS, body, token=world.token("operator"))) == (403, "forbidden")
    assert ask(world, "POST", RUNS, body | {"budget_mode": "enforce"}, token=world.token("operator")).status == 201


@pytest.mark.parametrize("mode", ["off", "", None, ["audit"], True])
def test_another_mode_is_refused(mode):
    body = {"input": {"document": "x"}, "budget_mode": mode}
    assert problem(ask(fresh(), "POST", RUNS, body)) == (400, "invalid_field")


def test_a_key_that_began_an_enforced_run_begins_no_audited_one():
    world, key = fresh(), {"idempotency-key": "k"}
    assert ask(world, "POST", RUNS, {"input": {"document": "x"}}, headers=key).status == 201
    again = ask(world, "POST", RUNS, {"input": {"document": "x"}, "budget_mode": "audit"}, headers=key)
    assert problem(again) == (409, "idempotency_mismatch")


def test_active_time_is_raised_in_milliseconds():
    world = paused()
    before = data(ask(world, "GET", f"/v1/runs/{world.run}"))["limits"]["active_time"]
    order = {"step": "extract", "action": "retry", "raise": {"active_time": 60_000}}
    assert ask(world, "POST", f"/v1/runs/{world.run}/resume", order).status == 202
    assert data(ask(world, "GET", f"/v1/runs/{world.run}"))["limits"]["active_time"] == before + 60_000
    events = data(ask(world, "GET", f"/v1/runs/{world.run}/events"))["events"]
    raised = {"usd": "0.00", "tokens": 0, "steps": 0, "active_time": 60_000}
    assert next(one for one in events if one["type"] == "step_resumed")["data"]["raised"] == raised


def test_estimates_come_from_the_history_of_the_tenant():
    world = fresh()
    before = data(ask(world, "GET", "/v1/workflows/invoice/estimates"))["estimates"]
    assert [(one["path"], one["usd"], one["attempts"]) for one in before] == [("extract", "0.10", 0)]
    used = Usage(path="extract", model="claude-haiku-4-5").plus(2_000_000, 900)
    world.store.commit([Write(Key(partition("acme", "invoice"), used.sk), used.to_item(), None)])
    (found,) = data(ask(world, "GET", "/v1/workflows/invoice/estimates"))["estimates"]
    assert (found["usd"], found["tokens"], found["attempts"]) == ("0.002", 900, 1)
    assert problem(ask(world, "GET", "/v1/workflows/nothing/estimates")) == (404, "unknown_workflow")
