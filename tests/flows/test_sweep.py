"""What the sweeper finds and does, what it leaves alone, and how it goes round. Its whole work is in tests/crash."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from invariants import check
from machine import UNWIND
from test_other_runs import called, gated, tool, world

from shared.errors import StoreConflict, TransientFailure
from shared.ledger.records import Amount, Step
from shared.manifest import StepPlan
from shared.ports import Execution, Key, Write
from shared.runtime.gates import Word, decide_word
from shared.runtime.journal import Change
from shared.runtime.mending import mend
from shared.runtime.sweep import PAGE, PLACE, Bounds, SweepHost, go_on, sweep
from shared.tenants import register
from shared.testing import Bulletin, MemoryStore

DAY = 24 * 3600 * 1000


class Machines:
    """Forgets versions and deletes machines; ``stubborn`` ones resist."""

    def __init__(self):
        self.forgotten, self.removed, self.stubborn = [], [], False

    def forget(self, version_arn):
        self.forgotten.append(version_arn)

    def remove(self, machine_arn):
        if self.stubborn:
            raise TransientFailure("busy")
        self.removed.append(machine_arn)


def host(w, catalogue=None):
    tenants = MemoryStore()
    tenants.commit(register.missing(tenants, "acme"))
    ports = {name: getattr(w.steps, name) for name in ("store", "blobs", "clock", "engine", "definitions")}
    stores = {"tenants": tenants, "catalogue": catalogue or MemoryStore()}
    return SweepHost(**ports, **stores, machines=Machines(), unwind_machine=UNWIND, events=Bulletin())


def visited(w):
    return [(found.what, found.done) for found in mend(w.steps, w.tenant, w.run, UNWIND)]


def lost(w, status="failed"):
    w.engine.ended["machine:w:1", f"{w.run}.1"] = Execution(status, "stopped from outside")


def test_a_run_whose_execution_was_stopped_from_outside_is_stopped_once():
    w = gated()
    w.start({})
    lost(w, "aborted")
    assert ("execution_ended", "stopped") in visited(w)
    assert w.head.unwinding == "stopped"
    assert "ABORTED: stopped from outside" in w.head.reason
    assert w.unwind().status == "SUCCEEDED"
    assert visited(w) == [("list_behind", "marked")]
    assert visited(w) == []
    check(w)


def test_an_execution_that_timed_out_ends_its_run_so():
    w = gated()
    w.start({})
    lost(w, "timed_out")
    visited(w)
    assert w.head.unwinding == "timed_out"


def open_step(w):
    """Leave a step open, as a process that has just died would."""
    lease = w.clock.now() + 900_000

    def decide(seen):
        step = Step(path="a", step="a", type="tool", status="running", open=True, lease=lease, hold=Amount(usd=5))
        return Change(None, (replace(seen.head, open=1, left_usd=seen.head.left_usd - 5), step))

    w.journal.transact(w.records, decide)


def test_a_run_with_a_live_lease_is_left_alone_until_it_is_over():
    w = gated()
    w.start({})
    lost(w)
    open_step(w)
    before = w.head
    assert ("execution_ended", "left") in visited(w)
    assert w.head == before
    w.clock.sleep(901)
    assert ("execution_ended", "stopped") in visited(w)


def awaiting():
    """Return a world with a gate on one branch, for which an await on another branch waits."""
    spec = {"approves": None, "approvers": ["finance"], "on_expiry": "reject"}
    gate = StepPlan("g", "human_gate", (), timeout=3600.0, on_error="fail", spec=spec)
    return world(gate, tool("x"), tool("c", "g"), tool("d", "g", "x"), tool("e", "x"))


def test_who_waits_for_a_gate_elsewhere_is_woken_when_its_decider_died():
    w = awaiting()
    run = w.start({})
    assert [park.kind for park in w.records.parks()] == ["await"]
    word = Word("approved", "fatima@example.test")
    w.journal.transact(w.records, lambda seen: decide_word(seen, "g", word, w.clock.now()))
    assert ("decision_unsent", "sent") in (found := visited(w))
    assert ("wake_unsent", "sent") in found
    assert run.go().status == "SUCCEEDED"
    assert sorted(called(w)) == ["c", "d", "e", "x"]
    assert "decision_unsent" not in {what for what, _ in visited(w)}
    check(w)


def leaked(w):
    def decide(seen):
        step = replace(seen.step("a"), hold=Amount(usd=7, tokens=2, steps=1))
        head = replace(seen.head, left_usd=seen.head.left_usd - 7, left_tokens=seen.head.left_tokens - 2)
        return Change(None, (replace(head, left_steps=head.left_steps - 1), step))

    w.journal.transact(w.records, decide)


def test_what_an_ended_run_still_holds_is_given_back():
    w = world(tool("a"))
    w.start({})
    visited(w)
    before = w.head
    leaked(w)
    assert visited(w) == [("reservation_leaked", "repaired")]
    assert replace(w.head, rev=before.rev) == before
    assert visited(w) == []
    check(w)


def test_a_wrong_counter_of_an_open_run_is_only_reported():
    w = gated()
    w.start({})
    visited(w)
    w.journal.transact(w.records, lambda seen: Change(None, (replace(seen.head, waiting=4),)))
    before = w.head
    (found,) = mend(w.steps, w.tenant, w.run, UNWIND)
    assert (found.what, found.done, found.about) == (
        "reservation_leaked",
        "reported",
        "waiting is 4, the steps say 1",
    )
    assert w.head == before


def many(w, count):
    runs = []
    for _ in range(count):
        w.start({})
        runs.append(w.run)
        w.clock.sleep(0.001)
    return runs


def test_one_unreadable_run_does_not_keep_the_others_waiting():
    w = gated()
    runs = many(w, 3)
    del w.store.items[Key(f"TENANT#acme#RUN#{runs[1]}", "HEAD")]
    done = sweep(host(w), ["acme"], None, Bounds(w.clock.now() + 10**9))
    assert done.looked >= 3
    assert [found.run for found in done.findings if found.what == "unreadable"] == [runs[1]]
    assert {found.run for found in done.findings if found.what == "list_behind"} == {runs[0], runs[2]}


def test_a_call_goes_so_far_and_the_next_one_goes_on():
    w = gated()
    runs = many(w, 2 * PAGE + 3)
    port = host(w)
    marked, place, calls = set(), None, 0
    while place or not calls:
        done = sweep(port, ["acme"], place, Bounds(w.clock.now() + 10**9, runs=PAGE))
        marked |= {found.run for found in done.findings if found.what == "list_behind"}
        place, calls = done.place, calls + 1
    assert marked == set(runs)
    assert calls > 3


def test_the_schedule_goes_on_where_it_stopped_and_begins_again():
    w = gated()
    runs = many(w, PAGE + 3)
    port = host(w)
    first = go_on(port, w.clock.now())  # no time at all: it only remembers
    assert (first.looked, first.place.tenant) == (0, "acme")
    second = go_on(port, w.clock.now() + 10**9)
    assert second.place is None
    assert {found.run for found in second.findings} == set(runs)
    third = go_on(port, w.clock.now() + 10**9)
    assert [found.what for found in third.findings] == []
    assert w.store.items[PLACE]["named"] == ["w#1"]


def test_two_sweepers_at_once_do_no_harm():
    w = gated()
    many(w, 3)
    port, seen = host(w), []

    def meanwhile(writes):
        if any(write.key == PLACE for write in writes) and not seen:
            seen.append(1)
            go_on(port, w.clock.now() + 10**9)

    w.store.before_commit = meanwhile
    go_on(port, w.clock.now() + 10**9)
    assert w.store.items[PLACE]["rev"] == 1
    check(w)


def test_runs_that_ended_since_the_last_round_are_audited():
    w = world(tool("a"))
    w.start({})
    port = host(w)
    go_on(port, w.clock.now() + 10**9)
    leaked(w)
    w.clock.sleep(1)
    done = sweep(port, ["acme"], None, Bounds(w.clock.now() + 10**9, since=w.head.ended_at))
    assert [found.what for found in done.findings] == ["reservation_leaked"]
    late = sweep(port, ["acme"], None, Bounds(w.clock.now() + 10**9, since=w.clock.now()))
    assert late.findings == ()


# versions


def versions(store, *numbers, pins=None):
    for number in numbers:
        manifest = {"steps": {"c": {"spec": {"workflow": "child", "version": pins}}}} if pins else {}
        _version(store, "w", number, manifest)
    _latest(store, "w", numbers[-1])


def _version(store, workflow, number, manifest=None):
    item = {"workflow": workflow, "version": number, "version_arn": f"{workflow}:{number}", "machine_arn": workflow}
    item["manifest"] = json.dumps(manifest or {})
    store.commit([Write(Key(f"WORKFLOW#{workflow}", f"VERSION#{number:06d}"), item, None)])


def _latest(store, workflow, number):
    store.commit([Write(Key("WORKFLOWS", f"NAME#{workflow}"), {"workflow": workflow, "version": number}, None)])


@pytest.fixture
def parked():
    w = gated()
    w.start({})
    return w


def swept(port, w, days):
    w.clock.sleep(days * DAY / 1000)
    return [(f.run, f.done) for f in go_on(port, w.clock.now() + 10**9).findings if f.what.endswith("_unused")]


def test_a_version_that_nothing_needs_is_marked_and_pruned_a_week_later(parked):
    catalogue = MemoryStore()
    versions(catalogue, 1, 2, 3)  # the parked run is pinned to the first, the last is the latest
    port = host(parked, catalogue)
    assert swept(port, parked, 0) == [("w#2", "marked")]
    assert swept(port, parked, 1) == []
    assert swept(port, parked, 6) == [("w#2", "pruned")]
    assert swept(port, parked, 2) == []
    assert port.machines.forgotten == ["w:2"]


def marked(parked):
    """Return a catalogue whose second version is marked, and the sweeper's host."""
    catalogue = MemoryStore()
    versions(catalogue, 1, 2, 3)
    port = host(parked, catalogue)
    assert swept(port, parked, 0) == [("w#2", "marked")]
    return catalogue, port


