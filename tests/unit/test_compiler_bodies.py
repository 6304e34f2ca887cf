"""Maps, loops, waits and sub-workflows: what the plan resolves, what the machine hands on, what is counted."""

from dataclasses import replace

import pytest

from shared.asl.limits import MAX_DEFINITION, MAX_EVENTS
from shared.compiler import compile_manifest
from shared.definition.loader import load_text
from shared.manifest import Body, Edge, Limits, Manifest, StepPlan
from shared.plan import plan
from shared.tools.registry import Tool


def planned(steps, head=""):
    text = f"workflow: w\n{head}steps:\n" + "".join(f"  {line}\n" for line in steps.splitlines())
    return plan(load_text(text, "w.yaml", None).workflow, {"look": Tool("look", print)})


def all_states(machine):
    for name, state in machine["States"].items():
        yield name, state
        for inner in (*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ())):
            yield from all_states(inner)


MAP = """each:
  type: map
  over: "${ input.list }"
  steps:
    go: {type: tool, tool: look, risk: RISK}
"""


@pytest.mark.parametrize(
    ("head", "over", "items"),
    [
        ("", "${ input.list }", None),
        ("input: {type: object, properties: {list: {type: array, maxItems: 7}}}\n", "${ input.list }", 7),
        (
            "input: {type: object, properties: {list: {type: array, maxItems: 7}}}\n",
            "${ input.list.filter(x, x) }",
            None,
        ),
        ("", [1, 2, 3], 3),
    ],
)
def test_how_many_items_a_map_can_have(head, over, items):
    written = over if isinstance(over, list) else f'"{over}"'
    steps = MAP.replace("RISK", "read").replace('"${ input.list }"', str(written))
    assert planned(steps, head).steps["each"].spec["max_items"] == items


def test_items_of_a_step_that_declares_its_output():
    steps = (
        "find: {type: tool, tool: look, risk: read, "
        "output: {type: object, properties: {a: {type: array, maxItems: 9}}}}\n"
        'each: {type: map, needs: [find], over: "${ steps.find.output.a }", steps: {t: {type: transform, set: {v: 1}}}}'
    )
    assert planned(steps).steps["each"].spec["max_items"] == 9


@pytest.mark.parametrize(
    ("risk", "rule"),
    [("read", "collect_all"), ("reversible, compensate: {tool: look}", "fail_fast"), ("irreversible", "fail_fast")],
)
def test_a_map_with_effects_fails_fast_unless_told_otherwise(risk, rule):
    each = planned(MAP.replace("RISK", risk)).steps["each"]
    assert each.spec["on_failure"] == rule
    told = planned(MAP.replace("RISK", risk) + "  on_failure: {quorum: 2}\n").steps["each"]
    assert told.spec["on_failure"] == {"quorum": 2}


@pytest.mark.parametrize(("parallel", "limit"), [(10, 10), (100, 40)])
def test_a_map_is_as_wide_as_the_run_may_be(parallel, limit):
    each = planned(MAP.replace("RISK", "read"), f"max_parallel: {parallel}\n").steps["each"]
    assert each.spec["max_concurrency"] == limit


def test_bodies_are_graphs_of_their_own():
    steps = """revise:
  type: loop
  until: "loop.iteration > 1"
  max_iterations: 3
  steps:
    a: {type: transform, set: {v: 1}}
    b: {type: transform, set: {v: 1}}
    c: {type: transform, needs: [a], set: {v: 1}}
    d: {type: transform, needs: [a, b], set: {v: 1}}
"""
    manifest = compile_manifest(planned(steps, "on_error: continue\n")).manifest
    body = manifest.steps["revise"].body
    assert body.order == ("a", "b", "c", "d")
    assert {name: step.wakes for name, step in body.steps.items()} == {"a": ("d",), "b": (), "c": (), "d": ()}
    assert {step.on_error for step in body.steps.values()} == {"continue"}
    assert manifest.steps["revise"].retry.max_retries == 0
    assert Manifest.from_json(manifest.to_json()).steps["revise"].body.order == body.order


