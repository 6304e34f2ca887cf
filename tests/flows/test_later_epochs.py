"""Later epochs against what earlier ones left: old approvals, doubts, executions, children, and what was undone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import BUDGET, each, loop, manifest, output, plan, said, task, tool, world
from invariants import check
from machine import UNWIND, Execution, World
from test_doubt import LOST, change, fails, word
from test_parts import Town
from test_resume import NO, Versions, approve, gated, large, mended, resumed, version
from test_waits_and_children import waiting_for

from shared.compiler import compile_manifest
from shared.errors import Conflict, TransientFailure
from shared.manifest import Edge, Limits, Retry, StepPlan
from shared.runtime.ending import request
from shared.runtime.host import Published
from shared.runtime.parking import Order, Raise, resume_step
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.unwinding import cancel_waiting
from shared.runtime.waits import Arrival, deliver
from shared.testing import FakeModels, FakeTools


def cancelled(w, run=None):
    """Cancel the world's run and unwind it."""
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    if run:
        run.go()
    w.unwind()
    assert w.head.ended == "cancelled"


def parked(*needs):
    return plan("w", "wait", needs, spec={"event": {"name": "go"}}, timeout=600.0)


# what was decided


def test_an_approval_does_not_cover_what_another_version_would_call():
    w, run = gated()
    approve(w)
    cancelled(w, run)
    w.tools._functions["destroy"] = lambda arguments, _: arguments["say"]
    steps = w.unit.manifest.steps
    other = replace(steps["a"], spec={**steps["a"].spec, "tool": "destroy"})
    fresh = version(steps["g"], other, steps["b"])
    w.define(Versions(w.unit.manifest, fresh))
    resume_run(w.steps, w.journal, Resume("ops", fresh))
    run = Execution(w, compile_manifest(fresh.manifest).asl, w.engine.executions[fresh.machine, f"{w.run}.2"])
    assert w.tools.calls == []
    assert (run.status, w.records.gate("g").status, w.records.gate("g").tool) == ("RUNNING", "open", "destroy")
    approve(w)
    assert run.go().status == "SUCCEEDED"


def test_an_approval_does_not_outlast_what_it_was_made_of():
    made = iter(range(9))
    gate = {"approves": "a", "approvers": ["finance"], "on_expiry": "reject"}
    gate = StepPlan("g", "human_gate", (Edge("s"),), timeout=60.0, on_error="fail", spec=gate)
    step = replace(tool("a", "g", say="${ steps.s.output }", on_error="fail"), risk="irreversible", approved_by="g")
    w = world(change("s"), gate, step, do=lambda given, _: f"s{next(made)}" if given["say"] == "s" else "done")
    run = w.start({})
    first = w.records.gate("g")
    approve(w)
    cancelled(w, run)
    run = resumed(w)
    asked = w.records.gate("g")
    assert (asked.status, asked.digest != first.digest) == ("open", True)
    approve(w)
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_what_did_not_happen_in_a_later_epoch_is_asked_about_there():
    w, run = gated(do=fails(a=[LOST]))
    approve(w)
    cancelled(w, run)
    run = resumed(w)
    assert (w.records.step("a").status, len(w.tools.calls)) == ("unknown", 1)
    word(w, "did_not_happen", "a")
    gate = w.records.gate("g")
    assert (gate.status, gate.dispatch, w.head.waiting) == ("open", 2, 1)
    mended(w)
    approve(w)
    assert run.go().status == "SUCCEEDED"
    assert said(w) == ["a", "a", "b"]
    check(w)


def test_a_call_in_doubt_that_a_person_has_skipped_is_not_made_in_a_later_epoch():
    w = world(change("a"), parked(), do=fails(a=[LOST]))
    run = w.start({})
    word(w, "skip", "a")
    cancelled(w, run)
    before = said(w)
    mended(w)
    resumed(w)
    assert (said(w), w.records.step("a").status) == (before, "skipped")
    check(w)


