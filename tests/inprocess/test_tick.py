"""Ticks: what many runs decide together is on the disk together, before anything of it leaves the process."""

from __future__ import annotations

import threading
import time

import pytest
from process import FORK
from shapes import step
from test_threads import Machine, manifest

from shared.errors import StoreConflict
from shared.inprocess.handlers import UNWIND
from shared.inprocess.journal import TickJournal
from shared.inprocess.tick import TickStore
from shared.inprocess.workspace import TENANT, Elsewhere, Workspace
from shared.ledger.record import replace
from shared.ledger.records import Head, run_partition
from shared.ledger.sqlite import SqliteStore, StoreUnusable
from shared.ports import Key, Write
from shared.runtime.ending import request
from shared.runtime.journal import Change, Journal, Note
from shared.testing import FrozenClock

PK = run_partition("acme", "r")


class Place:
    """A file with one run's head, and this thread's ticks on it."""

    def __init__(self, path):
        self.path, self.store = path, SqliteStore(path)
        self.store.commit([Write(Key(PK, "HEAD"), Head().to_item(), None)])
        self.ticks = TickStore(self.store)
        self.ticks.enter()
        self.journal = TickJournal(self.ticks, FrozenClock(), "acme", "r")

    def count(self, **more):
        """Decide that one step more is open."""
        return self.journal.transact(self.journal.read([]), lambda seen: one_more(seen, more))[0]

    def on_disk(self):
        """The head, as another process finds it."""
        other = SqliteStore(self.path)
        found = Journal(other, FrozenClock(), "acme", "r").read([]).head, len(other.query(PK, "EVENT#"))
        other.close()
        return found


def one_more(seen, more):
    head = replace(seen.head, open=seen.head.open + 1, **more)
    return Change(head.open, (head,), (Note("counted"),))


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path / "runs.db")
    yield made
    made.store.close()


def elsewhere(work):
    child = FORK.Process(target=work)
    child.start()
    child.join(30)
    assert child.exitcode == 0


def test_decisions_of_one_tick_build_on_each_other_and_are_written_once(place):
    statements = []
    place.store._writer.set_trace_callback(statements.append)
    assert [place.count() for _ in range(50)] == [*range(1, 51)]
    head, events = place.on_disk()
    assert (head.open, head.rev, events) == (0, 1, 0)
    place.ticks.finish()
    head, events = place.on_disk()
    assert (head.open, head.seq, head.rev, events) == (50, 50, 2, 50)
    assert statements.count("COMMIT") == sum(text.startswith("UPDATE") for text in statements) == 1
    assert place.count() == 51


def test_what_another_process_wrote_is_seen_by_the_next_tick(place):
    place.count()
    place.ticks.finish()

    def mark():
        other = Journal(SqliteStore(place.path), FrozenClock(), "acme", "r")
        other.transact(other.read([]), lambda seen: one_more(seen, {"unwinding": "cancelled"}))

    elsewhere(mark)
    head = place.journal.read([]).head
    assert (head.open, head.unwinding) == (2, "cancelled")
    assert (place.count(), place.store.changed_elsewhere(), place.store.changed_elsewhere()) == (3, True, False)


def test_another_process_waits_for_a_tick_and_decides_on_what_it_has_written(place):
    ready, go = FORK.Pipe()

    def count():
        other = Journal(SqliteStore(place.path), FrozenClock(), "acme", "r")
        go.recv()
        seen = other.read([])
        go.send(seen.head.open)
        go.send(other.transact(seen, lambda again: one_more(again, {}))[0])

    child = FORK.Process(target=count)
    child.start()
    place.count()
    ready.send("now")
    assert ready.recv() == 0
    assert not ready.poll(0.2)
    place.ticks.finish()
    assert ready.recv() == 2
    child.join(30)
    assert place.count() == 3


def test_what_another_thread_commits_meanwhile_shares_the_flush_and_is_seen_by_the_next_tick(place):
    place.count()
    other = Journal(place.ticks, FrozenClock(), "acme", "r")
    results = []

    def count():
        results.append(other.transact(other.read([]), lambda seen: one_more(seen, {}))[0])

    thread = threading.Thread(target=count)
    thread.start()
    while not place.store._waiting:
        threading.Event().wait(0.001)
    place.ticks.finish()
    thread.join(30)
    assert (results, place.journal.read([]).head.open) == ([2], 2)


def test_a_plain_reader_in_a_tick_sees_what_it_has_decided_and_a_lost_condition_undoes_only_itself(place):
    place.count()
    assert place.ticks.read([Key(PK, "HEAD")])[Key(PK, "HEAD")]["open"] == 1
    assert [item["type"] for item in place.ticks.query(PK, "EVENT#")] == ["counted"]
    with pytest.raises(StoreConflict):
        place.ticks.commit([Write(Key("p", "new"), {}, None), Write(Key(PK, "HEAD"), {}, 1)])
    place.ticks.commit([Write(Key(PK, "HEAD"), Head(open=7, seq=1).to_item(), 2)])
    assert place.count() == 8
    place.ticks.finish()
    head, events = place.on_disk()
    assert (head.open, head.rev, events, place.ticks.query("p", "")) == (8, 4, 2, [])


