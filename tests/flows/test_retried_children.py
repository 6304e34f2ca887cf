"""A child that ended early goes on with its parent's retry: another one would do what it has done once more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import plan, refuse, said, task, tool
from machine import UNWIND
from test_undone_children import Kin, sub, undoable

from shared.errors import PermanentFailure
from shared.manifest import Retry
from shared.runtime.cascade import cascade
from shared.runtime.children import run_child
from shared.runtime.ending import request
from shared.runtime.parking import Order, resume_step
from shared.runtime.waits import Arrival, deliver
from shared.testing import FixedDefinitions

ONCE = Retry(max_retries=1, on=("timeout",), jitter=False)


def slow(*before, **more):
    """A child that books, then waits for a word and writes down that it has come."""
    event = {"event": {"name": "paid", "match": None, "timeout": 999.0}}
    child = (undoable("book"), plan("word", "wait", ("book",), timeout=999.0, spec=event), tool("note", "word"))
    waits = sub("child", *(step.id for step in before), timeout=60.0, **{"retry": ONCE, **more})
    return Kin([*before, waits, tool("last", "sub")], child, cost=1000).start()


def time_out(kin):
    kin.w.clock.sleep(70)
    return kin.expire()


def pay(kin):
    below = replace(task(kin.child(), ""), workflow="child")
    return deliver(kin.w.steps, below, Arrival("e1", "paid", {}))


def test_a_child_that_timed_out_goes_on_with_the_retry():
    kin = slow()
    first = kin.w.records.step("sub").child
    time_out(kin)
    assert (kin.w.records.step("sub").child, kin.child().head.epoch) == (first, 2)
    assert pay(kin)
    kin.go()
    assert (kin.w.head.ended, said(kin.w)) == ("completed", ["book", "note", "last"])
    assert kin.w.records.step("sub").spent.steps == 2
    kin.check()


def test_a_child_that_times_out_with_every_attempt_is_undone_once_when_its_parent_fails():
    kin = time_out(time_out(slow(on_error="fail")))
    assert (kin.w.head.ended, said(kin.w)) == ("failed", ["book", "undo book"])
    assert kin.w.records.step("sub").spent.usd == kin.w.records.run.limit_usd - kin.w.head.left_usd == 2000
    kin.check()


def test_a_late_repetition_of_the_cascade_does_not_end_the_child_that_goes_on():
    kin = time_out(slow())
    decided = kin.w.records.step("sub").cascade
    cascade(
        kin.w.steps, replace(task(kin.w, "sub"), op="cascade", entry=f"{decided}|1", error="States.Timeout"), UNWIND
    )
    assert kin.child().head.unwinding is None
    assert pay(kin)
    assert kin.go().w.head.ended == "completed"
    kin.check()


@pytest.mark.parametrize("error", ["States.Timeout", "Lambda.Unknown"])
def test_a_visit_of_the_cascade_that_comes_after_the_next_one_decides_nothing(error):
    """It paused the step while its child went on with a later retry, or ended that child."""
    kin = time_out(slow(retry=replace(ONCE, max_retries=2)))
    first = kin.w.records.step("sub").cascade
    time_out(kin)
    before = kin.w.records.step("sub")
    assert (before.cascade > first, before.status, kin.child().head.epoch) == (True, "waiting", 3)
    late = replace(task(kin.w, "sub"), op="cascade", entry=f"{first}|1", error=error)
    assert cascade(kin.w.steps, late, UNWIND) == before.action
    assert (kin.w.records.step("sub"), kin.child().head.unwinding) == (before, None)
    assert pay(kin)
    assert kin.go().w.head.ended == "completed"
    kin.check()


def test_a_failed_child_goes_on_when_a_person_says_retry():
    ill = ["bad"]

    def do(arguments, _):
        if arguments["say"] in ill:
            ill.clear()
            raise PermanentFailure("No.")
        return arguments["say"]

    child = (tool("look"), undoable("book", "look"), tool("bad", "book", on_error="fail"))
    kin = Kin([sub("child", on_error="pause"), tool("last", "sub")], child, do=do).start()
    assert (kin.w.head.state, kin.child().head.ended) == ("paused", "failed")
    resume_step(kin.w.steps, task(kin.w, "sub"), Order("retry", "ops"), UNWIND)
    kin.go()
    assert kin.w.head.ended == "completed"
    assert said(kin.w) == ["look", "book", "bad", "undo book", "book", "bad", "last"]
    kin.check()


@pytest.mark.parametrize("policy", ["fail", "pause"])
def test_what_a_child_did_that_has_timed_out_is_undone_in_its_place(policy):
    kin = time_out(slow(undoable("first"), retry=Retry(0), on_error=policy))
    if policy == "pause":
        request(kin.w.steps, kin.w.journal, "cancelled", "by ops", UNWIND)
    assert said(kin.go().w) == ["first", "book", "undo book", "undo first"]
    kin.check()


def test_a_cascade_that_stalls_before_it_looks_at_the_child_does_not_end_the_one_that_goes_on():
    kin = slow()
    kin.w.clock.sleep(70)
    child, read, overtaken = kin.w.records.step("sub").child, kin.w.store.read, []

    def stalls(keys):
        if not overtaken and any(child in key.pk for key in keys):
            overtaken.append(child)
            kin.expire()
        return read(keys)

    kin.w.store.read = stalls
    late = replace(task(kin.w, "sub"), op="cascade", entry="000001|2026-01-01T00:00:00Z|0", error="States.Timeout")
    cascade(kin.w.steps, late, UNWIND)
    assert overtaken
    assert (kin.child().head.epoch, kin.child().head.unwinding) == (2, None)
    assert pay(kin)
    assert kin.go().w.head.ended == "completed"
    kin.check()


class Overtaken(FixedDefinitions):
    """Definitions that another delivery looks up first, and does its work with."""

    before = None

    def published(self, workflow, version=None):
        if self.before and workflow == "child":
            before, self.before = self.before, None
            before()
        return super().published(workflow, version)


def test_a_delivery_that_stalls_begins_no_other_child_than_the_one_that_has_failed_meanwhile():
    kin = Kin([sub("child", on_error="pause")], (tool("look"), tool("bad", "look", on_error="fail")), do=refuse("bad"))

    def overtake():
        run_child(kin.w.steps, replace(task(kin.w, "sub"), token="other", entry="000001|0|1", attempt="other"))
        kin.go()

    definitions = Overtaken(*(unit.manifest for unit in kin.units.values()))
    definitions.before = overtake
    kin.w.define(definitions)
    kin.start()
    assert (kin.w.records.step("sub").attempt, said(kin.w)) == (1, ["look", "bad"])