def test_another_version_must_not_change_what_stood_in_for_a_completed_step():
    def other(undo):
        spec = {**change("spare").spec, "compensate": {"tool": "do", "with": {"say": undo}}}
        made = manifest(tool("a", on_error="fail", fallback="spare"), parked("a"))
        return replace(made, steps={**made.steps, "spare": replace(change("spare"), spec=spec)})

    w = World(compile_manifest(other("undo")), FakeModels(lambda _: ""), FakeTools({"do": fails(a=[NO])}))
    run = w.start({})
    assert (w.records.step("a").status, w.records.step("a").by) == ("completed", "fallback")
    request(w.steps, w.journal, "stopped", "by ops", UNWIND)
    run.go()
    w.unwind()
    with pytest.raises(Conflict, match="step a/fallback"):
        resumed(w, Published("w", 2, "h2", "machine:w:2", other("undo something else")))
    w.define(Versions(w.unit.manifest, Published("w", 2, "h2", "machine:w:2", other("undo"))))
    resume_run(w.steps, w.journal, Resume("ops", w.steps.definitions.later))
    assert w.head.epoch == 2


# who is late


def test_an_execution_of_an_earlier_epoch_closes_nothing_of_a_later_one():
    retry = Retry(1, base_delay=60.0, on=("transient",))
    inner = tool("a", say="${ item }", on_error="fail", retry=retry)
    w = world(each(inner, parked(), over=["x"]), do=fails(x=[TransientFailure("later")]))
    w.patient = True
    old = w.start({})
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    ending = w.unwind()
    while ending.status == "RUNNING":
        ending.go()
    resumed(w)
    for _ in range(20):
        old.go()
    assert old.status != "RUNNING"
    assert (w.records.step("each[0]/w").status, w.head.unwinding) == ("waiting", None)
    check(w)


def test_a_skip_that_was_decided_in_an_earlier_epoch_is_not_written_into_a_later_one():
    w = world(tool("a", on_error="continue"), tool("s", "a"), parked(), do=fails(a=[NO]))
    commit, done = w.store.commit, []

    def late(writes):
        if not done and any(one.key.sk == "STEP#s" for one in writes):
            done.append(True)
            cancelled(w)
            resume_run(w.steps, w.journal, Resume("ops"))
        commit(writes)

    w.store.commit = late
    w.start({})
    assert done
    assert w.records.step("s") is None
    mended(w)
    w.execution()
    assert w.records.step("s").status == "completed"


def test_an_event_completes_no_wait_that_a_later_epoch_has_not_reached():
    w = world(change("a"), replace(waiting_for(), needs=(Edge("a"),)))
    w.start({})
    cancelled(w)
    resume_run(w.steps, w.journal, Resume("ops"))
    assert not deliver(w.steps, task(w, ""), Arrival("e1", "paid", {"n": 1}))
    assert w.execution().status == "SUCCEEDED"
    check(w)


def test_a_task_of_an_earlier_epoch_changes_nothing():
    w = world(parked())
    w.start({})
    late = w.steps.journal(task(w, "w"))
    cancelled(w)
    resumed(w)
    seen = late.read_all()
    with pytest.raises(Conflict):
        late.transact(seen, cancel_waiting)
    assert w.records.step("w").status == "waiting"


# what fails, and what was undone


def test_an_item_that_fails_first_in_a_later_epoch_has_failed():
    inner = tool("a", say="${ item }", on_error="fail")
    w = world(tool("first", on_error="fail"), each(inner, over=["x", "y"], needs=("first",)), do=fails(first=[NO]))
    w.start({})
    w.unwind()
    w.tools._functions["do"] = fails(y=[NO])
    assert resumed(w).status == "SUCCEEDED"
    assert [item["status"] for item in output(w, "each")["items"]] == ["completed", "failed"]
    check(w)


def undoable(kind, times, **more):
    """Return a map of so many items, or a loop of so many iterations, whose calls can be undone."""
    say = "${ item }" if kind == "map" else "${ string(loop.iteration) }"
    inner, more = change("a", say=say, on_error="fail"), {"on_error": "fail", **more}
    if kind == "loop":
        return loop(inner, until=f"loop.iteration >= {times}", times=times + 1, **more)
    made = each(inner, over=[str(number + 1) for number in range(times)], on_failure="fail_fast", **more)
    return replace(made, spec={**made.spec, "max_items": times, "max_concurrency": 2})


