"""Records: two forms in which they are written down, and read again."""

from __future__ import annotations

import pytest

from shared.ledger.record import Record, replace
from shared.ledger.records import Amount, Call, Event, Head, Step
from shared.ledger.sqlite import SqliteStore
from shared.ports import Key, Write
from shared.values import Value

STEP = Step(path="a", step="a", type="tool", status="running")


def test_the_short_form_leaves_out_what_is_at_its_default():
    assert STEP.told() == {"path": "a", "step": "a", "type": "tool", "status": "running"}
    assert Head().told() == {}
    assert Head(open=1).told() == {"open": 1}


@pytest.mark.parametrize(
    "record",
    [
        STEP,
        replace(STEP, open=True, hold=Amount(1, 0, 1), output=Value("d", 2, text="{}"), action={"seconds": 0.5}),
        replace(STEP, call=Call("t", "read", 1, "d", "k", 5), spent=Amount()),
        Head(epoch=0, left_usd=0),
        Event(seq=1, at=2, type="x"),
    ],
)
def test_a_record_comes_back_as_it_was(record, tmp_path):
    store, kind = SqliteStore(tmp_path / "runs.db"), type(record)
    store.commit([Write(Key("p", "short"), record.told(), None), Write(Key("p", "whole"), record.to_item(), None)])
    assert [kind.from_item(item) for item in store.query("p", "")] == [replace(record, rev=1)] * 2
    store.close()


def test_a_copy_leaves_the_original_as_it_was_and_knows_no_other_fields():
    changed = replace(STEP, status="completed")
    assert (STEP.status, changed.status, changed.path) == ("running", "completed", "a")
    with pytest.raises(TypeError, match="Step has no colour"):
        replace(STEP, colour="red")


def test_a_step_is_written_without_what_is_at_its_default_down_into_its_parts():
    ran = replace(STEP, hold=Amount(usd=3), spent=Amount(), output=Value("d", 2, text="{}"), retries=0, settled=True)
    item = ran.to_item()
    assert item == {
        "path": "a",
        "step": "a",
        "type": "tool",
        "status": "running",
        "hold": {"usd": 3},
        "spent": {},
        "output": {"digest": "d", "size": 2, "text": "{}"},
        "settled": True,
    }
    assert Step.from_item(item) == ran


def test_a_step_that_was_written_whole_is_read_as_well():
    assert Step.from_item(Record.to_item(STEP)) == STEP
