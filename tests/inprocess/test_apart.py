"""Time-outs of children, and maps and loops with a run of their own, in-process: as the compiled machines have it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from house import House
from shapes import body, failing, house, manifest, step

from shared.errors import PermanentFailure
from shared.manifest import Limits, Retry
from shared.runtime.journal import Journal
from shared.runtime.parking import Order, Raise, resume_step
from shared.runtime.task import run_task
from shared.testing import FakeModels, FakeTools

CONTINUE = {"on_error": "continue"}
GATE = {"approvers": ["finance"], "subject": "Go?", "on_expiry": "reject", "channels": ["email"]}
YEAR = 364 * 86_400.0


def gate(*needs):
    return step("g", *needs, type="human_gate", timeout=86_400.0, spec=GATE)


def each(*inside, timeout=YEAR, budget=None, **more):
    over = {"over": "${ input.list }", "as": "item", "max_items": 40, "on_failure": "collect_all", "collect": None}
    limits = budget or Limits()
    return step("each", type="map", apart=True, timeout=timeout, budget=limits, spec=over, body=body(*inside), **more)


def again(*inside, timeout=YEAR, budget=None, **more):
    spec = {"until": "loop.iteration >= 3", "max_iterations": 5, "collect": None}
    limits = budget or Limits()
    return step("again", type="loop", apart=True, timeout=timeout, budget=limits, spec=spec, body=body(*inside), **more)


def sub(**more):
    return step("sub", type="sub_workflow", spec={"workflow": "child", "version": None, "with": {}}, **more)


def below(h, path):
    """Return the journal of a step's child."""
    return Journal(h.store, h.clock, h.tenant, h.step(path).child)


def with_child(above, *inside, tools=None):
    child = manifest(*inside, workflow="child")
    known = FakeTools({"child": lambda *_: {}, "after": lambda *_: {}, **(tools or {})})
    return House((manifest(*above), child), FakeModels(lambda _: "x"), known)


@pytest.mark.parametrize("reborn", [False, True])
@pytest.mark.parametrize("shape", ["sub_workflow", "map", "loop"])
def test_a_childs_time_ends_it_and_its_step_has_timed_out(shape, reborn):
    if shape == "sub_workflow":
        name, h = "sub", with_child([sub(timeout=60.0, **CONTINUE), step("after", "sub")], gate())
    else:
        make = each if shape == "map" else again
        name = "each" if shape == "map" else "again"
        h = house(make(gate(), timeout=60.0, **CONTINUE), step("after", name))
    h.start({"list": [1, 2]}, patience=50)
    assert (h.statuses[name], below(h, name).read([]).head.state) == ("waiting", "waiting_for_human")
    if reborn:
        h.reborn()
    h.go(70)
    assert (h.head.state, h.statuses[name], h.statuses["after"]) == ("completed", "timed_out", "skipped")
    assert below(h, name).read([]).head.ended == "timed_out"
    assert h.engine.places.runs() == []


def test_the_time_of_a_second_attempt_begins_anew():
    """The first child fails after 40 s; the second may take 60 s from then on."""
    retry = Retry(max_retries=1, base_delay=0.0, jitter=False, on=("permanent",))
    nap = step("nap", type="wait", spec={"for": 40})
    works = failing(1, PermanentFailure)
    above = [sub(timeout=60.0, retry=retry), step("after", "sub")]
    h = with_child(above, nap, step("child", "nap", on_error="fail"), tools={"child": works})
    h.start({}, patience=200)
    assert (h.head.state, h.step("sub").attempt) == ("completed", 2)


@pytest.mark.parametrize("make", [each, again])
def test_what_has_a_run_of_its_own_completes_as_ever(make):
    own = make(step("x"), step("y", "x"), budget=Limits(steps=20))
    whole = replace(own, apart=False, budget=Limits())
    one, other = (house(made, step("after", made.id), budget=Limits(steps=50)) for made in (own, whole))
    one.start({"list": [1, 2, 3]})
    other.start({"list": [1, 2, 3]})
    assert (one.head.state, other.head.state) == ("completed", "completed")
    assert one.step(own.id).output == other.step(own.id).output
    assert one.head.left_steps == other.head.left_steps == 50 - 7
    assert one.engine.places.runs() == []


def test_a_budget_parks_inside_and_goes_on_when_it_is_raised():
    h = house(each(step("x"), budget=Limits(steps=2)), step("after", "each"), budget=Limits(steps=50))
    h.start({"list": [1, 2, 3]})
    child = below(h, "each")
    seen = child.read_all()
    stuck = [one for one in seen.steps() if one.status == "paused"]
    assert [one.reason for one in stuck] == ["budget_exceeded"]
    assert (seen.run.limit_steps, h.head.left_steps) == (2, 48)
    h.reborn().go()
    task = run_task(seen.run, 1, stuck[0].path)
    resume_step(h.steps, task, Order("retry", "ops", more=Raise(steps=1)), "unwind")
    assert h.go().head.state == "completed"


@pytest.mark.parametrize("make", [each, again])
def test_what_failed_inside_is_told_by_the_step(make):
    h = house(make(step("x", on_error="fail"), budget=Limits(steps=9), **CONTINUE), tools={"x": failing()})
    h.start({"list": [1, 2, 3]})
    assert h.head.state == "completed"
    if make is each:
        assert h.statuses["each"] == "completed"
    else:
        assert h.step("again").failure.message == "Iteration 1 failed: down"
    assert h.engine.places.runs() == []


def test_cancelling_ends_what_has_a_run_of_its_own():
    h = house(each(gate(), timeout=3600.0)).start({"list": [1, 2]}, patience=10)
    h.cancel()
    assert (h.head.state, below(h, "each").read([]).head.ended) == ("cancelled", "cancelled")
    assert h.engine.places.runs() == []
