"""A run's records as a whole: read in as few round trips as it takes, and never newer than the head they go with."""

from __future__ import annotations

from shared.clock import SystemClock
from shared.ledger.records import Event, Head, Park, Step
from shared.ports import Key, Write
from shared.runtime.journal import Journal
from tests.unit.stores import store

__all__ = ["store"]

RECORDS = (
    Head(seq=2),
    *(Event(seq=seq, at=seq, type="x", path=None, attempt=None, data={}) for seq in (1, 2)),
    Step(path="a", step="a", type="tool", status="ready"),
    Step(path="b/x[1]", step="x", type="tool", status="ready"),
    Park(path="a", kind="pause", token="t"),
)


def filled(store):
    journal = Journal(store, SystemClock(), "acme", "R")
    store.commit([Write(Key(journal.pk, record.sk), record.to_item(), None) for record in RECORDS])
    return journal


def test_all_records_but_the_events_are_read(store):
    seen = filled(store).read_all()
    assert sorted(seen.records) == ["HEAD", "PARK#a", "STEP#a", "STEP#b/x[1]"]
    assert seen.whole


def test_a_head_that_moves_meanwhile_is_seen_as_it_was_before_everything_else(store):
    journal, read = filled(store), store.query

    def late(pk, prefix, **more):
        store.commit([Write(Key(pk, "HEAD"), Head(seq=9).to_item(), 1)])
        return read(pk, prefix, **more)

    store.query = late
    assert journal.read_all().head.seq == 2


def test_the_whole_takes_two_round_trips(store):
    journal, trips = filled(store), []
    for name in ("read", "query"):
        real = getattr(store, name)
        setattr(store, name, lambda *given, real=real, name=name, **more: trips.append(name) or real(*given, **more))
    journal.read_all()
    assert trips == ["read", "query"]
