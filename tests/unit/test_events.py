"""Announcements: what operators hear of, without data of the run, at least once."""

from __future__ import annotations

import boto3
import pytest
from boto3.dynamodb.types import TypeSerializer
from moto import mock_aws

from shared.errors import TransientFailure
from shared.events.aws import EventBridge
from shared.events.rules import announcement
from shared.ledger.records import Event, run_partition
from shared.ports import Announcement
from shared.runtime.projection import ProjectHost, follow
from shared.testing import Bulletin, FakeEngine, FixedDefinitions, FrozenClock, MemoryBlobs, MemoryStore

PK = run_partition("acme", "R")


def item(kind, **data):
    event = Event(seq=7, at=99, type=kind, path="each[3]/draft", attempt=1, data=data)
    return {**event.to_item(), "pk": PK, "sk": event.sk, "rev": 1}


def test_a_pause_says_where_and_why_and_nothing_else():
    told = announcement(item("step_paused", reason="budget_exceeded", level="run", dimension="usd", prompt="secret"))
    assert told == Announcement(
        "Run Paused",
        "run/acme/R",
        {
            "tenant": "acme",
            "run": "R",
            "path": "each[3]/draft",
            "seq": 7,
            "at": 99,
            "reason": "budget_exceeded",
            "level": "run",
            "dimension": "usd",
        },
    )


def test_a_call_of_unknown_outcome_is_announced_too():
    assert announcement(item("step_unknown")).detail["reason"] == "unknown_outcome"


@pytest.mark.parametrize("kind", ["step_completed", "budget_refused", "run_started"])
def test_what_needs_nobody_is_not_announced(kind):
    assert announcement(item(kind)) is None


@pytest.mark.parametrize("kind", ["gate_reminded", "gate_escalated"])
def test_what_time_made_of_a_gate_is_announced_with_who_may_decide_now(kind):
    told = announcement(item(kind, tier=2, roles=["finance", "lead"], to=["lena@example.com"]))
    assert told.kind == "Approval Requested"
    assert told.detail == {
        "tenant": "acme",
        "run": "R",
        "path": "each[3]/draft",
        "seq": 7,
        "at": 99,
        "roles": ["finance", "lead"],
        "again": True,
        "tier": 2,
    }


def test_other_records_are_not_announced():
    assert announcement({"pk": PK, "sk": "HEAD", "rev": 1}) is None


def test_the_projector_announces_and_says_when_the_bus_did_not_listen():
    ports = {"store": MemoryStore(), "blobs": MemoryBlobs(), "clock": FrozenClock(), "engine": FakeEngine()}
    events = Bulletin()
    host = ProjectHost(**ports, definitions=FixedDefinitions(), events=events, unwind_machine="unwind")
    image = {name: TypeSerializer().serialize(value) for name, value in item("step_paused", reason="operator").items()}
    follow(host, image)
    assert [one.detail["reason"] for one in events.announced] == ["operator"]
    events.failure = TransientFailure("no")
    with pytest.raises(TransientFailure):
        follow(host, image)


class Bus:
    """What a client of EventBridge answers."""

    def __init__(self, failed=0):
        self.requests, self.failed = [], failed

    def put_events(self, Entries):  # noqa: N803 - the client's name for it
        self.requests.append(Entries)
        return {"FailedEntryCount": self.failed, "Entries": [{"ErrorCode": "ThrottlingException"}] * self.failed}


def test_the_bus_takes_ten_at_a_time():
    bus = Bus()
    EventBridge(bus, "b").announce([Announcement("Run Paused", "r", {"n": n}) for n in range(23)])
    assert [len(entries) for entries in bus.requests] == [10, 10, 3]
    assert {entry["Source"] for entry in bus.requests[0]} == {"signalbox"}


def test_what_the_bus_does_not_take_is_an_error():
    with pytest.raises(TransientFailure, match="ThrottlingException"):
        EventBridge(Bus(failed=1), "b").announce([Announcement("Run Paused", "r", {})])


def test_a_real_client_takes_what_is_sent(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("events", region_name="us-east-1")
        client.create_event_bus(Name="signalbox-test")
        EventBridge(client, "signalbox-test").announce([Announcement("Run Paused", "run/acme/R", {"run": "R"})])


@pytest.mark.parametrize("again", [True, False])
def test_an_open_gate_is_announced_and_whether_it_is_asked_again(again):
    given = {"roles": ["finance"], "digest": "d"} | ({"dispatch": 2} if again else {"expires": 5})
    told = announcement(item("gate_opened", **given))
    assert told.kind == "Approval Requested"
    assert (told.detail["roles"], told.detail["again"], told.detail["path"]) == (["finance"], again, "each[3]/draft")
    assert "digest" not in told.detail


def test_changes_at_a_gate_are_announced_without_what_they_are():
    told = announcement(item("gate_edited", roles=["finance"], changes='{"amount":7}', by="f@example.com"))
    assert (told.kind, told.detail["again"]) == ("Approval Requested", True)
    assert not {"changes", "by"} & told.detail.keys()
