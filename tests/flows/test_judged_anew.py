"""Whether a step may run is decided once in an epoch, and anew in the next: also where its child would go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import each, loop, plan, said, task, tool, world
from invariants import check
from machine import UNWIND, Killed
from test_apart import own
from test_undone_children import Kin, sub, undoable
from town import NUMBERS, Town

from shared.errors import PermanentFailure, TransientFailure
from shared.manifest import Edge, Retry
from shared.runtime.ending import request
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.waits import Arrival, deliver

OK = "steps.a.output.ok"
EVENT = {"event": {"name": "paid", "match": None, "timeout": 999.0}}
ONCE = Retry(max_retries=1, on=("transient", "timeout"), jitter=False)


class Changing:
    """Tools that refuse the ``ill`` words. ``a`` says first that it is ok, and then what ``later`` is."""

    def __init__(self, *ill, later=None):
        self.ill, self.answers = set(ill), [{"ok": True}, {"ok": False} if later is None else later]

    def __call__(self, given, _):
        if given["say"] in self.ill:
            raise PermanentFailure("no")
        return self.answers.pop(0) if given["say"] == "a" else given["say"]


def resumed(house):
    """Resume a family's or a town's run, which goes on until nothing moves."""
    resume_run(house.w.steps, house.w.journal, Resume("ops"))
    return house.go()


def family(*below, do, **more):
    return Kin((undoable("a"), sub("child", "a", when=OK, on_error="fail", **more)), below, do=do).start()


def test_a_child_does_not_go_on_where_its_step_may_not_run_any_more():
    kin = family(undoable("c"), tool("bad", "c", on_error="fail"), do=Changing("bad"))
    assert (kin.w.head.ended, said(kin.w)) == ("failed", ["a", "c", "bad", "undo c", "undo a"])
    resumed(kin)
    step = kin.w.records.step("sub")
    assert (step.status, step.reason) == ("skipped", f"when is false: {OK}")
    assert [one.type for one in kin.w.journal.events() if one.path == "sub"][-1] == "step_skipped"
    assert (kin.w.head.ended, said(kin.w)[5:]) == ("completed", ["a"])
    assert (kin.child().head.ended, kin.child().head.epoch) == ("failed", 1)
    kin.check()


@pytest.mark.parametrize("room", [10_000, 300])
@pytest.mark.parametrize("kind", ["map", "loop"])
def test_neither_does_a_map_or_a_loop_in_a_run_of_its_own(kind, room):
    body = tool("b", say="${ 'b' + string(loop.iteration) }" if kind == "loop" else "${ 'b' + string(item) }")
    words = {"needs": ["a"], "on_error": "fail", "when": OK}
    body = replace(body, on_error="fail")
    made = loop(body, until="false", times=20, **words) if kind == "loop" else each(body, over=NUMBERS, **words)
    made = replace(made, spec={**made.spec, "on_failure": "fail_fast"}) if kind == "map" else made
    town = Town(undoable("a"), own(made, steps=30), do=Changing("b3"), room=room).start({"numbers": [*range(20)]})
    assert (town.w.head.ended, "b3" in said(town.w)) == ("failed", True)
    before = len(said(town.w))
    resumed(town)
    assert (town.w.head.ended, town.w.records.step(made.id).status) == ("completed", "skipped")
    assert said(town.w)[before:] == ["a"]
    assert town.below(made.id).head.epoch == 1
    town.check()


def test_a_condition_that_cannot_be_evaluated_any_more_fails_the_step_and_not_its_child():
    kin = family(tool("bad", on_error="fail"), do=Changing("bad", later={"another": 1}))
    resumed(kin)
    assert (kin.w.head.ended, said(kin.w)) == ("failed", ["a", "bad", "undo a", "a", "undo a"])
    assert kin.w.records.step("sub").status == "failed"
    assert "ok" in kin.w.records.step("sub").failure.message
    kin.check()


def test_what_the_child_of_a_skipped_step_has_done_is_undone_in_its_place_when_the_run_ends():
    given = {"workflow": "child", "version": None, "with": {}}
    when = "steps.a.status == 'failed'"
    child = plan("sub", "sub_workflow", (Edge("a", optional=True),), spec=given, when=when, timeout=60.0)
    last = tool("bad", "b")
    top = (tool("a", on_error="continue"), replace(child, on_error="continue"))
    do = Changing("a", "bad")
    kin = Kin((*top, undoable("b", Edge("sub", optional=True)), last), (undoable("c"), waits("c")), do=do).start()
    kin.w.clock.sleep(70)
    kin.expire()
    request(kin.w.steps, kin.w.journal, "stopped", "its execution died", UNWIND)
    assert (kin.go().w.head.ended, said(kin.w)) == ("stopped", ["a", "c", "b", "bad"])
    do.ill.remove("a")
    resumed(kin)
    assert (kin.w.records.step("sub").status, kin.child().head.ended) == ("skipped", "timed_out")
    request(kin.w.steps, kin.w.journal, "cancelled", "by ops", UNWIND)
    assert (kin.go().w.head.ended, said(kin.w)[4:]) == ("cancelled", ["a", "bad", "undo b", "undo c"])
    assert (kin.w.records.step("sub").status, kin.child().head.ended) == ("skipped", "cancelled")
    kin.check()


def waits(*needs):
    return plan("w", "wait", needs, timeout=999.0, spec=EVENT)


@pytest.mark.parametrize("kind", ["tool", "child"])
def test_a_skip_is_recorded_though_the_first_process_of_the_epoch_has_died(kind):
    do = Changing("t")
    if kind == "child":
        kin = family(tool("t", on_error="fail"), do=do, retry=ONCE)
    else:
        kin = Kin((undoable("a"), tool("t", "a", when=OK, on_error="fail", retry=ONCE)), do=do).start()
    deaths = []

    def dies(writes):
        if not deaths and "step_skipped" in str(writes):
            deaths.append(1)
            raise Killed

    kin.w.store.before_commit = dies
    resumed(kin)
    assert deaths
    assert (kin.w.head.ended, said(kin.w)) == ("completed", ["a", "t", "undo a", "a"])
    assert kin.w.records.step("sub" if kind == "child" else "t").status == "skipped"
    kin.check()


def arrive(w):
    return deliver(w.steps, task(w, ""), Arrival("e1", "paid", {}))


def test_a_step_that_is_tried_again_is_not_judged_anew_though_a_later_source_has_settled():
    tries = []

    def do(given, _):
        if given["say"] == "t" and not tries:
            tries.append(arrive(w))
            raise TransientFailure("no")
        return given["say"]

    either = tool("t", "a", "w", join="any", when="!('w' in inputs)", retry=ONCE)
    w = world(tool("a"), waits(), either, tool("last", "t"), do=do)
    w.start({}).go()
    assert tries == [True]
    assert (w.head.ended, said(w)) == ("completed", ["a", "t", "t", "last"])
    check(w)


def test_neither_is_one_whose_child_goes_on_with_the_retry():
    either = sub("child", "a", "w", join="any", when="!('w' in inputs)", retry=ONCE, timeout=60.0)
    kin = Kin((tool("a"), waits(), either), (undoable("c"), replace(waits("c"), id="x"))).start()
    assert arrive(kin.w)
    kin.go()
    kin.w.clock.sleep(70)
    token = kin.w.records.park("sub").token
    kin.w.engine.answers.append((token, "failure", {"error": "States.Timeout", "cause": ""}))
    kin.go()
    assert (kin.w.records.step("sub").status, kin.child().head.epoch) == ("waiting", 2)
    assert deliver(kin.w.steps, replace(task(kin.child(), ""), workflow="child"), Arrival("e2", "paid", {}))
    assert (kin.go().w.head.ended, said(kin.w)) == ("completed", ["a", "c"])
    kin.check()
