"""An unwinding that waits for a person parks: their word wakes it, whoever dies on the way."""

from __future__ import annotations

from machine import UNWIND, Killed
from test_other_runs import failing, task, tool, world

from shared.compiler import unwind_machine
from shared.runtime.mending import mend
from shared.runtime.outbox import send
from shared.runtime.parking import Order, resume_step

UNDO = {"compensate": {"tool": "do", "with": {"step": "undo"}}}


def stuck():
    """A run that has failed and whose compensation fails too; and the execution that unwinds it, parked."""
    w = world(tool("a", risk="reversible", spec=UNDO), tool("b", "a", on_error="fail"), do=failing("b", "undo"))
    w.start({})
    unwinding = w.unwind()
    assert (unwinding.status, len(unwinding.waiting)) == ("RUNNING", 1)
    return w, unwinding


def say(w, action="skip"):
    return resume_step(w.steps, task(w, "a/compensate"), Order(action, "ops"), UNWIND)


def test_a_word_ends_the_wait_at_once_and_costs_three_states():
    w, unwinding = stuck()
    now, before = w.clock.now(), len(unwinding.visited)
    say(w)
    assert unwinding.go().status == "SUCCEEDED"
    assert unwinding.visited[before:] == ["unwind", "decided", "unwound"]
    assert w.clock.now() == now
    assert w.head.ended == "failed"


def test_it_parks_again_where_the_word_did_not_help():
    w, unwinding = stuck()
    say(w, "retry")
    unwinding.go()
    assert (unwinding.status, unwinding.visited[-1]) == ("RUNNING", "word")
    assert w.records.step("a/compensate").status == "paused"


def test_a_word_that_comes_before_the_token_is_registered_is_not_lost():
    w = world(tool("a", risk="reversible", spec=UNDO), tool("b", "a", on_error="fail"), do=failing("b", "undo"))
    w.start({})
    call = w.call

    def late(function, event):
        if event["op"] == "word":
            say(w)
        return call(function, event)

    w.call = late
    assert w.unwind().status == "SUCCEEDED"


def killed(w):
    """Say the word in a process that dies before it has told anybody."""

    def dead(*_):
        raise Killed

    alive, w.engine.start = w.engine.start, dead
    try:
        say(w)
    except Killed:
        w.engine.start = alive
    assert not w.engine.answers


def test_the_stream_wakes_it_when_who_had_the_word_has_died():
    w, unwinding = stuck()
    killed(w)
    send(w.steps, {**w.head.to_item(), "pk": w.journal.pk, "sk": "HEAD"}, UNWIND)
    assert unwinding.go().status == "SUCCEEDED"


def test_so_does_the_sweeper_and_only_once_the_word_is_there():
    w, unwinding = stuck()
    assert "decision_unsent" not in [one.what for one in mend(w.steps, w.tenant, w.run, UNWIND)]
    killed(w)
    assert "decision_unsent" in [one.what for one in mend(w.steps, w.tenant, w.run, UNWIND)]
    assert unwinding.go().status == "SUCCEEDED"


def test_it_looks_by_itself_once_a_day():
    w, unwinding = stuck()
    killed(w)
    assert unwind_machine()["States"]["word"]["TimeoutSeconds"] == 86_400
    assert unwinding.expire().status == "SUCCEEDED"
