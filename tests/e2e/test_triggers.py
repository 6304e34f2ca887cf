"""Runs that start by themselves: webhooks, messages and events, on the deployed app."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from deployed import NUMBERS, SAMPLES, http, until
from publish import client
from standardwebhooks import Webhook

pytestmark = pytest.mark.e2e
OLD, NEW = (base64.b64encode(bytes([number]) * 24).decode() for number in (1, 2))
HOOK = "/v1/hooks/invoice/erp"


@pytest.fixture(scope="module")
def secret(deployed):
    client(deployed, "secretsmanager").create_secret(
        Name="TENANT/default/signalbox-local/erp_webhook", SecretString=f"whsec_{OLD} whsec_{NEW}"
    )


def document(deployed, sample="nordlicht-de"):
    """Return a small invoice that passes without a person, with a number of its own."""
    text = (SAMPLES / f"{sample}.txt").read_text("utf-8")
    return text.replace(NUMBERS[sample], f"{NUMBERS[sample]}-{next(deployed.numbers)}")


def signed(body, id_="msg_1", key=NEW, ago=0):
    text, at = json.dumps(body), datetime.now(tz=UTC) - timedelta(seconds=ago)
    signature = Webhook(key).sign(msg_id=id_, timestamp=at, data=text)
    headers = {"webhook-id": id_, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
    return text.encode(), headers | {"content-type": "application/json"}


def send(deployed, body, path=HOOK, **more):
    return http("POST", deployed.api_url + path, *signed(body, **more))


def run_of(deployed, trigger, occurrence):
    """Return the run that an occurrence has started, once there is one."""

    def found():
        runs = deployed.api("GET", "/v1/runs?workflow=invoice&limit=100").json["runs"]
        return [one["id"] for one in runs if (one["trigger_id"], one["occurrence"]) == (trigger, occurrence)]

    (run,) = until(found, f"a run by {trigger}")
    return run


def test_a_signed_webhook_starts_one_run_however_often_it_comes(deployed, secret):
    body = {"document": document(deployed)}
    first, again, other_key = send(deployed, body), send(deployed, body), send(deployed, body, key=OLD)
    assert (first.status, again.status, other_key.status) == (201, 200, 200), first.text
    assert first.json["run"] == again.json["run"] == other_key.json["run"]
    run = deployed.run(first.json["run"])
    assert (run["trigger"], run["trigger_id"], run["occurrence"], run["initiator"]) == (
        *("webhook", "erp", "msg_1"),
        "webhook:erp",
    )


def test_forged_expired_and_unknown_webhooks_are_refused_in_the_same_words(deployed, secret):
    body = {"document": "x"}
    altered = signed(body, "msg_2")[1]
    said = {
        answer.text.replace(path, HOOK)
        for path, answer in (
            (HOOK, send(deployed, body, id_="msg_2", key=base64.b64encode(b"3" * 24).decode())),
            (HOOK, send(deployed, body, id_="msg_2", ago=301)),
            (HOOK, send(deployed, body, id_="msg_2", ago=-301)),
            (HOOK, http("POST", deployed.api_url + HOOK, b'{"document": "y"}', altered)),
            (HOOK, http("POST", deployed.api_url + HOOK, b"{}", {})),
            ("/v1/hooks/invoice/intake", send(deployed, body, "/v1/hooks/invoice/intake", id_="msg_2")),
            ("/v1/hooks/nothing/erp", send(deployed, body, "/v1/hooks/nothing/erp", id_="msg_2")),
        )
    }
    assert len(said) == 1
    assert json.loads(said.pop())["code"] == "unverified"


def test_a_signed_webhook_that_does_not_fit_says_where(deployed, secret):
    answer = send(deployed, {"document": 5}, id_="msg_3")
    assert (answer.status, answer.json["code"]) == (422, "unfit_input")
    assert "$.document" in answer.json["detail"]


def test_messages_start_runs_and_those_that_cannot_become_dead_letters(deployed):
    sqs = client(deployed, "sqs")
    queue = sqs.get_queue_url(QueueName="signalbox-local-invoice-intake")["QueueUrl"]
    bad = sqs.send_message(QueueUrl=queue, MessageBody="no invoice")["MessageId"]
    good = sqs.send_message(QueueUrl=queue, MessageBody=json.dumps({"document": document(deployed)}))["MessageId"]
    deployed.reaches(run_of(deployed, "intake", good), "completed")
    (letters,) = [url for url in sqs.list_queues()["QueueUrls"] if "TriggerLetters" in url]

    def dead():
        return sqs.receive_message(QueueUrl=letters, MessageAttributeNames=["All"]).get("Messages")

    (letter,) = until(dead, "a dead letter")
    about = {name: one["StringValue"] for name, one in letter["MessageAttributes"].items()}
    assert letter["Body"] == "no invoice"
    assert (about["workflow"], about["trigger"], about["occurrence"]) == ("invoice", "intake", bad)
    assert about["reason"].startswith("unfit_input: ")


def test_an_event_on_the_default_bus_starts_a_run(deployed):
    detail = {"document": document(deployed)}
    entry = {"Source": "app.uploads", "DetailType": "Document Uploaded", "Detail": json.dumps(detail)}
    (sent,) = client(deployed, "events").put_events(Entries=[entry])["Entries"]
    run = deployed.run(run_of(deployed, "uploaded", sent["EventId"]))
    assert run["input"] == detail
