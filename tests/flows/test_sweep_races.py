"""The sweeper beside what goes on meanwhile: it judges nothing that it has not seen whole, and leaves nobody out."""

from __future__ import annotations

from dataclasses import replace

from bodies import refuse, tool
from test_other_runs import gated
from test_sweep import host, open_step, visited
from test_waits_and_children import child_of, family

from shared.runtime.gates import Word, decide_gate
from shared.runtime.journal import Change
from shared.runtime.sweep import PAGE, Bounds, sweep


def test_what_changes_while_it_is_looked_at_is_not_judged():
    w = gated()
    w.start({})
    visited(w)
    query = w.store.query

    def meanwhile(*given, **named):
        w.store.query = query
        decide_gate(w.steps, w.journal, "g", Word("approved", "fatima@example.test"))
        return query(*given, **named)

    w.store.query = meanwhile
    assert "reservation_leaked" not in {what for what, _ in visited(w)}
    assert w.records.gate("g").status == "approved"


def abandoned():
    """Return a child with a step open, and its parent, which has ended without it."""
    w, child = family(tool("c", say="bad"), do=refuse("bad"))
    w.start({})
    below = child_of(w, child)
    below.execution()
    open_step(below)
    w.journal.transact(w.records, lambda seen: Change(None, (replace(seen.head, ended="stopped"),)))
    return below


def test_a_child_that_nobody_waits_for_ends_when_no_process_of_it_can_be_alive():
    below = abandoned()
    assert "parent_gone" not in {what for what, _ in visited(below)}
    assert below.head.unwinding is None
    below.clock.sleep(901)
    assert ("parent_gone", "cancelled") in visited(below)
    assert below.head.unwinding == "cancelled"


def test_runs_of_one_millisecond_that_fall_on_two_pages_are_all_visited():
    w, runs = gated(), []
    for later in (0, 1):
        for _ in range(PAGE - 5):
            w.start({})
            runs.append(w.run)
        w.clock.time += 1 - later
    done = sweep(host(w), ["acme"], None, Bounds(w.clock.now() + 10**9))
    assert {found.run for found in done.findings if found.what == "list_behind"} == set(runs)


def test_a_page_of_one_millisecond_is_not_visited_for_ever():
    w = gated()
    for _ in range(PAGE):
        w.start({})
    assert sweep(host(w), ["acme"], None, Bounds(w.clock.now() + 10**9)).place is None