def test_a_version_that_is_needed_again_stays(parked):
    catalogue, port = marked(parked)
    catalogue.items[Key("WORKFLOWS", "NAME#w")]["version"] = 2
    assert swept(port, parked, 8) == [("w#3", "marked")]
    assert "retired" not in catalogue.items[Key("WORKFLOW#w", "VERSION#000002")]


def test_a_version_that_a_needed_one_starts_by_its_number_stays(parked):
    catalogue = MemoryStore()
    versions(catalogue, 1, pins=1)
    for number in (1, 2, 3):
        _version(catalogue, "child", number)
    _latest(catalogue, "child", 3)
    assert swept(host(parked, catalogue), parked, 0) == [("child#2", "marked")]


def retired(catalogue, workflow):
    catalogue.items[Key("WORKFLOWS", f"NAME#{workflow}")]["retired"] = 1


def test_a_machine_whose_workflow_is_deployed_no_more_goes_with_its_last_version(parked):
    catalogue = MemoryStore()
    versions(catalogue, 1, 2)  # the parked run is pinned to the first
    _version(catalogue, "old", 1)
    _latest(catalogue, "old", 1)
    port = host(parked, catalogue)
    for workflow in ("w", "old"):
        retired(catalogue, workflow)
    assert swept(port, parked, 0) == [("old#1", "marked"), ("w#2", "marked")]
    assert swept(port, parked, 8) == [("old#1", "pruned"), ("w#2", "pruned"), ("old", "deleted")]
    assert port.machines.removed == ["old"], "on the other one a run is still parked"
    assert swept(port, parked, 8) == []