def test_writes_to_another_run_are_part_of_the_decision_or_it_is_taken_again(place):
    place.store.commit([Write(Key("q", "HEAD"), {"n": 1}, None)])
    tries = []

    def decide(seen):
        tries.append(seen.head.open)
        write = Write(Key("q", "HEAD"), {"n": 2}, 1 if len(tries) > 1 else 9)
        return Change(None, (replace(seen.head, open=5),), (), (write,))

    place.journal.transact(place.journal.read([]), decide)
    place.ticks.finish()
    assert (len(tries), place.on_disk()[0].open, place.store.query("q", "")[0]["n"]) == (2, 5, 2)


def test_a_tick_that_does_not_fit_on_the_disk_is_forgotten_as_a_whole(place):
    place.store._writer.execute("PRAGMA max_page_count = 1")
    place.count(reason="x" * 100_000)
    with pytest.raises(StoreUnusable, match="full"):
        place.ticks.finish()
    assert place.on_disk()[0].open == 0
    place.store._writer.execute("PRAGMA max_page_count = 100000")
    assert place.count() == 1
    place.ticks.finish()
    assert place.on_disk()[0].open == 1


# --- runs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path):
    made = []

    def make(definition, tools, **more):
        made.append(Machine(tmp_path / "runs.db", definition, tools, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_call_begins_when_its_intent_and_all_that_it_follows_from_are_on_the_disk(machine, tmp_path):
    found = []

    def look(_, call):
        other = SqliteStore(tmp_path / "runs.db")
        seen = Journal(other, FrozenClock(), TENANT, call.run_id).read_all()
        other.close()
        found.append((seen.step(call.path).open, all(one.settled or one.open for one in seen.steps())))
        return {}

    names = [f"s{n}" for n in range(6)]
    graph = (step("first"), *(step(name, "first") for name in names), step("last", *names))
    host = machine(manifest(*graph), dict.fromkeys(("first", *names, "last"), look), workers=6)
    host.start()
    host.finish()
    assert found == [(True, True)] * 8


def test_a_run_whose_records_find_no_room_stands_still_and_goes_on_when_there_is_some(machine):
    calls = []

    def fill(_, call):
        calls.append(call.path)
        if len(calls) == 1:
            host.workspace.store._writer.execute("PRAGMA max_page_count = 1")
        return {"much": "x" * 8000}

    host = machine(manifest(step("a"), step("b", "a")), dict.fromkeys("ab", fill))
    run = host.start()
    end = time.monotonic() + 20
    while host.engine.places.runs():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert (calls, type(host.engine.failure)) == (["a"], StoreUnusable)
    host.engine.failure = None
    host.workspace.store._writer.execute("PRAGMA max_page_count = 100000")
    assert host.journal(run).read(["STEP#a"]).step("a").open
    assert host.engine.host(run)
    host.finish()
    assert (calls, host.journal(run).read([]).head.ended) == (["a", "a", "b"], "completed")


def test_a_cancellation_by_another_process_during_a_call_lets_nothing_more_begin(machine, tmp_path):
    calls = []

    def cancel(run):
        workspace = Workspace(tmp_path / "runs.db")
        journal = Journal(workspace.store, workspace.clock, TENANT, run)
        request(workspace.host(Elsewhere()), journal, "cancelled", "enough", UNWIND)

    def called(_, call):
        calls.append(call.path)
        elsewhere(lambda: cancel(call.run_id))
        return {}

    host = machine(manifest(step("a"), step("b", "a")), dict.fromkeys("ab", called))
    run = host.start()
    host.finish()
    seen = host.journal(run).read_all()
    assert (calls, seen.head.ended, seen.step("a").status, seen.step("b")) == (["a"], "cancelled", "completed", None)


def test_a_host_that_is_never_idle_lets_another_process_in(machine, tmp_path):
    names = [f"s{n}" for n in range(3000)]
    host = machine(manifest(*map(step, names), max_parallel=20), dict.fromkeys(names, lambda *_: {}), workers=20)

    def cancel():
        workspace = Workspace(tmp_path / "runs.db")
        run = ready.recv()
        journal = Journal(workspace.store, workspace.clock, TENANT, run)
        while journal.read([]).head.seq < 40:
            time.sleep(0.01)
        request(workspace.host(Elsewhere()), journal, "cancelled", "enough", UNWIND)

    ready, go = FORK.Pipe(duplex=False)
    child = FORK.Process(target=cancel)
    child.start()
    run = host.start()
    go.send(run)
    host.finish()
    child.join(30)
    head = host.journal(run).read([]).head
    assert (child.exitcode, head.ended, head.seq < 5000) == (0, "cancelled", True)


def test_no_more_calls_than_threads_and_who_waits_for_one_has_opened_nothing(machine, tmp_path):
    guard, most, running, opened = threading.Lock(), [0], [0], []

    def busy(_, call):
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        other = SqliteStore(tmp_path / "runs.db")
        opened.append(Journal(other, FrozenClock(), TENANT, call.run_id).read([]).head.open)
        other.close()
        with guard:
            running[0] -= 1
        return {}

    names = [f"s{n}" for n in range(9)]
    host = machine(manifest(*(step(n) for n in names), max_parallel=9), dict.fromkeys(names, busy), workers=2)
    host.start()
    host.finish()
    assert (most[0] <= 2, max(opened) <= 2) == (True, True)


def test_a_call_that_wants_to_end_the_process_fails_like_any_other(machine):
    def leave(*_):
        raise SystemExit(3)

    host = machine(manifest(step("a", on_error="continue")), {"a": leave})
    run = host.start()
    host.finish()
    assert host.journal(run).read_all().head.ended in {"completed", "stopped"}
