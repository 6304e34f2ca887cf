"""What the invoice does not show: branches, awaits, fallbacks, policies, irreversible calls. Hand-made manifests."""

from __future__ import annotations

import json

import pytest
from invariants import check
from machine import UNWIND, Killed, World

from shared.compiler import compile_manifest
from shared.errors import Conflict, PermanentFailure, PolicyViolation, TransientFailure
from shared.manifest import Edge, Limits, Manifest, Retry, StepPlan
from shared.ports import Key, Write
from shared.runtime.ending import request
from shared.runtime.gates import Word, decide_gate
from shared.runtime.journal import Change
from shared.runtime.parking import Order, resume_step
from shared.runtime.task import Task
from shared.testing import FakeModels, FakeTools

BUDGET = Limits(usd=10**9, tokens=10_000, steps=30, active_time=3600.0)


def tool(name, *needs, **more):
    edges = tuple(edge if isinstance(edge, Edge) else Edge(edge) for edge in needs)
    spec = {"tool": "do", "with": {"step": name}, "compensate": None, "reconcile": None, **more.pop("spec", {})}
    return StepPlan(name, "tool", edges, spec=spec, **more)


def world(*plans, on_error="pause", do=None, **more):
    ids = [plan.id for plan in plans]
    steps = {}
    for plan in plans:
        dependents = tuple(other.id for other in plans if plan.id in {edge.source for edge in other.needs})
        steps[plan.id] = StepPlan(**{**{f: getattr(plan, f) for f in plan.__slots__}, "dependents": dependents})
    templates = {plan.fallback for plan in plans if plan.fallback}
    order = tuple(name for name in ids if name not in templates)
    manifest = Manifest("w", "", {"type": "object"}, BUDGET, steps, order, on_error=on_error)
    tools = FakeTools({"do": do or (lambda arguments, _: arguments["step"])})
    return World(compile_manifest(manifest), FakeModels(lambda _: "yes"), tools, **more)


def statuses(w):
    return {step.path: step.status for step in w.records.steps()}


def called(w):
    return [arguments["step"] for _, arguments, _ in w.tools.calls]


def task(w, step):
    return Task("run", step, "", w.run, w.tenant, "w", 1, w.head.epoch, "", "person", 0)


def failing(*names, error=PermanentFailure):
    def do(arguments, _):
        if arguments["step"] in names:
            raise error("no")
        return arguments["step"]

    return do


def test_an_n_shape_starts_each_step_when_its_own_needs_have_settled():
    w = world(tool("a"), tool("b"), tool("c", "a"), tool("d", "a", "b"))
    assert w.start({}).status == "SUCCEEDED"
    assert set(statuses(w).values()) == {"completed"}
    check(w)


def test_the_await_in_an_n_shape_is_woken_by_a_source_that_fails_and_continues():
    w = world(tool("a"), tool("b", on_error="continue"), tool("c", "a"), tool("d", "a", "b"), do=failing("b"))
    assert w.start({}).status == "SUCCEEDED"
    assert statuses(w) == {"a": "completed", "b": "failed", "c": "completed", "d": "skipped"}
    check(w)


def test_a_failed_optional_source_does_not_count():
    w = world(tool("a", on_error="continue", optional=True), tool("b", Edge("a", optional=True)), do=failing("a"))
    assert w.start({}).status == "SUCCEEDED"
    assert statuses(w) == {"a": "failed", "b": "completed"}
    check(w)


def test_conditions_on_edges_and_steps_skip_and_say_why():
    w = world(
        tool("a"),
        tool("b", Edge("a", when="steps.a.output == 'z'")),
        tool("c", "a", when="steps.a.output == 'z'"),
        tool("d", "b"),
    )
    assert w.start({}).status == "SUCCEEDED"
    assert statuses(w) == {"a": "completed", "b": "skipped", "c": "skipped", "d": "skipped"}
    reasons = {step.path: step.reason for step in w.records.steps()}
    assert "when is false" in reasons["c"]
    assert "no active edge from b" in reasons["d"]
    check(w)


