"""A run that ended early goes on in another epoch: what was completed stays, the rest runs anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import each, loop, manifest, plan, said, task, tool, world
from invariants import check
from machine import UNWIND, Execution, World
from test_doubt import change, fails
from test_parts import Town
from test_waits_and_children import child_of, family

from shared.compiler import compile_manifest
from shared.errors import Conflict, PermanentFailure
from shared.manifest import StepPlan
from shared.ports import Execution as Stopped
from shared.runtime.ending import request
from shared.runtime.gates import Word, decide_gate
from shared.runtime.host import Published
from shared.runtime.journal import Change
from shared.runtime.mending import mend
from shared.runtime.parking import Order, resume_step
from shared.runtime.resuming import Resume, resume_run, void_approvals
from shared.testing import FakeModels, FakeTools, FixedDefinitions

NO = PermanentFailure("no")


def resumed(w, version=None):
    """Resume the world's run and return its new execution."""
    resume_run(w.steps, w.journal, Resume("ops", version))
    return w.execution()


def mended(w):
    w.tools._functions["do"] = lambda arguments, _: arguments["say"]


def failed(*plans, do=None, **words):
    """Return a world whose run has failed at the words."""
    w = world(*plans, do=do or fails(**words))
    w.start({})
    w.unwind()
    assert w.head.ended == "failed"
    return w


def test_completed_steps_are_not_paid_again():
    w = failed(tool("a"), tool("b", "a", on_error="fail"), tool("c", "b"), b=[NO])
    mended(w)
    run = resumed(w)
    assert (run.status, w.head.ended, w.head.epoch) == ("SUCCEEDED", "completed", 2)
    assert said(w) == ["a", "b", "b", "c"]
    check(w)


@pytest.mark.parametrize("ending", ["stopped", "timed_out", "cancelled"])
def test_whatever_ended_early_goes_on(ending):
    w = world(tool("a"), plan("w", "wait", ("a",), spec={"event": {"name": "go"}}, timeout=60.0), tool("c", "w"))
    w.start({})
    request(w.steps, w.journal, ending, "for a test", UNWIND)
    w.unwind()
    run = resumed(w)
    assert (run.status, w.head.state, w.records.step("w").status) == ("RUNNING", "running", "waiting")
    assert said(w) == ["a"]
    check(w)


def test_a_run_whose_time_was_over_goes_on_in_another_execution_which_counts_its_deadline_anew():
    wait = plan("w", "wait", (), spec={"event": {"name": "go"}}, timeout=60.0)
    w = World(compile_manifest(replace(manifest(wait), deadline=600.0)), FakeModels(lambda _: ""), FakeTools({}))
    assert w.unit.asl["TimeoutSeconds"] == 600  # of each execution
    w.start({})
    w.clock.sleep(601)
    w.engine.ended["machine:w:1", f"{w.run}.1"] = Stopped("timed_out", "")
    mend(w.steps, w.tenant, w.run, UNWIND)
    w.unwind()
    assert w.head.ended == "timed_out"
    run = resumed(w)
    assert (run.status, w.records.step("w").status) == ("RUNNING", "waiting")
    assert ("machine:w:1", f"{w.run}.2") in w.engine.executions
    assert mend(w.steps, w.tenant, w.run, UNWIND) == []
    check(w)


def test_undone_steps_run_again_as_another_dispatch_and_can_be_undone_again():
    w = failed(change("a"), tool("b", "a", on_error="fail"), b=[NO])
    assert w.records.step("a").status == "compensated"
    first = w.records.step("a").call
    run = resumed(w)
    assert run.status.startswith("FAILED")
    w.unwind()
    again = w.records.step("a").call
    assert (w.records.step("a").status, again.dispatch) == ("compensated", 2)
    assert first.key != again.key
    assert said(w) == ["a", "b", "undo a", "a", "b", "undo a"]
    keys = [call.idempotency_key for _, arguments, call in w.tools.calls if arguments["say"] == "undo a"]
    assert len(set(keys)) == 2
    check(w)
    mended(w)
    assert resumed(w).status == "SUCCEEDED"
    check(w)


def test_what_was_skipped_is_decided_anew():
    w = failed(tool("a", on_error="continue"), tool("b", "a"), tool("stop", on_error="fail"), a=[NO], stop=[NO])
    assert w.records.step("b").status == "skipped"
    mended(w)
    assert resumed(w).status == "SUCCEEDED"
    assert {step.status for step in w.records.steps()} == {"completed"}
    check(w)


def test_a_map_keeps_its_items_and_the_results_of_those_that_were_completed():
    items = each(tool("a", say="${ item }", on_error="fail"), over=["x", "y", "z"], on_failure="fail_fast")
    w = failed(replace(items, on_error="fail"), y=[NO])
    done = said(w)
    mended(w)
    assert resumed(w).status == "SUCCEEDED"
    assert sorted(said(w)) == sorted([*done, "y", *({"x", "z"} - set(done))])
    check(w)