def test_a_deadline_is_the_machines_timeout():
    manifest = planned("a: {type: transform, set: {v: 1}}", "deadline: 1h\n")
    assert compile_manifest(manifest).asl["TimeoutSeconds"] == 3600


def step(name, kind="transform", needs=(), **given):
    return StepPlan(id=name, type=kind, needs=tuple(map(Edge, needs)), **{"spec": {"set": {}}, **given})


def manifest_of(*plans):
    return Manifest("w", "", {}, Limits(), {plan.id: plan for plan in plans}, tuple(plan.id for plan in plans))


def holding(name, kind, spec, *inside):
    body = Body({plan.id: plan for plan in inside}, tuple(plan.id for plan in inside))
    return step(name, kind, spec=spec, body=body)


MAP_SPEC = {"over": "x", "max_concurrency": 4, "max_items": 10, "on_failure": "fail_fast"}
LOOP_SPEC = {"until": "true", "max_iterations": 5}


def test_a_map_hands_every_item_its_scope():
    found = dict(all_states(compile_manifest(manifest_of(holding("each", "map", MAP_SPEC, step("go")))).asl))
    assert found["each"]["ResultSelector"] == {"items.$": "$.Payload.items"}
    items = found["each · items"]
    assert items["ItemSelector"]["scope.$"] == "States.Format('{}each[{}]/', $.scope, $$.Map.Item.Value)"
    assert items["ItemSelector"]["routes"] == {}
    assert (items["ItemsPath"], items["MaxConcurrency"], items["Next"]) == ("$.map.items", 4, "each · collect")
    assert found["each · collect"]["Parameters"]["Payload"]["op"] == "collect"
    assert {found[name]["Catch"][0]["Next"] for name in ("each", "each · collect")} == {"each · cascade"}


def test_a_loop_asks_before_every_iteration():
    found = dict(all_states(compile_manifest(manifest_of(holding("again", "loop", LOOP_SPEC, step("go")))).asl))
    assert found["again"]["Next"] == "again · again"
    assert found["again · again"]["Choices"][0]["Next"] == "again · body"
    assert found["again · body"]["Next"] == "again"
    assert found["again · body"]["Parameters"]["scope.$"] == "$.loop.scope"


@pytest.mark.parametrize("spec", [{"for": 5.0}, {"until": "${ input.at }"}])
def test_a_wait_asks_how_long(spec):
    found = dict(all_states(compile_manifest(manifest_of(step("rest", "wait", spec=spec))).asl))
    assert found["rest"]["ResultSelector"] == {"seconds.$": "$.Payload.seconds", "done.$": "$.Payload.done"}
    assert found["rest · waited"]["Default"] == "rest · wait"
    assert found["rest · wait"]["Next"] == "rest"


@pytest.mark.parametrize(
    ("kind", "spec", "op"),
    [("wait", {"event": {"name": "x", "match": None, "timeout": 90.0}}, "event"), ("sub_workflow", {}, "child")],
)
def test_what_comes_from_outside_parks(kind, spec, op):
    found = dict(all_states(compile_manifest(manifest_of(step("out", kind, spec=spec, timeout=90.0))).asl))
    payload = found["out"]["Parameters"]["Payload"]
    assert (payload["op"], payload["token.$"]) == (op, "$$.Task.Token")
    assert found["out"]["TimeoutSeconds"] == 95


def test_failure_ends_a_body_and_never_the_execution():
    inner = holding("each", "map", MAP_SPEC, step("a"), step("b"))
    found = dict(all_states(compile_manifest(manifest_of(holding("loop_", "loop", LOOP_SPEC, inner))).asl))
    failing = {found[f"{name} · cascaded"]["Default"] for name in ("a", "b", "each")}
    assert {found[name]["Type"] for name in failing} == {"Succeed"}
    assert found[found["loop_ · cascaded"]["Default"]]["Type"] == "Fail"


def test_names_are_told_apart_by_their_way():
    manifest = manifest_of(
        holding("one", "map", MAP_SPEC, step("go")),
        holding("two", "map", MAP_SPEC, step("go"), step("finish")),
    )
    names = [name for name, _ in all_states(compile_manifest(manifest).asl)]
    assert len(names) == len(set(names))
    assert {"one/go", "two/go", "finish · 2"} <= set(names)


