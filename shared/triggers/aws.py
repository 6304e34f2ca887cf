"""Dead letters of triggers in an SQS queue: what was delivered, with the reason beside it."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.errors import TransientFailure
from shared.ports import DeadLetters

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 1000
_MOST_ATTRIBUTES = 10
"""Of one message. Source: SQS Developer Guide, "Amazon SQS message attributes"."""
OTHERS = "attributes"
"""The attribute that holds a message's own as JSON, where they cannot stand beside ours."""


class SqsDeadLetters(DeadLetters):
    """``client`` is boto3's of SQS, ``url`` the queue's."""

    def __init__(self, client: Any, url: str) -> None:
        self._client, self._url = client, url

    def put(self, delivered: Mapping[str, Any], about: Mapping[str, str]) -> None:
        """Keep what was delivered: a message's body as it was, anything else as JSON. Raises TransientFailure.

        A message's own attributes stand beside ``about`` as they were. If one has a name of ours, or there are too many
        of them, all stand in one, ``attributes``, as Lambda delivered them. What gets too large by that is not taken.
        """
        body = str(delivered["body"]) if "messageId" in delivered else json.dumps(delivered, ensure_ascii=False)
        ours = {name: _text(_plain(text)) for name, text in about.items()}
        try:
            self._client.send_message(QueueUrl=self._url, MessageBody=body, MessageAttributes=_beside(delivered, ours))
        except (ClientError, BotoCoreError) as error:
            raise TransientFailure(f"The dead letter was not taken: {error}") from error


def _beside(delivered: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    own: Mapping[str, Mapping[str, Any]] = delivered.get("messageAttributes") or {}
    names = {*own, *ours}
    if len(names) < len(own) + len(ours) or len(names) > _MOST_ATTRIBUTES:
        return {OTHERS: _text(json.dumps(own)), **ours}
    return {**{name: _as_sent(one) for name, one in own.items()}, **ours}


def _as_sent(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return an attribute as SQS takes it, from the form in which Lambda delivers it."""
    if one.get("binaryValue"):
        return {"DataType": one.get("dataType", "Binary"), "BinaryValue": base64.b64decode(one["binaryValue"])}
    return {"DataType": one.get("dataType", "String"), "StringValue": one.get("stringValue", "")}


def _text(text: str) -> dict[str, Any]:
    return {"DataType": "String", "StringValue": text}


def _plain(text: str) -> str:
    """Return a text that an attribute may hold."""
    return "".join(one if one.isprintable() else "?" for one in text[:_LONGEST]) or "-"