def test_a_fallback_stands_in_when_retries_are_exhausted():
    w = world(
        tool("a", fallback="f", retry=Retry(1)), tool("f"), tool("b", "a"), do=failing("a", error=TransientFailure)
    )
    assert w.start({}).status == "SUCCEEDED"
    assert called(w) == ["a", "a", "f", "b"]
    step = w.records.step("a")
    assert (step.status, step.by, json.loads(step.output.text)) == ("completed", "fallback", "f")
    check(w)


def test_a_fallback_that_fails_leaves_it_to_on_error():
    w = world(tool("a", fallback="f", on_error="fail"), tool("f"), do=failing("a", "f"))
    assert w.start({}).status == "FAILED Signalbox.RunFailed"
    w.unwind()
    assert w.head.state == "failed"
    check(w)


def test_fail_ends_the_run_keeps_results_and_undoes_in_reverse_order():
    undo = {"compensate": {"tool": "do", "with": {"step": "undo ${ steps.b.status }"}}}
    w = world(
        tool("b", risk="reversible", spec=undo),
        tool("a", "b", risk="reversible", spec={"compensate": {"tool": "do", "with": {"step": "undo a"}}}),
        tool("c", "a", on_error="fail"),
        do=failing("c"),
    )
    w.start({})
    w.unwind()
    assert called(w) == ["b", "a", "c", "undo a", "undo completed"]
    assert {path: status for path, status in statuses(w).items() if "/" not in path} == {
        "a": "compensated",
        "b": "compensated",
        "c": "failed",
    }
    check(w)


def test_a_run_that_was_stopped_undoes_nothing():
    undo = {"compensate": {"tool": "do", "with": {"step": "undo a"}}}
    w = world(tool("a", risk="reversible", spec=undo), tool("b", "a"), do=failing("b"))
    w.start({})
    request(w.steps, w.journal, "stopped", "the execution died", UNWIND)
    w.unwind()
    assert called(w) == ["a", "b"]
    assert (w.head.state, w.records.step("a").status) == ("stopped", "completed")
    check(w)


def test_a_probe_that_finds_nothing_too_early_proves_nothing():
    def dies_then_searches(arguments, _):
        if arguments["step"] == "a":
            raise Killed
        return {"count": 0}

    probe = {"tool": "do", "with": {"step": "find"}, "found": "result.count > 0", "conclusive_after": 3600.0}
    spec = {"compensate": {"tool": "do", "with": {"step": "undo"}}, "reconcile": probe}
    w = world(tool("a", risk="reversible", retry=Retry(1), spec=spec), do=dies_then_searches)
    w.start({})
    assert called(w) == ["a", *["find"] * 5]
    assert (w.head.state, w.records.step("a").status) == ("paused", "unknown")
    assert "did not find" in w.records.step("a").failure.message
    check(w)


def test_an_irreversible_call_without_an_approval_is_refused():
    w = world(tool("a", risk="irreversible", on_error="fail"))
    w.start({})
    w.unwind()
    assert called(w) == []
    assert w.records.step("a").failure.error_class == PolicyViolation.error_class
    check(w)


def gated(**more):
    spec = {"approves": "a", "approvers": ["finance"], "on_expiry": "reject"}
    gate = StepPlan("g", "human_gate", (), timeout=60.0, on_error="fail", spec=spec)
    return world(gate, tool("a", "g", risk="irreversible", approved_by="g"), **more)


def test_an_interrupted_irreversible_call_is_unknown_and_never_called_again_by_itself():
    def dies(*_):
        raise Killed

    w = gated(do=dies)
    run = w.start({})
    decide_gate(w.steps, w.journal, "g", Word("approved", "fatima@example.test"))
    run.go()
    assert (w.head.state, w.records.step("a").status) == ("paused", "unknown")
    assert called(w) == ["a"]
    check(w)
    with pytest.raises(Conflict, match="unknown"):
        resume_step(w.steps, task(w, "a"), Order("retry", "ops"), UNWIND)
    resume_step(w.steps, task(w, "a"), Order("accept", "ops", result="it happened"), UNWIND)
    assert run.go().status == "SUCCEEDED"
    assert called(w) == ["a"]
    check(w)


