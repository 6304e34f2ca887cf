"""Dead letters of triggers in an SQS queue: what was delivered, with the reason beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.errors import TransientFailure
from shared.ports import DeadLetters

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 1000


class SqsDeadLetters(DeadLetters):
    """``client`` is boto3's of SQS, ``url`` the queue's."""

    def __init__(self, client: Any, url: str) -> None:
        self._client, self._url = client, url

    def put(self, delivered: Mapping[str, Any], about: Mapping[str, str]) -> None:
        """Keep what was delivered: a message's body as it was, anything else as JSON. Raises TransientFailure."""
        body = str(delivered["body"]) if "messageId" in delivered else json.dumps(delivered, ensure_ascii=False)
        attributes = {name: {"DataType": "String", "StringValue": _plain(text)} for name, text in about.items()}
        attributes |= _own(delivered, 10 - len(attributes))
        try:
            self._client.send_message(QueueUrl=self._url, MessageBody=body, MessageAttributes=attributes)
        except (ClientError, BotoCoreError) as error:
            raise TransientFailure(f"The dead letter was not taken: {error}") from error


def _own(delivered: Mapping[str, Any], room: int) -> dict[str, Any]:
    """Return the message's own attributes. Raises TransientFailure when they do not fit: SQS then keeps it whole."""
    own: Mapping[str, Mapping[str, Any]] = delivered.get("messageAttributes") or {}
    texts = {name: one for name, one in own.items() if one.get("stringValue")}
    if len(texts) < len(own) or len(texts) > room:
        raise TransientFailure("The message has more attributes than a dead letter can keep.")
    return {
        name: {"DataType": one.get("dataType", "String"), "StringValue": one["stringValue"]}
        for name, one in texts.items()
    }


def _plain(text: str) -> str:
    """Return a text that an attribute may hold."""
    return "".join(one if one.isprintable() else "?" for one in text[:_LONGEST]) or "-"