def test_long_ways_are_shortened_and_stay_unique():
    deep = holding("m" * 60, "map", MAP_SPEC, step("x" * 60))
    manifest = manifest_of(deep, holding("n" * 60, "map", MAP_SPEC, step("x" * 60)), step("k"))
    names = [name for name, _ in all_states(compile_manifest(manifest).asl)]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= 80


def test_items_and_iterations_count():
    mapped = compile_manifest(manifest_of(holding("each", "map", MAP_SPEC, step("go")))).summary
    looped = compile_manifest(manifest_of(holding("again", "loop", LOOP_SPEC, step("go")))).summary
    assert mapped.transitions == 3 + 10 + 2
    assert looped.transitions == 2 + 5 * 4 + 2
    more = replace(manifest_of(holding("each", "map", MAP_SPEC | {"max_items": 11}, step("go"))))
    one_step = 12 + 10 + 5
    assert compile_manifest(more).summary.events - mapped.events == one_step + 2 + 2


def test_what_one_history_holds_is_left_whole():
    unit = compile_manifest(manifest_of(holding("each", "map", MAP_SPEC | {"max_items": 400}, step("go"))))
    assert unit.manifest.steps["each"].split is None
    assert "whole or part" not in unit.asl["States"]


def test_a_map_that_is_too_long_is_split_and_every_execution_fits():
    unit = compile_manifest(manifest_of(holding("each", "map", MAP_SPEC | {"max_items": 5_000}, step("go"))))
    how = unit.manifest.steps["each"].split
    assert how.inline == 100
    assert (how.at_once, how.inside) == (2, 2)
    assert how.size * 4 < 5_000
    assert unit.summary.events <= MAX_EVENTS
    found = dict(all_states(unit.asl))
    assert found["whole or part"]["Choices"] == [{"Variable": "$.part", "StringEquals": "each", "Next": "each · apart"}]
    assert found["each · how"]["Choices"][0]["Next"] == "each · parts"
    assert found["each · part"]["Parameters"]["Payload"]["step.$"] == "$.part"
    assert found["each · apart · items"]["MaxConcurrency"] == how.inside


@pytest.mark.parametrize(
    ("items", "limit", "expected"),
    [
        *((250, 1, (1, 1)), (250, 3, (1, 3)), (250, 9, (3, 3)), (250, 0, (5, 8))),
        *((5_000, 1, (1, 1)), (5_000, 3, (3, 1)), (5_000, 7, (2, 3)), (5_000, 10, (2, 5)), (5_000, 0, (5, 8))),
    ],
)
def test_children_of_a_map_share_its_limit_and_lose_little_of_it(items, limit, expected):
    spec = MAP_SPEC | {"max_items": items, "max_concurrency": limit}
    maps = [holding(name, "map", spec, step("go")) for name in ("each", "also")]
    how = compile_manifest(manifest_of(*maps), room=10_000).manifest.steps["each"].split
    assert (how.at_once, how.inside) == expected


def test_no_more_children_than_places_run_at_once():
    each = holding("each", "map", MAP_SPEC | {"max_items": 5_000, "max_concurrency": 0}, step("go"))
    how = compile_manifest(replace(manifest_of(each), max_parallel=2)).manifest.steps["each"].split
    assert (how.at_once, how.inside) == (2, 20)


def test_a_list_that_nothing_bounds_is_split_unless_its_body_awaits_events():
    event = step("came", "wait", spec={"event": {"name": "x", "match": None, "timeout": 90.0}}, timeout=90.0)
    endless = MAP_SPEC | {"max_items": None}
    unit = compile_manifest(
        manifest_of(holding("each", "map", endless, step("go")), holding("all_", "map", endless, event))
    )
    each, waiting = unit.manifest.steps["each"], unit.manifest.steps["all_"]
    assert each.split.inline <= 100 < each.spec["max_items"]
    assert (waiting.split, waiting.spec["max_items"]) == (None, 100)
    assert unit.summary.events <= MAX_EVENTS


