"""Records recomputed from the log. That they agree after every run is checked everywhere, by invariants.py."""

from __future__ import annotations

from dataclasses import replace

import pytest
from invariants import check
from machine import UNWIND
from test_doubt import given_up
from test_other_runs import gated, tool, world

from shared.errors import Conflict
from shared.ledger.records import Amount
from shared.ports import Key
from shared.runtime.ending import request
from shared.runtime.journal import Change, Note
from shared.runtime.mending import mend
from shared.runtime.rebuild import rebuild
from shared.runtime.runs import StartRequest, start_run
from shared.testing import FrozenClock


def finished():
    w = world(tool("a"), tool("b", "a"))
    w.start({})
    mend(w.steps, w.tenant, w.run, "machine:unwind")  # which also brings the list up to date
    return w


class Ticking(FrozenClock):
    """A clock that never says the same twice."""

    def now(self):
        self.time += 1
        return self.time


@pytest.mark.parametrize("ending", ["completed", "cancelled"])
def test_the_log_and_the_records_say_the_same_end_though_the_clock_goes_on(ending):
    w = world(tool("a"), clock=Ticking())
    if ending == "completed":
        w.start({})
    else:
        w.run, _ = start_run(w.steps, w.steps.definitions.published("w"), StartRequest("acme", "a", "api", {}))
        request(w.steps, w.journal, "cancelled", "for a test", UNWIND)
        w.unwind()
    assert w.head.ended == ending
    assert not [one for one in rebuild(w.journal).differences if one.record != "RUN"]


def spoil(w, *records):
    w.journal.transact(w.records, lambda _: Change(None, records))


def told(found):
    return {(one.record, one.field): (one.known, one.told) for one in found.differences}


def test_records_that_agree_with_the_log_are_left_alone():
    w = finished()
    before = dict(w.store.items)
    assert rebuild(w.journal, repair=True).differences == ()
    assert w.store.items == before


def test_what_differs_is_told_and_only_repaired_on_demand():
    w = finished()
    good = w.records
    spoil(
        w,
        replace(good.head, left_usd=1, open=3, ended="failed"),
        replace(good.step("a"), spent=Amount(usd=5, steps=4), status="failed", settled=False),
    )
    differences = told(rebuild(w.journal))
    assert differences["HEAD", "left_usd"] == (1, good.head.left_usd)
    assert differences["HEAD", "open"] == (3, 0)
    assert differences["HEAD", "ended"] == ("failed", "completed")
    assert differences["STEP#a", "spent"] == ({"usd": 5, "tokens": 0, "steps": 4}, {"usd": 0, "tokens": 0, "steps": 1})
    assert differences["STEP#a", "status"] == ("failed", "completed")
    assert told(rebuild(w.journal, repair=True)) == differences
    assert rebuild(w.journal).differences == ()
    assert replace(w.head, rev=good.head.rev) == good.head
    check(w)


def test_a_list_that_says_something_else_is_brought_back():
    w = finished()
    spoil(w, replace(w.records.run, state="paused", tenant_state="TENANT#acme#STATE#paused"))
    assert told(rebuild(w.journal, repair=True))["RUN", "state"] == ("paused", "completed")
    assert w.records.run.tenant_state == "TENANT#acme#STATE#completed"


def test_a_record_that_is_gone_is_told_and_not_invented():
    w = finished()
    del w.store.items[Key(w.journal.pk, "STEP#b")]
    found = told(rebuild(w.journal, repair=True))
    assert found["STEP#b", "record"] == (None, "completed")
    assert w.records.step("b") is None


def test_a_run_that_moves_meanwhile_is_not_repaired():
    w = gated()
    w.start({})
    spoil(w, replace(w.head, waiting=7))
    moved = []

    def move(writes):
        if not moved:
            moved.append(1)
            w.journal.transact(w.journal.read([]), lambda seen: Change(None, (seen.head,), (Note("gate_mailed", "g"),)))

    w.store.before_commit = move
    with pytest.raises(Conflict, match="Repeat this when it rests"):
        rebuild(w.journal, repair=True)
    assert w.head.waiting == 7
    w.store.before_commit = lambda _: None
    rebuild(w.journal, repair=True)
    check(w)


def test_a_call_that_was_given_up_is_rebuilt_as_what_it_is():
    w, _ = given_up("reversible")
    w.unwind()
    good = w.records.step("a")
    spoil(w, replace(good, status="completed", settled=True))
    rebuild(w.journal, repair=True)
    again = w.records.step("a")
    assert (again.status, again.settled) == ("unknown", True)
    check(w)