@pytest.mark.parametrize("kind", ["map", "loop"])
@pytest.mark.parametrize(("times", "more"), [(2, {}), (40, {}), (2, {"timeout": 600.0, "apart": True})])
def test_what_was_undone_inside_a_map_or_a_loop_runs_again(kind, times, more):
    whole = undoable(kind, times, **more)
    town = Town(whole, tool("b", whole.id, on_error="fail"), do=fails(b=[NO]), budget=replace(BUDGET, steps=600))
    town.start()
    assert town.w.head.ended == "failed"
    done = said(town.w)
    assert sum(one.startswith("undo") for one in done) == times
    mended(town.w)
    resume_run(town.w.steps, town.w.journal, Resume("ops"))
    town.go()
    assert town.w.head.ended == "completed"
    assert sorted(said(town.w)[len(done) :]) == sorted([*(str(number + 1) for number in range(times)), "b"])
    town.check()


# budgets


def test_a_part_gives_its_active_time_back_once():
    town = Town(large("map"), do=fails(**{"31": [NO]})).start()
    assert town.w.head.ended == "failed"
    mended(town.w)
    resume_run(town.w.steps, town.w.journal, Resume("ops"))
    town.go()
    assert town.w.head.ended == "completed"
    assert town.w.head.active_left <= town.w.records.run.limit_active


def test_a_steps_own_active_time_is_not_renewed():
    def slow(*_):
        w.clock.sleep(8)
        raise NO

    w = world(tool("a", on_error="fail", budget=Limits(active_time=10.0), timeout=5.0), do=slow)
    w.start({})
    w.unwind()
    resumed(w)
    assert (w.records.step("a").failure.error_class, len(w.tools.calls)) == ("budget", 1)


def stopped_and_resumed(town):
    """Let the run's executions die while it waits, resume it, and let what waited fail."""
    request(town.w.steps, town.w.journal, "stopped", "for a test", UNWIND)
    town.go()
    assert town.w.head.ended == "stopped"
    resume_run(town.w.steps, town.w.journal, Resume("ops"))
    town.go()
    assert deliver(town.w.steps, task(town.w, ""), Arrival("e1", "go", {}))
    return town.go()


def test_what_an_earlier_epoch_completed_is_undone_in_a_later_one_and_the_record_says_so():
    bad = tool("bad", "w", on_error="fail")
    town = stopped_and_resumed(Town(change("a"), parked("a"), bad, do=fails(bad=[NO])).start())
    assert (town.w.head.ended, said(town.w)) == ("failed", ["a", "bad", "undo a"])
    assert town.w.records.step("a").status == "compensated"
    town.check()


@pytest.mark.parametrize("kind", ["map", "loop"])
def test_what_an_earlier_epochs_parts_completed_is_undone_in_a_later_one(kind):
    if kind == "map":
        whole = each(change("a", say="${ string(thing) }"), over="${ input.numbers }")
    else:
        whole = loop(change("a", say="${ string(loop.iteration) }"), until="loop.iteration >= 20", times=60)
    bad = tool("bad", "w", on_error="fail")
    town = Town(whole, parked(whole.id), bad, do=fails(bad=[NO])).start({"numbers": list(range(1, 21))})
    assert town.parts(whole.id)
    stopped_and_resumed(town)
    assert town.w.head.ended == "failed"
    assert sorted(said(town.w)) == sorted(["bad", *(f"{undo}{n}" for n in range(1, 21) for undo in ("", "undo "))])
    town.check()


@pytest.mark.parametrize(
    ("own", "more", "seconds"),
    [(Limits(steps=1), Raise(steps=2), 0), (Limits(active_time=10.0), Raise(active_time=10_000), 8)],
)
def test_what_a_person_has_added_to_a_steps_own_budget_stays(own, more, seconds):
    def slow(*_):
        w.clock.sleep(seconds)
        raise NO

    w = world(tool("a", budget=own, timeout=9.0, retry=Retry(1, on=("permanent",), jitter=False)), do=slow)
    w.start({})
    assert (w.records.step("a").reason, len(w.tools.calls)) == ("budget_exceeded", 1)
    resume_step(w.steps, task(w, "a"), Order("retry", "ops", more=more), UNWIND)
    cancelled(w)
    mended(w)
    assert resumed(w).status == "SUCCEEDED"
    check(w)