def test_a_long_loop_is_split():
    unit = compile_manifest(manifest_of(holding("again", "loop", LOOP_SPEC | {"max_iterations": 2_000}, step("go"))))
    assert unit.manifest.steps["again"].split.size < 2_000
    assert unit.summary.events <= MAX_EVENTS
    assert dict(all_states(unit.asl))["again · part"]["Next"] == "again"


def test_what_is_split_in_what_is_split():
    inner = holding("inner", "map", MAP_SPEC | {"max_items": 900}, step("go"))
    unit = compile_manifest(manifest_of(holding("outer", "loop", LOOP_SPEC | {"max_iterations": 400}, inner)))
    assert unit.summary.events <= MAX_EVENTS
    parts = dict(all_states(unit.asl))["whole or part"]["Choices"]
    assert [one["StringEquals"] for one in parts] == ["outer", "outer/inner"]
    names = [name for name, _ in all_states(unit.asl)]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= 80


def wide(count, **given):
    needs = {f"s{index}": () for index in range(count)} | {f"t{index}": (f"s{index}",) for index in range(count)}
    return manifest_of(*(step(name, needs=sources, **given) for name, sources in needs.items()))


def test_what_would_not_fit_is_written_once():
    small, large = compile_manifest(wide(20)), compile_manifest(wide(300))
    assert not [name for name, _ in all_states(small.asl) if name.startswith("lanes")]
    assert large.summary.definition_size < MAX_DEFINITION / 5
    fork = large.asl["States"][large.asl["StartAt"]]
    given = [lane for lanes in fork["Parameters"]["lanes"].values() for lane in lanes]
    assert sorted(name for lane in given for name in lane.values()) == sorted(large.manifest.order)
    assert all(len(lanes) <= 40 for lanes in fork["Parameters"]["lanes"].values())
    runs = [state for _, state in all_states(fork["Branches"][0]) if state.get("Parameters", {}).get("Payload", {})]
    assert {state["Parameters"]["Payload"]["step.$"] for state in runs} == {"$.lane.s1", "$.lane.s2"}


def test_branches_that_differ_are_not_folded_together():
    mixed = wide(300)
    odd = replace(mixed, steps=mixed.steps | {"s7": replace(mixed.steps["s7"], timeout=99.0)})
    found = compile_manifest(odd)
    names = [name for name, _ in all_states(found.asl)]
    assert "s7" in names
    assert "s8" not in names


def test_what_has_a_run_of_its_own_writes_its_events_there():
    whole = holding("each", "map", MAP_SPEC | {"max_items": 400}, step("go"))
    beside = [holding(f"m{number}", "map", MAP_SPEC | {"max_items": 400}, step("go")) for number in range(4)]
    apart = [replace(plan, apart=True, timeout=3600.0, budget=Limits(steps=500)) for plan in (whole, *beside)]
    unit = compile_manifest(manifest_of(*apart))
    assert not any(plan.split for plan in unit.manifest.steps.values())
    alone = compile_manifest(manifest_of(whole)).summary.events
    assert alone <= unit.summary.events <= alone + 10
    found = dict(all_states(unit.asl))
    assert (found["each"]["TimeoutSeconds"], found["each"]["Parameters"]["Payload"]["op"]) == (3605, "apart")
    begins = {one["StringEquals"]: one["Next"] for one in found["whole or part"]["Choices"]}
    assert begins["each alone"] == "each · apart"
    assert found["each · apart"]["Parameters"]["Payload"]["op"] == "map"


def test_what_its_own_run_cannot_hold_is_split_there():
    plan = holding("again", "loop", LOOP_SPEC | {"max_iterations": 2_000}, step("go"))
    unit = compile_manifest(manifest_of(replace(plan, apart=True, timeout=3600.0)))
    assert unit.manifest.steps["again"].split
    assert unit.summary.events <= MAX_EVENTS
    found = dict(all_states(unit.asl))
    begins = {one["StringEquals"]: one["Next"] for one in found["whole or part"]["Choices"]}
    assert found[begins["again alone"]]["Parameters"]["Payload"]["op"] == "segment"
    assert found[begins["again"]]["Parameters"]["Payload"]["op"] == "loop"