def test_an_approval_of_other_arguments_is_refused_when_it_counts():
    w = gated()
    run = w.start({})
    decide_gate(w.steps, w.journal, "g", Word("approved", "fatima@example.test"))
    w.unit.manifest.steps["a"].spec["with"]["step"] = "something else"
    run.go()
    assert called(w) == []
    assert w.records.step("a").failure.error_class == "policy"
    check(w)


def test_routers_by_score_take_the_highest_threshold_reached_else_the_default():
    routes = [{"to": "low", "above": 0.1}, {"to": "high", "above": 0.8}]
    spec = {"strategy": "score", "value": "steps.s.output.v", "routes": routes, "default": "none"}
    for score, target in ((0.9, "high"), (0.5, "low"), (0.05, "none")):
        w = world(
            StepPlan("s", "transform", (), spec={"set": {"v": score}}),
            StepPlan("r", "router", (Edge("s"),), spec=spec),
            tool("low", "r"),
            tool("high", "r"),
            tool("none", "r"),
        )
        assert w.start({}).status == "SUCCEEDED"
        assert called(w) == [target]
        check(w)


def test_a_model_may_choose_a_route_and_an_unknown_answer_takes_the_default():
    routes = [{"to": "yes", "description": "agree"}, {"to": "no", "description": "disagree"}]
    for answer, target in (("yes\n", "yes"), ("delete everything", "no")):
        spec = {"strategy": "llm", "model": ["claude-haiku-4-5"], "prompt": "?", "routes": routes, "default": "no"}
        w = world(StepPlan("r", "router", (), spec=spec), tool("yes", "r"), tool("no", "r"))
        w.models._answer = lambda _, answer=answer: answer
        assert w.start({}).status == "SUCCEEDED"
        assert called(w) == [target]
        check(w)


def test_any_join_runs_at_the_first_active_edge_and_only_once():
    w = world(tool("a"), tool("b", on_error="continue"), tool("c", "a", "b", join="any"), do=failing("b"))
    assert w.start({}).status == "SUCCEEDED"
    assert sorted(called(w)) == ["a", "b", "c"]
    check(w)


def test_two_branches_that_pause_wait_side_by_side():
    w = world(tool("a"), tool("b"), tool("c", "a", "b"), do=failing("a", "b"))
    run = w.start({})
    assert (w.head.paused, len(run.waiting)) == (2, 2)
    for step in ("a", "b"):
        resume_step(w.steps, task(w, step), Order("accept", "ops", result=step), UNWIND)
    assert run.go().status == "SUCCEEDED"
    assert called(w)[-1] == "c"
    check(w)


def test_a_conflict_reads_again_what_had_no_record_before():
    w = gated()
    w.start({})
    seen = w.journal.read(["STEP#a"])
    decide_gate(w.steps, w.journal, "g", Word("approved", "fatima@example.test"))
    w.store.commit(
        [Write(Key(w.journal.pk, "STEP#a"), {"path": "a", "step": "a", "type": "tool", "status": "running"}, None)]
    )
    met = []

    def decide(again):
        met.append(again.step("a"))
        return Change(None, (again.head,), ())

    w.journal.transact(seen, decide)
    assert [step is None for step in met] == [True, False]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("by_step", {"a": {"x": {"p": 1}}, "b": {"x": {"q": 2}}}),
        ("shallow", {"x": {"q": 2}}),
        ("deep", {"x": {"p": 1, "q": 2}}),
        ("list", [{"x": {"p": 1}}, {"x": {"q": 2}}]),
        ("first", {"x": {"p": 1}}),
    ],
)
def test_upstream_outputs_are_merged_as_the_step_asks_for(kind, expected):
    def given(name, value, *needs):
        return StepPlan(name, "transform", tuple(map(Edge, needs)), spec={"set": value})

    merged = StepPlan("m", "transform", tuple(map(Edge, "abc")), merge=kind, spec={"set": {"all": "${ inputs }"}})
    w = world(given("a", {"x": {"p": 1}}), given("b", {"x": {"q": 2}}), tool("c", when="false"), merged)
    assert w.start({}).status == "SUCCEEDED"
    assert json.loads(w.records.step("m").output.text) == {"all": expected}
    check(w)
