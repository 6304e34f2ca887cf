"""The DynamoDB store on moto, the SQLite store, and the store in memory: the same conditions for all."""

from __future__ import annotations

from dataclasses import replace

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from shared.errors import StoreConflict, TransientFailure
from shared.ledger.dynamodb import DynamoStore
from shared.ledger.records import Amount, Event, Gate, Head, Run, Step, revive
from shared.ports import Key, Write
from shared.values import Value
from tests.unit.stores import store

__all__ = ["store"]


def put(pk, sk, expected=None, **fields):
    return Write(Key(pk, sk), fields, expected)


def test_a_new_item_has_revision_one_and_every_write_raises_it(store):
    store.commit([put("p", "a", n=1)])
    store.commit([put("p", "a", expected=1, n=2)])
    item = store.read([Key("p", "a"), Key("p", "b")])
    assert item == {Key("p", "a"): {"pk": "p", "sk": "a", "rev": 2, "n": 2}}


@pytest.mark.parametrize("expected", [None, 2])
def test_a_write_on_another_revision_loses(store, expected):
    store.commit([put("p", "a", n=1)])
    with pytest.raises(StoreConflict):
        store.commit([put("p", "a", expected=expected, n=9)])


def test_a_transaction_applies_all_or_nothing(store):
    store.commit([put("p", "a", n=1)])
    with pytest.raises(StoreConflict):
        store.commit([put("p", "b", n=1), put("p", "a", n=2)])
    assert list(store.read([Key("p", "a"), Key("p", "b")])) == [Key("p", "a")]


def test_queries_return_a_prefix_in_order_after_a_key_up_to_a_limit(store):
    for name in ("EVENT#3", "EVENT#1", "EVENT#2", "STEP#1", "EVENS"):
        store.commit([put("p", name)])
    found = lambda **more: [item["sk"] for item in store.query("p", "EVENT#", **more)]  # noqa: E731
    assert found() == ["EVENT#1", "EVENT#2", "EVENT#3"]
    assert found(after="EVENT#1") == ["EVENT#2", "EVENT#3"]
    assert found(after="EVENT#1", limit=1) == ["EVENT#2"]


def test_any_number_of_keys_can_be_read(store):
    for number in range(130):
        store.commit([put("p", f"{number:03d}")])
    assert len(store.read([Key("p", f"{number:03d}") for number in range(140)])) == 130


def test_indexes_list_newest_first_and_page_by_time(store):
    for number in range(4):
        store.commit([put(f"p{number}", "RUN", tenant_workflow="t", created=number)])
    store.commit([put("q", "RUN", tenant_workflow="other", created=9)])
    assert [item["created"] for item in store.index("by_workflow", "t", limit=2)] == [3, 2]
    assert [item["created"] for item in store.index("by_workflow", "t", limit=2, before="2")] == [1, 0]


def test_records_survive_the_store(store):
    value = Value("d", 2, text="{}")
    records = [
        Head(seq=3, left_usd=10, active_left=5),
        Run(
            id="r",
            tenant="t",
            workflow="w",
            version=1,
            hash="h",
            machine="m",
            initiator="i",
            trigger="api",
            created=1,
            input=value,
            tenant_workflow="tw",
            tenant_state="ts",
        ),
        Step(path="a", step="a", type="tool", status="running", hold=Amount(1, 2, 3), output=value, action={"a": 1}),
        Gate(id="g", path="g", step="g", roles=("finance",), recipients=("a@b",), tenant_pending="t", opened=1),
        Event(seq=1, at=1, type="run_started", data={"nested": {"list": [1, "two", None, True]}}),
    ]
    store.commit([Write(Key("p", record.sk), record.to_item(), None) for record in records])
    for record in records:
        read = revive(store.read([Key("p", record.sk)])[Key("p", record.sk)])
        assert read == replace(record, rev=1)


def test_what_is_no_conflict_is_not_reported_as_one():
    with mock_aws():
        store = DynamoStore(boto3.client("dynamodb", region_name="us-east-1"), "missing")
        with pytest.raises(ClientError):
            store.commit([put("p", "a")])


class Throttled:
    """A client whose table leaves out every key so many times."""

    def __init__(self, times):
        self.times = times

    def batch_get_item(self, **asked):
        self.times -= 1
        return {"Responses": {}, "UnprocessedKeys": asked["RequestItems"] if self.times >= 0 else {}}


def test_keys_that_are_left_out_are_asked_for_again_but_not_for_ever():
    assert DynamoStore(Throttled(2), "t").read([Key("p", "s")]) == {}
    with pytest.raises(TransientFailure, match="throttles"):
        DynamoStore(Throttled(99), "t").read([Key("p", "s")])
