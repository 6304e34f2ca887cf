"""A child that ended early goes on with its parent's retry: another one would do what it has done once more."""

from __future__ import annotations

from dataclasses import replace

from bodies import plan, said, task, tool
from machine import UNWIND
from test_undone_children import Kin, sub, undoable

from shared.errors import PermanentFailure
from shared.manifest import Retry
from shared.runtime.cascade import cascade
from shared.runtime.parking import Order, resume_step
from shared.runtime.waits import Arrival, deliver

ONCE = Retry(max_retries=1, on=("timeout",), jitter=False)


def slow(**more):
    """A child that books, then waits for a word and writes down that it has come."""
    event = {"event": {"name": "paid", "match": None, "timeout": 999.0}}
    child = (undoable("book"), plan("word", "wait", ("book",), timeout=999.0, spec=event), tool("note", "word"))
    return Kin([sub("child", timeout=60.0, retry=ONCE, **more), tool("last", "sub")], child, cost=1000).start()


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
