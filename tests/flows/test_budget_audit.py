"""Audited runs: nothing is refused, everything that would have been is on record."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import BUDGET, each, manifest, plan, tool
from invariants import check
from machine import World
from test_tenant_budgets import USD, costly, figures, short_of
from town import NUMBERS, Town

from shared.compiler import compile_manifest
from shared.manifest import Limits
from shared.runtime.runs import StartRequest, start_run
from shared.testing import FixedDefinitions

TIGHT = Limits(usd=USD // 4, tokens=1000, steps=2, active_time=600.0)


def audited(w):
    published = w.steps.definitions.published(w.unit.manifest.workflow)
    request = StartRequest("acme", "alex@example.test", "api", {}, budget_mode="audit")
    w.run, _ = start_run(w.steps, published, request)
    return w.execution()


def noted(w):
    found = [event for event in w.journal.events() if event.type == "budget_would_refuse"]
    return [(event.path, event.data["level"], event.data["dimension"]) for event in found]


def test_an_audited_run_goes_on_beyond_its_limits_and_says_which():
    w = costly(tool("a"), tool("b", "a"), tool("c", "b"), budget=TIGHT)
    assert audited(w).status == "SUCCEEDED"
    assert noted(w) == [("c", "run", "usd"), ("c", "run", "steps")]
    assert (w.head.left_usd, w.head.left_steps) == (USD // 4 - 3 * USD // 10, -1)
    assert not [event for event in w.journal.events() if event.type == "budget_refused"]
    check(w)


def test_the_event_says_how_much_was_needed_and_how_much_was_left():
    w = costly(tool("a", budget=Limits(usd=USD // 100)))
    audited(w)
    (event,) = [event for event in w.journal.events() if event.type == "budget_would_refuse"]
    assert event.data == {"level": "step", "dimension": "usd", "needed": USD // 10, "left": USD // 100}


def test_what_the_tenant_would_have_refused_stands_in_the_first_event():
    w = short_of(costly(tool("a"), budget=TIGHT), usd=USD // 5)
    assert audited(w).status == "SUCCEEDED"
    (refused,) = w.journal.events()[0].data["would_refuse"]
    assert refused == {"level": "tenant", "dimension": "usd", "needed": USD // 4, "left": USD // 5}
    assert figures(w) == (USD // 10, 0, USD // 10)


def test_children_of_an_audited_run_are_audited_and_may_have_more_than_is_left():
    child = compile_manifest(manifest(tool("a"), tool("b", "a"), name="child", budget=Limits(usd=USD, steps=1)))
    spec = {"workflow": "child", "version": None, "with": {}}
    w = costly(plan("sub", "sub_workflow", (), spec=spec), budget=TIGHT)
    w.define(FixedDefinitions(w.unit.manifest, child.manifest))
    run = audited(w)
    below = World(
        child, w.models, w.tools, w.store, w.blobs, w.clock, w.engine, w.mail, run=w.records.step("sub").child
    )
    below.define(w.steps.definitions)
    assert below.execution().status == "SUCCEEDED"
    assert run.go().status == "SUCCEEDED"
    assert noted(w) == [("sub", "run", "usd")]
    assert noted(below) == [("b", "run", "steps")]
    assert below.records.run.budget_mode == "audit"
    check(w)
    check(below)


def test_items_of_a_map_are_audited_like_any_step():
    w = costly(each(tool("a"), over=[1, 2, 3]), budget=TIGHT)
    assert audited(w).status == "SUCCEEDED"
    assert {path for path, _, _ in noted(w)} == {"each[2]/a"}
    check(w)


def test_parts_of_an_audited_run_take_from_each_other_what_one_of_them_lacks():
    town = Town(each(tool("a", say="${ thing }"), over=NUMBERS), budget=replace(BUDGET, steps=24))
    published, trips, read = town.w.steps.definitions.published("w"), [], town.w.store.read

    def counted(keys):
        trips.append(keys)
        return read(keys) if len(trips) < 1000 else pytest.fail("it reads for ever")

    town.w.store.read = counted
    for mode in ("enforce", "audit"):
        trips.clear()
        asked = StartRequest("acme", "alex@example.test", "api", {"numbers": [*range(20)]}, budget_mode=mode)
        town.w.run, _ = start_run(town.w.steps, published, asked)
        town.go()
        assert town.w.head.ended == "completed"