def test_a_loop_goes_on_in_the_iteration_that_failed():
    again = loop(tool("a", say="${ string(loop.iteration) }", on_error="fail"), until="loop.iteration >= 3", times=4)
    w = failed(replace(again, on_error="fail"), **{"2": [NO]})
    mended(w)
    assert resumed(w).status == "SUCCEEDED"
    assert said(w) == ["1", "2", "2", "3"]
    check(w)


def gated(risk="irreversible", do=None):
    spec = {"approves": "a", "approvers": ["finance"], "on_expiry": "reject"}
    gate = StepPlan("g", "human_gate", (), dependents=("a",), timeout=60.0, on_error="fail", spec=spec)
    step = replace(tool("a", "g", on_error="fail"), risk=risk, approved_by="g")
    w = world(gate, step, tool("b", "a", on_error="fail"), do=do)
    run = w.start({})
    return w, run


def approve(w, decision="approved"):
    decide_gate(w.steps, w.journal, "g", Word(decision, "ben@example.test"))


def test_a_call_that_failed_for_certain_needs_another_approval():
    w, run = gated(do=fails(a=[NO]))
    approve(w)
    run.go()
    w.unwind()
    first = w.records.gate("g")
    mended(w)
    run = resumed(w)
    asked = w.records.gate("g")
    assert (run.status, asked.status, asked.dispatch) == ("RUNNING", "open", 2)
    assert asked.id != first.id
    approve(w)
    run.go()
    assert (run.status, w.records.step("a").call.dispatch) == ("SUCCEEDED", 2)
    check(w)


def test_any_number_of_approvals_is_made_void():
    w, run = gated(do=fails(a=[NO]))
    approve(w)
    run.go()
    w.unwind()
    gate, asking, step = w.records.gate("g"), w.records.step("g"), w.records.step("a")
    for number in range(40):
        more = (replace(gate, path=f"g{number}", approves=f"a{number}"), replace(asking, path=f"g{number}"))
        called = replace(step, path=f"a{number}")
        w.journal.transact(
            w.records, lambda _, new=(*more, called): Change(None, tuple(replace(n, rev=0) for n in new))
        )
    assert {gate.status for gate in void_approvals(w.journal).gates()} == {"cancelled"}


def test_an_approval_stays_whose_call_was_never_made():
    w, run = gated()
    approve(w)
    request(w.steps, w.journal, "cancelled", "between", UNWIND)
    run.go()
    w.unwind()
    assert said(w) == []
    assert resumed(w).status == "SUCCEEDED"
    assert said(w) == ["a", "b"]
    check(w)


def test_a_completed_irreversible_step_is_never_made_again():
    w, run = gated(do=fails(b=[NO]))
    approve(w)
    run.go()
    w.unwind()
    mended(w)
    assert resumed(w).status == "SUCCEEDED"
    assert said(w) == ["a", "b", "b"]
    check(w)


def test_a_rejected_gate_is_asked_again():
    w, run = gated()
    approve(w, "rejected")
    run.go()
    w.unwind()
    run = resumed(w)
    assert w.records.gate("g").status == "open"
    approve(w)
    assert run.go().status == "SUCCEEDED"
    check(w)


def ended_child():
    """Return a parent whose child has failed at its second step, and with it the parent; and the child's world."""
    w, child = family(tool("x"), tool("y", "x", on_error="fail"), do=fails(y=[NO]), on_error="fail")
    run = w.start({})
    below = child_of(w, child)
    below.execution()
    below.unwind()
    run.go()
    w.unwind()
    assert (w.head.ended, below.head.ended) == ("failed", "failed")
    return w, below


def test_a_child_goes_on_with_its_parent():
    w, below = ended_child()
    mended(w)
    run = resumed(w)
    assert (run.status, below.head.epoch, below.head.ended) == ("RUNNING", 2, None)
    assert below.execution().status == "SUCCEEDED"
    assert run.go().status == "SUCCEEDED"
    assert said(w) == ["x", "y", "y", "after"]
    assert w.records.step("sub").spent.steps == 3
    check(w)
    check(below)


def test_a_child_is_not_resumed_without_its_parent():
    _, below = ended_child()
    with pytest.raises(Conflict, match="child"):
        resumed(below)


def large(kind):
    """Return a map or loop of 40 that falls into parts."""
    if kind == "loop":
        inner = tool("a", say="${ string(loop.iteration) }", on_error="fail")
        return loop(inner, until="loop.iteration >= 40", times=60, on_error="fail")
    inner, over = tool("a", say="${ item }", on_error="fail"), [str(number) for number in range(1, 41)]
    made = each(inner, over=over, on_failure="fail_fast", on_error="fail")
    return replace(made, spec={**made.spec, "max_items": 40, "max_concurrency": 2})


@pytest.mark.parametrize("kind", ["map", "loop"])
def test_parts_go_on_with_their_whole(kind):
    town = Town(large(kind), do=fails(**{"31": [NO]})).start()
    assert town.w.head.ended == "failed"
    first = said(town.w)
    assert 1 < len(first) < 40
    assert dead(town.w)
    mended(town.w)
    resume_run(town.w.steps, town.w.journal, Resume("ops"))
    town.go()
    assert town.w.head.ended == "completed"
    assert sorted(said(town.w)) == sorted([*(str(number) for number in range(1, 41)), "31"])
    assert dead(town.w) == []
    town.check()


