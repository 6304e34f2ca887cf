"""Tenant budgets in whole runs: drawn at the start, given back in the transaction of the end, whatever happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import manifest, plan, refuse, task, tool, world
from invariants import check
from machine import UNWIND, World
from test_doubt import change

from shared.budget.tenant import read, set_limits
from shared.compiler import compile_manifest
from shared.errors import PermanentFailure, StoreConflict, TenantBudgetExceeded, TransientFailure
from shared.manifest import Limits, Retry
from shared.runtime.ending import request
from shared.runtime.parking import Order, Raise, resume_step
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.task import Task
from shared.testing import FakeModels, FakeTools, FixedDefinitions

USD = 10**9


def short_of(w, *, usd=2 * USD, **more):
    set_limits(w.store, "acme", {"usd": usd, "steps": 100} | more, monthly=False, now=w.clock.now())
    return w


def costly(*plans, do=None, cost=USD // 10, **more):
    tools = FakeTools({"do": do or (lambda arguments, _: arguments["say"])})
    tools.costs["do"] = cost
    return World(compile_manifest(manifest(*plans, **more)), FakeModels(lambda _: ""), tools)


def figures(w):
    known = read(w.store, "acme")
    return known.left["usd"], known.held["usd"], known.spent["usd"]


def test_a_completed_run_has_cost_its_tenant_what_it_used():
    w = short_of(costly(tool("a"), tool("b", "a")))
    assert w.start({}).status == "SUCCEEDED"
    assert figures(w) == (18 * USD // 10, 0, 2 * USD // 10)
    assert read(w.store, "acme").spent["steps"] == 2
    check(w)


def test_a_run_that_pauses_holds_its_envelope_until_it_is_cancelled():
    w = short_of(costly(tool("a", say="bad"), do=refuse("bad")))
    w.start({})
    assert figures(w) == (USD, USD, 0)
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w.unwind()
    assert figures(w) == (2 * USD - USD // 10, 0, USD // 10)
    check(w)


def test_a_run_that_does_not_fit_is_not_created():
    w = short_of(world(tool("a")), usd=USD - 1)
    before = dict(w.store.items)
    with pytest.raises(TenantBudgetExceeded, match=r"USD 0\.999999 left of its usd budget of USD 0\.999999"):
        w.start({})
    assert w.store.items == before
    assert not w.engine.executions


def test_a_repeated_request_finds_its_run_when_nothing_is_left_for_another():
    w = short_of(world(tool("a", say="bad"), do=refuse("bad")), usd=USD)
    w.start({}, key="k")
    published = w.steps.definitions.published("w")
    asked = StartRequest("acme", "alex@example.test", "api", {}, "k")
    assert start_run(w.steps, published, asked) == (w.run, False)
    with pytest.raises(TenantBudgetExceeded):
        start_run(w.steps, published, StartRequest("acme", "alex@example.test", "api", {}, "other"))


def test_a_lost_answer_at_the_start_draws_once():
    w = short_of(world(tool("a")))
    commit = w.store.commit

    def lost(writes):
        w.store.commit = commit
        commit(writes)
        raise StoreConflict("a repetition meets its own write")

    w.store.commit = lost
    assert w.start({}).status == "SUCCEEDED"
    assert len({key.pk for key in w.store.items if key.sk == "HEAD"}) == 1
    assert figures(w) == (2 * USD, 0, 0)


def stuck_for_money(usd=USD):
    """Return a world whose run has used its limit of USD 0.25 and pauses."""
    limits = Limits(usd=USD // 4, tokens=1000, steps=20, active_time=600.0)
    w = costly(tool("a"), tool("b", "a"), tool("c", "b"), budget=limits)
    run = short_of(w, usd=usd).start({})
    assert w.records.step("c").reason == "budget_exceeded"
    assert w.journal.events()[-1].data == {"reason": "budget_exceeded", "level": "run", "dimension": "usd"}
    return w, run


def test_raising_a_run_draws_more_from_its_tenant():
    w, run = stuck_for_money()
    resume_step(w.steps, task(w, "c"), Order("retry", "ops", more=Raise(usd=1 / 4)), UNWIND)
    assert figures(w) == (USD // 2, USD // 2, 0)
    assert run.go().status == "SUCCEEDED"
    assert figures(w) == (7 * USD // 10, 0, 3 * USD // 10)
    check(w)


def test_a_raise_that_the_tenant_cannot_pay_changes_nothing():
    w, run = stuck_for_money(usd=USD // 4)
    with pytest.raises(TenantBudgetExceeded):
        resume_step(w.steps, task(w, "c"), Order("retry", "ops", more=Raise(usd=1)), UNWIND)
    assert (w.head.state, run.go().status) == ("paused", "RUNNING")
    check(w)


def ended(w, run):
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w.unwind()
    run.go()
    assert w.head.ended == "cancelled"


def test_a_run_that_has_ended_goes_on_with_more_which_its_tenant_pays():
    w, run = stuck_for_money()
    ended(w, run)
    assert figures(w) == (4 * USD // 5, 0, USD // 5)
    resume_run(w.steps, w.journal, Resume("ops", more=Raise(usd=1 / 4, steps=3)))
    assert (w.records.run.limit_usd, w.records.run.limit_steps, w.head.epoch) == (USD // 2, 23, 2)
    assert figures(w) == (USD // 2, USD // 2, 0)
    told = next(event.data for event in w.journal.events() if event.type == "run_resumed")
    assert told["raised"] == {"usd": USD // 4, "tokens": 0, "steps": 3, "active_time": 0}
    assert w.execution().status == "SUCCEEDED"
    check(w)


def test_a_run_that_has_ended_stays_so_when_its_tenant_cannot_pay_for_more():
    w, run = stuck_for_money(usd=USD // 4)
    ended(w, run)
    with pytest.raises(TenantBudgetExceeded):
        resume_run(w.steps, w.journal, Resume("ops", more=Raise(usd=1)))
    assert (w.head.ended, w.head.epoch, w.records.run.limit_usd) == ("cancelled", 1, USD // 4)
    check(w)


def test_a_step_that_has_used_its_own_budget_goes_on_when_a_person_adds_to_it():
    own = Limits(usd=USD // 20, steps=1)
    w = short_of(costly(tool("a", budget=own)))
    run = w.start({})
    assert w.journal.events()[-1].data == {"reason": "budget_exceeded", "level": "step", "dimension": "usd"}
    resume_step(w.steps, task(w, "a"), Order("retry", "ops", more=Raise(usd=1 / 20)), UNWIND)
    assert run.go().status == "SUCCEEDED"
    assert (w.records.run.limit_usd, w.records.step("a").spent.usd) == (USD + USD // 20, USD // 10)
    check(w)


def test_failed_attempts_of_a_step_use_its_active_time_up():
    def slow(arguments, _):
        w.clock.sleep(30)
        raise TransientFailure("no")

    own = Limits(active_time=100.0)
    retry = Retry(5, base_delay=1.0, jitter=False)
    w = costly(tool("a", timeout=60.0, budget=own, retry=retry), do=slow)
    w.start({})
    assert (w.records.step("a").active, w.records.step("a").attempt) == (60_000, 2)
    assert w.journal.events()[-1].data == {"reason": "budget_exceeded", "level": "step", "dimension": "active_time"}
    check(w)


@pytest.mark.parametrize(
    "short", [{"usd": USD // 5}, {"steps": 2}, {"active_time": 65.0}, {"usd": USD // 5, "steps": 2}]
)
def test_what_was_done_is_undone_whatever_is_left(short):
    def slow(arguments, _):
        w.clock.sleep(10)
        if arguments["say"] == "b":
            raise PermanentFailure("no")
        return arguments["say"]

    limits = replace(Limits(usd=USD, tokens=1000, steps=20, active_time=600.0), **short)
    w = costly(change("a"), tool("b", "a", on_error="fail", timeout=30.0), budget=limits, do=slow)
    w.start({})
    w.unwind()
    assert (w.head.ended, w.records.step("a").status) == ("failed", "compensated")
    assert w.head.left_usd == limits.usd - 3 * USD // 10
    check(w)


def thinking(words, *, run=10_000, **own):
    """Return a world whose model is sent so many words of five bytes, and may reply with a hundred tokens."""
    spec = {"model": ["claude-haiku-4-5"], "prompt": "word " * words, "max_tokens": 100}
    limits = Limits(usd=USD, tokens=run, steps=20, active_time=600.0)
    w = costly(plan("a", "agent", (), spec=spec, budget=Limits(**own)), budget=limits)
    return w, w.start({})


@pytest.mark.parametrize("limit", [{"run": 1100}, {"tokens": 1100}], ids=["run", "step"])
def test_a_prompt_is_counted_exactly_where_its_length_in_bytes_would_not_fit(limit):
    w, run = thinking(1000, **limit)
    assert (run.status, len(w.models.requests)) == ("SUCCEEDED", 1)
    (opened,) = [event.data["hold"] for event in w.journal.events() if event.type == "step_opened"]
    assert opened["tokens"] == 1100
    w, _ = thinking(1001, **limit)
    assert (w.records.step("a").reason, w.models.requests) == ("budget_exceeded", [])
    check(w)


def test_a_prompt_is_not_counted_where_its_length_in_bytes_fits():
    w, run = thinking(1000)
    assert run.status == "SUCCEEDED"
    (opened,) = [event.data["hold"] for event in w.journal.events() if event.type == "step_opened"]
    assert opened["tokens"] == 5100


CHILD = Limits(usd=USD // 4, steps=5, active_time=600.0)


def family(parent_usd):
    """Return a parent whose child has used its USD 0.25 and pauses."""
    child = compile_manifest(manifest(tool("a"), tool("b", "a"), tool("c", "b"), name="child", budget=CHILD))
    spec = {"workflow": "child", "version": None, "with": {}}
    limits = Limits(usd=parent_usd, tokens=1000, steps=20, active_time=600.0)
    w = short_of(costly(plan("sub", "sub_workflow", (), spec=spec), budget=limits), usd=USD)
    w.define(FixedDefinitions(w.unit.manifest, child.manifest))
    run = w.start({})
    below = World(
        child, w.models, w.tools, w.store, w.blobs, w.clock, w.engine, w.mail, run=w.records.step("sub").child
    )
    below.define(w.steps.definitions)
    return w, run, below, below.execution()


def raise_child(below, **more):
    job = Task("run", "c", "", below.run, "acme", "child", 1, 1, "", "person", 0)
    resume_step(below.steps, job, Order("retry", "ops", more=Raise(**more)), UNWIND)


@pytest.mark.parametrize("parent", [USD // 2, 3 * USD // 10], ids=["its parent has left", "its parent lacks"])
def test_a_child_draws_nothing_and_a_raise_of_it_comes_from_its_parent_and_what_that_lacks_from_the_tenant(parent):
    w, run, below, inside = family(parent)
    assert figures(w)[1] == parent
    raise_child(below, usd=1 / 4)
    assert (w.head.left_usd, w.records.run.limit_usd) == (0, USD // 2)
    assert figures(w) == (USD // 2, USD // 2, 0)
    assert (inside.go().status, run.go().status) == ("SUCCEEDED", "SUCCEEDED")
    assert figures(w) == (7 * USD // 10, 0, 3 * USD // 10)
    check(w)
    check(below)


def test_a_raise_of_a_child_that_the_tenant_cannot_pay_changes_nothing_anywhere():
    w, _, below, _ = family(3 * USD // 10)
    with pytest.raises(TenantBudgetExceeded):
        raise_child(below, usd=1)
    assert (w.head.left_usd, below.records.run.limit_usd) == (USD // 20, USD // 4)
    assert figures(w) == (7 * USD // 10, 3 * USD // 10, 0)
    check(w)
    check(below)


def test_active_time_can_be_raised_too():
    limits = Limits(usd=USD, tokens=1000, steps=20, active_time=30.0)
    w = short_of(costly(tool("a", timeout=60.0), budget=limits), active_time=100_000)
    run = w.start({})
    assert w.records.step("a").reason == "budget_exceeded"
    resume_step(w.steps, task(w, "a"), Order("retry", "ops", more=Raise(active_time=40_000)), UNWIND)
    assert read(w.store, "acme").left["active_time"] == 30_000
    assert run.go().status == "SUCCEEDED"
    assert read(w.store, "acme").held["active_time"] == 0
    check(w)
