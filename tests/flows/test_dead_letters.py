"""Dead letters: which steps leave one, and what it says."""

from __future__ import annotations

import bodies
import pytest
from invariants import check
from machine import UNWIND
from test_other_runs import failing, gated, tool, world
from test_waits_and_children import child_of, family

from shared.api.listing import dead, topmost
from shared.errors import NotFound, PermanentFailure, RateLimited
from shared.manifest import Retry
from shared.ports import Key
from shared.runtime.deadletters import dismissed
from shared.runtime.gates import Word, decide_gate
from shared.runtime.outbox import send
from shared.runtime.resuming import Resume, decide_epoch


def letters(w, workflow=None):
    return [(run, each) for run, each in dead(w.store, "acme", workflow, 50)]


@pytest.mark.parametrize("rule", ["fail", "continue"])
def test_a_step_that_has_finally_failed_leaves_a_letter_with_its_end(rule):
    retry = Retry(2, on=("rate_limit",))
    w = world(tool("a", on_error=rule, retry=retry), do=failing("a", error=RateLimited))
    w.start({})
    ((run, letter),) = letters(w)
    step = w.records.step("a")
    assert (run, letter.path, letter.workflow, letter.on_error) == (w.run, "a", "w", rule)
    assert (letter.error_class, letter.message, letter.attempts) == ("rate_limit", "no", 3)
    assert (letter.opened, letter.key) == (step.ended, step.call.key)
    assert letters(w, "other") == []
    assert letters(w, "w") == letters(w)


def test_a_letter_is_dismissed_by_somebody_and_its_run_stays_as_it_was():
    w = world(tool("a", on_error="continue"), tool("b", on_error="continue"), do=failing("a", "b"))
    w.start({})
    before = w.head
    assert topmost(w.store, "acme", {w.run}) == {w.run: (w.run, "completed")}
    assert dismissed(w.store, w.journal.pk, "a", "ann", 7) == ["a"]
    assert [letter.path for _, letter in letters(w)] == ["b"]
    kept = w.store.read([Key(w.journal.pk, "DEAD#a")])[Key(w.journal.pk, "DEAD#a")]
    assert (kept["dismissed"], kept["by"]) == (7, "ann")
    with pytest.raises(NotFound):
        dismissed(w.store, w.journal.pk, "a", "ann", 8)
    assert dismissed(w.store, w.journal.pk, None, "ann", 9) == ["b"]
    assert (letters(w), w.head) == ([], before)
    check(w)


def test_a_letter_of_a_child_is_for_the_run_above_to_run_again():
    w, child = family(bodies.tool("c", on_error="fail"), on_error="continue", do=bodies.refuse("c"))
    run = w.start({})
    below = child_of(w, child)
    below.execution()
    below.unwind()
    ((found, letter), *_) = [one for one in letters(w) if one[0] == below.run]
    assert (letter.path, topmost(w.store, w.tenant, {found})) == ("c", {found: (w.run, "running")})
    run.go()
    assert topmost(w.store, w.tenant, {found, w.run}) == dict.fromkeys((found, w.run), (w.run, "completed"))


def test_no_letter_is_left_while_somebody_can_still_say_how_it_goes_on():
    w = world(tool("a"), do=failing("a"))
    w.start({})
    assert w.head.state == "paused"
    assert letters(w) == []


def test_no_letter_is_left_where_a_fallback_stood_in():
    w = world(tool("a", fallback="b", on_error="fail"), tool("b"), do=failing("a", error=PermanentFailure))
    w.start({})
    assert w.records.step("a").by == "fallback"
    assert letters(w) == []
    check(w)


def test_a_persons_no_leaves_none():
    w = gated()
    run = w.start({})
    decide_gate(w.steps, w.journal, "g", Word("rejected", "fatima@example.test"))
    run.go()
    assert w.head.unwinding == "failed"
    assert letters(w) == []


def test_who_resumed_a_run_and_died_leaves_its_letters_to_the_stream():
    w = world(tool("a", on_error="fail"), do=failing("a"))
    w.start({})
    w.unwind()
    assert len(letters(w)) == 1
    w.tools._functions["do"] = lambda arguments, _: arguments["step"]
    w.journal.transact(w.records, lambda seen: decide_epoch(w.steps, seen, Resume("ops")))
    send(w.steps, w.store.items[Key(w.journal.pk, "HEAD")], UNWIND)
    assert letters(w) == []
    assert w.execution().status == "SUCCEEDED"
    check(w)
