"""``email.send``: mail from the deployment's own address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import Doc, TypedDict  # pydantic wants this TypedDict before Python 3.12

from shared.errors import PermanentFailure
from shared.settings import EMAIL_SENDER
from shared.tools.aws import Aws
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.tools.means import Means

MOST = 50
"""Recipients of one mail. Source: Amazon SES quotas."""


class Mailed(TypedDict):
    """What SES calls the mail."""

    message_id: str


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"email.send": Email(means).send}


class Email:
    """Sends mail by these means. Raises StepFailure subclasses as ``Aws.ask`` does."""

    def __init__(self, means: Means) -> None:
        self._aws = Aws(means, "email.send", "sesv2")

    def send(
        self,
        *,
        to: Annotated[str | list[str], Doc("Address, or several: each sees the others.")],
        subject: Annotated[str, Doc("Subject, in one line.")],
        text: Annotated[str, Doc("The mail as plain text.")],
        html: Annotated[str | None, Doc("The same as HTML.")] = None,
        reply_to: Annotated[str | None, Doc("Address that answers go to; without it, the deployment's own.")] = None,
        call: Call,
    ) -> Mailed:
        """Send a mail from the deployment's address."""
        sender = call.settings.get(EMAIL_SENDER, "")
        if not sender:
            raise PermanentFailure(
                f"email.send has no sender. Set {EMAIL_SENDER} in the tool settings to a verified address."
            )
        recipients = [to] if isinstance(to, str) else to
        _check(recipients, subject, reply_to)
        bodies = {"Text": _part(text), **({"Html": _part(html)} if html is not None else {})}
        key = {"Name": "X-Idempotency-Key", "Value": call.idempotency_key}
        answer = self._aws.ask(
            "send_email",
            call,
            FromEmailAddress=sender,
            Destination={"ToAddresses": recipients},
            ReplyToAddresses=[reply_to] if reply_to else None,
            Content={"Simple": {"Subject": _part(subject), "Body": bodies, "Headers": [key]}},
        )
        return {"message_id": str(answer["MessageId"])}


def _check(recipients: list[str], subject: str, reply_to: str | None) -> None:
    if not 1 <= len(recipients) <= MOST:
        raise PermanentFailure(f"A mail has 1 to {MOST} recipients, not {len(recipients)}.")
    for line in (*recipients, subject, reply_to or ""):
        if any(character < " " for character in line):
            raise PermanentFailure("An address or the subject of the mail holds a line break or control character.")


def _part(text: str) -> dict[str, str]:
    return {"Data": text, "Charset": "UTF-8"}
