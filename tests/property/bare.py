"""What a step on the local cloud is compared with: Lambda functions that do nothing, or no more than a step must."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cloud_function import TABLE

from shared.ledger.attributes import encode_item
from shared.ledger.records import Event, Head, Step
from shared.ports import Key, Write
from shared.values import Value

if TYPE_CHECKING:
    from shared.ledger.record import Record
    from shared.ports import Store

NOTHING = "def handle(event, context):\n    return {}\n"
TRIPS = """
import json, os
from http.client import HTTPConnection
from urllib.parse import urlsplit

REQUESTS = json.loads(os.environ["REQUESTS"])
HEADERS = {
    "Content-Type": "application/x-amz-json-1.0",
    "Authorization": "AWS4-HMAC-SHA256 Credential=%s/20260101/us-east-1/dynamodb/aws4_request, "
    "SignedHeaders=host, Signature=none" % os.environ["AWS_ACCESS_KEY_ID"],
}
connection = HTTPConnection(urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc)

def handle(event, context):
    for operation, body in REQUESTS:
        connection.request("POST", "/", body, {**HEADERS, "X-Amz-Target": "DynamoDB_20120810." + operation})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(text)
    return {}
"""
"""Makes its requests on one open connection: nothing is built, signed, checked or understood."""
_PARTITION = "BARE"


def requests_of_a_step(store: Store) -> str:
    """Return the three requests of a step on its happy path as JSON: enter, open, close. They hold any number of times.

    Their items are of a step's own size, and are put into ``store`` here.
    """
    text = json.dumps({"arguments": "x" * 60})
    value = Value("d" * 64, len(text), text=text)
    step = Step(path="s1", step="s1", type="tool", status="completed", arguments=value, output=value, lease=10**12)
    event = Event(seq=1, at=10**12, type="step_completed", path="s1", attempt=1, data={"used": {"usd": 0, "tokens": 0}})
    records = (Head(seq=1), step, event)
    store.commit([Write(Key(_PARTITION, record.sk), record.to_item(), None) for record in records])
    keys = [encode_item({"pk": _PARTITION, "sk": sk}) for sk in ("HEAD", "STEP#s1", "STEP#s0", "RUN")]
    read = {"RequestItems": {TABLE: {"Keys": keys, "ConsistentRead": True}}}
    write = {"TransactItems": [{"Put": _put(record)} for record in records]}
    trips = (("BatchGetItem", read), ("TransactWriteItems", write), ("TransactWriteItems", write))
    return json.dumps([(operation, json.dumps(body)) for operation, body in trips])


def _put(record: Record) -> dict[str, Any]:
    """Return a put that leaves the item's revision as it is, so that its condition holds again."""
    return {
        "TableName": TABLE,
        "Item": encode_item({**record.to_item(), "pk": _PARTITION, "sk": record.sk, "rev": 1}),
        "ExpressionAttributeNames": {"#c": "rev"},
        "ConditionExpression": "#c = :rev",
        "ExpressionAttributeValues": {":rev": {"N": "1"}},
    }