def test_a_machine_that_resists_is_found_and_harms_nothing(parked):
    catalogue = MemoryStore()
    _version(catalogue, "old", 1)
    _latest(catalogue, "old", 1)
    retired(catalogue, "old")
    port = host(parked, catalogue)
    port.machines.stubborn = True
    swept(port, parked, 0)
    assert swept(port, parked, 8) == [("old#1", "pruned"), ("old", "left")]
    port.machines.stubborn = False
    assert swept(port, parked, 1) == [("old", "deleted")]
    assert swept(port, parked, 1) == []


def test_a_version_is_written_down_as_pruned_before_it_is_deleted(parked):
    catalogue, port = marked(parked)
    forget, port.machines.forget = port.machines.forget, lambda _: 1 / 0
    assert swept(port, parked, 8) == [("w#2", "pruned"), ("w#2", "left")]
    assert catalogue.items[Key("WORKFLOW#w", "VERSION#000002")]["pruned"]
    port.machines.forget = forget
    swept(port, parked, 1)
    assert port.machines.forgotten == ["w:2"]


def test_a_version_that_is_deployed_at_that_moment_is_not_pruned(parked):
    catalogue, port = marked(parked)
    commit = catalogue.commit

    def contested(writes):
        if any(write.item.get("pruned") for write in writes):
            raise StoreConflict("a deployment was faster")
        commit(writes)

    catalogue.commit = contested
    assert swept(port, parked, 8) == [("w#2", "left")]
    assert port.machines.forgotten == []
