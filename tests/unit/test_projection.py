"""The list view follows the head, whatever the order in which the stream delivers its images."""

from __future__ import annotations

from shared.ledger.records import Head, Run, run_partition
from shared.manifest import Limits
from shared.ports import Key, Write
from shared.runtime.runs import bring_up, listed, new_head
from shared.testing import MemoryStore
from shared.values import Value

PK = run_partition("acme", "R")


def store():
    run = Run(
        id="R",
        tenant="acme",
        workflow="w",
        version=1,
        hash="h",
        machine="m",
        initiator="i",
        trigger="api",
        created=1,
        input=Value("d", 2, text="{}"),
    )
    memory = MemoryStore()
    memory.commit([Write(Key(PK, "RUN"), listed(run, new_head(Limits())).to_item(), None)])
    return memory


def state(memory):
    return memory.items[Key(PK, "RUN")]["state"]


def test_the_state_follows_the_head():
    memory = store()
    assert state(memory) == "pending"
    assert bring_up(memory, PK, Head(rev=2, seq=2, open=1))
    assert state(memory) == "running"
    assert bring_up(memory, PK, Head(rev=3, seq=3, waiting=1))
    assert memory.items[Key(PK, "RUN")]["tenant_state"] == "TENANT#acme#STATE#waiting_for_human"
    assert bring_up(memory, PK, Head(rev=4, seq=4, ended="completed", ended_at=77))
    assert (state(memory), memory.items[Key(PK, "RUN")]["ended"]) == ("completed", 77)


def test_a_run_that_goes_on_has_not_ended_any_more():
    memory = store()
    memory.items[Key(PK, "RUN")]["newer"] = "what a newer release has written stays"
    bring_up(memory, PK, Head(rev=2, seq=2, ended="completed", ended_at=77))
    bring_up(memory, PK, Head(rev=3, seq=3, unwinding="cancelled"))
    listed_run = memory.items[Key(PK, "RUN")]
    assert "ended" not in listed_run
    assert listed_run["newer"] == "what a newer release has written stays"


def test_an_older_image_that_comes_late_changes_nothing():
    memory = store()
    bring_up(memory, PK, Head(rev=4, seq=4, ended="failed", ended_at=1))
    assert not bring_up(memory, PK, Head(rev=3, seq=3, open=1))
    assert not bring_up(memory, PK, Head(rev=4, seq=4, ended="failed", ended_at=1))
    assert state(memory) == "failed"


def test_a_head_whose_run_is_gone_is_passed_over():
    assert not bring_up(MemoryStore(), PK, Head(rev=2))
