"""``sqs.send``, ``sns.publish`` and ``events.put``: messages that others in the account read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, cast

from typing_extensions import Doc, TypedDict  # pydantic wants this TypedDict before Python 3.12

from shared.errors import TransientFailure
from shared.tools.aws import Aws, Refused
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.tools.means import Means

FIFO = ".fifo"
_KEY = "idempotency_key"
_LONGEST_GROUP = 128


class Sent(TypedDict):
    """What the service calls the message; ``sequence`` is empty without an order."""

    message_id: str
    sequence: str


class Put(TypedDict):
    """What the bus calls the event."""

    event_id: str


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"sqs.send": Queue(means).send, "sns.publish": Topic(means).publish, "events.put": Bus(means).put}


class Queue:
    """Sends to queues. Raises StepFailure subclasses as ``Aws.ask`` does."""

    def __init__(self, means: Means) -> None:
        self._aws = Aws(means, "sqs.send", "sqs")

    def send(
        self,
        *,
        queue: Annotated[str, Doc("URL of the queue.")],
        body: Annotated[Any, Doc("The message: text as it is, everything else as JSON.")],
        group: Annotated[
            str | None, Doc("Messages of one group keep their order, if the queue keeps one; without it, the run.")
        ] = None,
        delay: Annotated[
            int | None, Doc("Seconds until it can be read, up to 900; not for a queue that keeps an order.")
        ] = None,
        call: Call,
    ) -> Sent:
        """Send a message to an SQS queue, named by its URL."""
        answer = self._aws.ask(
            "send_message",
            call,
            QueueUrl=queue,
            MessageBody=_text(body),
            DelaySeconds=delay,
            MessageAttributes=_attributes(call),
            **_order(queue, group, call),
        )
        return _sent(answer)


class Topic:
    """Publishes to topics. Raises StepFailure subclasses as ``Aws.ask`` does."""

    def __init__(self, means: Means) -> None:
        self._aws = Aws(means, "sns.publish", "sns")

    def publish(
        self,
        *,
        topic: Annotated[str, Doc("ARN of the topic.")],
        message: Annotated[Any, Doc("The message: text as it is, everything else as JSON.")],
        subject: Annotated[str | None, Doc("Subject for those who get it as mail, up to 100 characters.")] = None,
        group: Annotated[
            str | None, Doc("Messages of one group keep their order, if the topic keeps one; without it, the run.")
        ] = None,
        call: Call,
    ) -> Sent:
        """Publish a message to an SNS topic, named by its ARN."""
        answer = self._aws.ask(
            "publish",
            call,
            TopicArn=topic,
            Message=_text(message),
            Subject=subject,
            MessageAttributes=_attributes(call),
            **_order(topic, group, call),
        )
        return _sent(answer)


class Bus:
    """Puts events on buses. Raises StepFailure subclasses as ``Aws.ask`` does."""

    def __init__(self, means: Means) -> None:
        self._aws = Aws(means, "events.put", "events")

    def put(
        self,
        *,
        bus: Annotated[str, Doc("Name or ARN of the bus.")],
        source: Annotated[str, Doc("Who tells of the event, such as `shop.orders`.")],
        detail_type: Annotated[str, Doc("What kind of event it is, such as `OrderPaid`.")],
        detail: Annotated[dict[str, Any], Doc("What there is to say about it.")],
        call: Call,
    ) -> Put:
        """Put an event on an EventBridge bus, named by its name or ARN."""
        entry = {
            "EventBusName": bus,
            "Source": source,
            "DetailType": detail_type,
            "Detail": json.dumps(detail, ensure_ascii=False),
            # The bus knows no key; who must not act twice compares this.
            "Resources": [f"signalbox:call:{call.idempotency_key}"],
        }
        (first,) = cast("list[dict[str, Any]]", self._aws.ask("put_events", call, Entries=[entry])["Entries"])
        if code := first.get("ErrorCode"):
            told = f"events.put: the bus did not take the event ({code}): {first.get('ErrorMessage', '')}"
            raise TransientFailure(told) if code in _PASSES else Refused(told, code)
        return {"event_id": str(first["EventId"])}


_PASSES = frozenset({"InternalFailure", "InternalException", "ThrottlingException", "ServiceUnavailable"})


def _text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)


def _attributes(call: Call) -> dict[str, Any]:
    return {_KEY: {"DataType": "String", "StringValue": call.idempotency_key}}


def _order(place: str, group: str | None, call: Call) -> dict[str, str]:
    """Return what a queue or topic that keeps an order wants: the key makes a repeated message harmless there."""
    if not place.endswith(FIFO):
        return {"MessageGroupId": group} if group else {}
    return {"MessageGroupId": (group or call.run_id)[:_LONGEST_GROUP], "MessageDeduplicationId": call.idempotency_key}


def _sent(answer: dict[str, Any]) -> Sent:
    return {"message_id": str(answer["MessageId"]), "sequence": str(answer.get("SequenceNumber", ""))}