def test_what_runs_again_has_no_dead_letter_until_it_fails_again():
    w = failed(tool("a", on_error="fail"), a=[NO])
    assert dead(w) == ["a"]
    resumed(w)
    assert dead(w) == ["a"], "it has failed again"
    w.unwind()
    mended(w)
    resumed(w)
    assert dead(w) == []


def dead(w):
    return [
        item["path"] for key, item in w.store.items.items() if key.sk.startswith("DEAD#") and "tenant_pending" in item
    ]


def test_only_what_has_ended_early_is_resumed():
    w = world(tool("a"))
    run = w.start({})
    assert run.status == "SUCCEEDED"
    with pytest.raises(Conflict, match="completed"):
        resumed(w)
    w = world(plan("w", "wait", (), spec={"event": {"name": "go"}}, timeout=60.0))
    w.start({})
    with pytest.raises(Conflict, match="not ended"):
        resumed(w)


def version(*plans, number=2):
    unit = compile_manifest(manifest(*plans))
    return Published("w", number, "h2", f"machine:w:{number}", unit.manifest)


def test_another_version_must_not_change_what_was_done():
    w = failed(tool("a"), tool("b", "a", on_error="fail"), b=[NO])
    for wrong, told in (
        (version(tool("a", say="other"), tool("b", "a")), "spec of step a"),
        (version(tool("b")), "step a is gone"),
        (version(tool("z"), tool("a", "z"), tool("b", "a")), "needs of step a"),
    ):
        with pytest.raises(Conflict, match=told):
            resumed(w, wrong)
    assert (w.head.ended, w.head.epoch) == ("failed", 1)


def test_another_version_must_take_the_input_that_the_run_was_given():
    w = failed(tool("a"), tool("b", "a", on_error="fail"), b=[NO])
    fresh = version(tool("a"), tool("b", "a"))
    wanting = replace(fresh.manifest, input={"type": "object", "required": ["n"]})
    with pytest.raises(Conflict, match=r"the run's input does not fit at .*'n' is a required property"):
        resumed(w, replace(fresh, manifest=wanting))
    assert (w.head.ended, w.head.epoch) == ("failed", 1)


class Versions(FixedDefinitions):
    """The world's own version, and a later one."""

    def __init__(self, first, later):
        super().__init__(first)
        self.later = later

    def published(self, workflow, version=None):
        return self.later if version == self.later.version else super().published(workflow, version)


def test_a_compatible_version_goes_on():
    w = failed(tool("a"), tool("b", "a", on_error="fail"), b=[NO])
    fresh = version(tool("a"), tool("b2", "a"), tool("c", "b2"))
    w.define(Versions(w.unit.manifest, fresh))
    resume_run(w.steps, w.journal, Resume("ops", fresh))
    machine = compile_manifest(fresh.manifest).asl
    run = Execution(w, machine, w.engine.executions[fresh.machine, f"{w.run}.2"])
    assert (run.status, w.records.run.version) == ("SUCCEEDED", 2)
    assert said(w) == ["a", "b", "b2", "c"]


def test_a_request_that_is_repeated_resumes_once():
    w = failed(tool("a"), tool("b", "a", on_error="fail"), b=[NO])
    mended(w)
    for _ in range(2):
        resume_run(w.steps, w.journal, Resume("ops", key="k1"))
    assert w.head.epoch == 2
    with pytest.raises(Conflict, match="not ended"):
        resume_run(w.steps, w.journal, Resume("ops", key="k2"))
    assert w.execution().status == "SUCCEEDED"
    assert resume_run(w.steps, w.journal, Resume("ops", key="k1")).head.ended == "completed"


def test_a_request_that_is_repeated_later_still_resumes_nothing():
    w = failed(tool("a"), tool("b", "a", on_error="fail"), b=[NO])
    for key in ("k1", "k2"):
        resume_run(w.steps, w.journal, Resume("ops", key=key))
        w.execution()
        w.unwind()
    assert (w.head.epoch, w.head.ended) == (3, "failed")
    assert resume_run(w.steps, w.journal, Resume("ops", key="k1")).head.epoch == 3


def test_a_word_on_a_step_that_is_repeated_is_carried_out_once():
    w = world(tool("a"), do=fails(a=[NO, NO]))
    execution = w.start({})
    task_ = task(w, "a")
    resume_step(w.steps, task_, Order("retry", "ops", key="k1"), UNWIND)
    execution.go()
    assert w.records.step("a").status == "paused"
    resume_step(w.steps, task_, Order("retry", "ops", key="k1"), UNWIND)
    assert w.records.step("a").status == "paused", "the second pause waits for another word"
    mended(w)
    resume_step(w.steps, task_, Order("retry", "ops", key="k2"), UNWIND)
    assert execution.go().status == "SUCCEEDED"
