"""The comparison finds what it is there to find: barriers, steps that start too early, wrong outcomes."""

from __future__ import annotations

from dataclasses import replace

import engines
import pytest
from behaviour import word_of
from comparison import TIGHT, behind, compare, explain, graph_of, holding, interpreter_and_walker
from engines import Hold
from graphs import BUDGET, INPUT, linked, make
from moto_engine import on_moto
from outcome import differences, settled_for_sure
from shrink import shrink

from shared.compiler import compile_manifest
from shared.manifest import Body, Edge, Manifest, StepPlan

CALL = {"tool": "behave", "with": {"seed": 1, "chance": 0.0}, "cost": 0, "compensate": None, "reconcile": None}
GATE = {"approves": None, "approvers": ["finance"], "on_expiry": "reject"}


def graph(**needs):
    plans = [StepPlan(name, "tool", tuple(map(Edge, sources)), spec=CALL) for name, sources in needs.items()]
    return compile_manifest(Manifest("w", "", INPUT, BUDGET, linked(plans), tuple(needs)))


N_SHAPE = {"a": "", "b": "", "c": "a", "d": "ab"}


def test_a_barrier_is_found():
    drawn, built = graph(**N_SHAPE), graph(**N_SHAPE | {"c": "ab"})
    unit = replace(drawn, asl=built.asl)
    with on_moto() as moto, pytest.raises(AssertionError, match=r"while b .* wait without need: \['c'\]"):
        moto.run(unit, 1, Hold("b", frozenset("ac"), frozenset(), patience=5.0))


def test_a_step_that_starts_too_early_is_found():
    drawn, built = graph(**N_SHAPE), graph(**N_SHAPE | {"d": "a"})
    unit = replace(drawn, asl=built.asl)
    # The walker enters one branch after the other, so that here d is always entered before b.
    with pytest.raises(AssertionError, match=r"d: step_.* but its join says wait"):
        engines.walk(unit, 1)


def test_what_stands_in_for_a_gate_waits_for_its_place_on_an_engine_with_real_threads():
    gate = StepPlan("g", "human_gate", timeout=1e6, on_error="continue", fallback="help", spec=GATE)
    plans = [
        gate,
        *(StepPlan(f"s{number}", "tool", spec=CALL) for number in range(6)),
        StepPlan("help", "tool", spec=CALL),
    ]
    made = Manifest("w", "", INPUT, BUDGET, linked(plans), tuple(plan.id for plan in plans[:-1]), max_parallel=1)
    refused = [seed for seed in range(60) if word_of(seed, "g", 1) == "rejected"][:6]
    with on_moto() as moto:
        results = [moto.run(compile_manifest(made), seed) for seed in refused]
    assert {result.rows["g"].by for result in results} == {"fallback"}


def test_what_is_held_is_what_the_others_need_not_wait_for():
    unit = graph(**N_SHAPE)
    parked = {name: engines.interpret(unit, 1, held=name).rows for name in "abcd"}
    settled = {name: {path for path, row in rows.items() if row.settled} for name, rows in parked.items()}
    assert settled == {"a": {"b"}, "b": {"a", "c"}, "c": {"a", "b", "d"}, "d": {"a", "b", "c"}}
    assert holding(unit, 1, engines.interpret(unit, 1)).path in N_SHAPE


@pytest.mark.parametrize(("limit", "late"), [(2, {3, 4}), (4, set())])
def test_only_what_stands_behind_an_item_in_its_part_may_wait_for_it(limit, late):
    body = Body(linked([StepPlan("t", "tool", spec=CALL)]), ("t",))
    spec = {"over": [1, 2, 3, 4, 5], "as": "it", "max_concurrency": limit, "max_items": 20}
    each = StepPlan("each", "map", spec={**spec, "on_failure": "collect_all", "collect": None}, body=body)
    unit = compile_manifest(Manifest("w", "", INPUT, BUDGET, linked([each]), ("each",)), TIGHT)
    paths = [f"each[{item}]/t" for item in range(5)]
    assert behind(unit.manifest, paths[2], paths) == {paths[item] for item in late}
    there = settled_for_sure(engines.walk(unit, 1, held=paths[2]))
    assert there == {paths[item] for item in {0, 1, 3, 4} - late}


def test_another_outcome_is_a_difference():
    one = engines.interpret(graph(a="", b="a"), 1)
    row = replace(one.rows["b"], status="skipped", reason="none")
    other = replace(one, rows={**one.rows, "b": row})
    assert differences(one, one) == []
    assert differences(one, other) == ["b: status 'completed' / 'skipped'; reason '' / 'none'"]
    assert differences(one, replace(one, rows={"a": one.rows["a"]})) == ["b: completed / no record"]


def test_where_a_child_was_cut_short_before_it_went_on_is_no_difference():
    one = engines.interpret(graph(a="", b="a"), 1)
    child = {"a>": one.rows["a"], "a>x": one.rows["a"]}
    again = {**child, "a>x": replace(child["a>x"], attempt=2)}
    here, there = (replace(one, rows={**one.rows, **rows}) for rows in (child, again))
    assert differences(here, there) == ["a>x: attempt 1 / 2"]
    at_x, at_y = (frozenset({(("step_opened", path), 1)}) for path in "xy")
    cut = [replace(here, resumed={"a>": at_x}), replace(there, resumed={"a>": at_y})]
    assert differences(*cut) == []
    assert differences(cut[0], replace(there, resumed={"a>": at_x})) == ["a>x: attempt 1 / 2"]


@pytest.mark.parametrize("seed", [50_043, 123_048, 200_031])
def test_engines_agree_where_a_child_that_was_cut_short_goes_on_or_what_a_failed_one_did_is_undone(seed):
    assert not compare(graph_of(seed), seed, interpreter_and_walker)


def test_a_difference_comes_with_a_small_graph():
    def wrong(unit, seed, _):
        found = engines.interpret(unit, seed)
        routers = {path: replace(row, attempt=7) for path, row in found.rows.items() if row.route}
        return replace(found, rows={**found.rows, **routers})

    seed = next(seed for seed in range(100) if compare(make(seed), seed, wrong))
    found = compare(make(seed), seed, wrong)
    small = shrink(make(seed), lambda less: bool(compare(less, seed, wrong)))
    assert len(small.order) <= 2
    assert "type: router" in explain(seed, found, wrong)
