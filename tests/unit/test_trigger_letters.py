"""The queue of dead letters: what was delivered as it was, and our own words beside it."""

from __future__ import annotations

import json

import boto3
import pytest
from moto import mock_aws

from shared.errors import TransientFailure
from shared.triggers.aws import SqsDeadLetters

EVENT = {"id": "e-1", "source": "app.uploads", "detail-type": "Uploaded", "time": "2026-11-30T11:00:00Z"}


def message(body):
    return {"messageId": "m-1", "body": body, "attributes": {}, "messageAttributes": {}}


@pytest.fixture
def sqs(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("sqs", region_name="eu-central-1")
        yield client, client.create_queue(QueueName="letters")["QueueUrl"]


def kept(sqs):
    (found,) = sqs[0].receive_message(QueueUrl=sqs[1], MessageAttributeNames=["All"])["Messages"]
    return found["Body"], {name: one["StringValue"] for name, one in found["MessageAttributes"].items()}


def test_a_dead_letter_is_the_message_with_the_reason_beside_it(sqs):
    own = {"kind": {"stringValue": "invoice", "dataType": "String"}}
    record = {**message("as it was"), "messageAttributes": own}
    SqsDeadLetters(*sqs).put(record, {"workflow": "in-take", "reason": "unfit_input: \x00\n" + "x" * 5000})
    body, attributes = kept(sqs)
    assert (body, attributes["kind"], attributes["workflow"]) == ("as it was", "invoice", "in-take")
    assert attributes["reason"].startswith("unfit_input: ??xxx")
    assert len(attributes["reason"]) == 1000


def test_a_dead_letter_of_an_event_is_the_whole_call(sqs):
    call = {"kind": "event", "workflow": "w", "trigger": "t", "event": EVENT}
    SqsDeadLetters(*sqs).put(call, {"reason": ""})
    body, attributes = kept(sqs)
    assert json.loads(body) == call
    assert attributes == {"reason": "-"}


ABOUT = {"workflow": "in-take", "trigger": "intake", "occurrence": "m-1", "reason": "unfit_input: why"}
TEXT_OWN = {"stringValue": "x", "dataType": "String"}


def letter(sqs, own):
    SqsDeadLetters(*sqs).put({**message("x"), "messageAttributes": own}, ABOUT)
    (found,) = sqs[0].receive_message(QueueUrl=sqs[1], MessageAttributeNames=["All"])["Messages"]
    return found["MessageAttributes"]


def test_a_letter_keeps_numbers_and_binary_attributes_as_they_were(sqs):
    own = {
        "raw": {"binaryValue": "AAE=", "dataType": "Binary.png"},
        "n": {"stringValue": "5", "dataType": "Number"},
        **{f"a{number}": TEXT_OWN for number in range(4)},
    }
    found = letter(sqs, own)
    assert (found["raw"]["DataType"], found["raw"]["BinaryValue"]) == ("Binary.png", b"\x00\x01")
    assert (found["n"]["DataType"], found["n"]["StringValue"]) == ("Number", "5")
    assert len(found) == 10


@pytest.mark.parametrize(
    "own",
    [
        {"reason": TEXT_OWN, "workflow": TEXT_OWN, "kind": TEXT_OWN},
        {f"a{number}": TEXT_OWN for number in range(7)},
        {"raw": {"binaryValue": "AAE=", "dataType": "Binary"}, **{f"a{number}": TEXT_OWN for number in range(9)}},
    ],
)
def test_attributes_that_cannot_stand_beside_ours_stand_in_one_and_never_replace_ours(sqs, own):
    found = letter(sqs, own)
    assert {name: found[name]["StringValue"] for name in ABOUT} == ABOUT
    assert set(found) == {*ABOUT, "attributes"}
    assert json.loads(found["attributes"]["StringValue"]) == own


def test_a_queue_that_takes_nothing_is_a_failure_that_may_pass(sqs):
    with pytest.raises(TransientFailure):
        SqsDeadLetters(sqs[0], sqs[1] + "-gone").put(message("x"), {"reason": "r"})
