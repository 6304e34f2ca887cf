"""A compensation that fails before anything is opened is tried as often as any other, then a person is asked."""

from __future__ import annotations

from bodies import refuse, tool, world
from invariants import check


def test_a_compensation_whose_arguments_cannot_be_rendered_parks():
    a = tool("a", risk="reversible")
    a.spec["compensate"] = {"tool": "do", "with": {"say": "${ steps.a.output.document }"}}
    w = world(a, tool("bad", "a", on_error="fail"), do=refuse("bad"))
    w.start({})
    unwinding = w.unwind()
    assert (unwinding.status, w.head.state) == ("RUNNING", "paused")
    assert [event.type for event in w.journal.events()].count("step_failed") == 1 + 4
    assert w.records.step("a/compensate").failure.error_class == "permanent"
    check(w)
