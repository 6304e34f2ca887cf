"""Mail through Amazon SES (API v2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from shared.errors import PermanentFailure, RateLimited, StepFailure, TransientFailure
from shared.ports import Mail

if TYPE_CHECKING:
    from shared.ports import Message

_SLOWER = frozenset({"TooManyRequestsException", "ThrottlingException", "Throttling"})
_FIRST_SERVER_ERROR = 500


class SesMail(Mail):
    """Sends from ``sender``, an address that SES has verified. ``client`` is a boto3 SES v2 client without retries."""

    def __init__(self, client: Any, sender: str) -> None:
        self._client = client
        self._sender = sender

    def send(self, message: Message) -> None:
        """Send one mail. Raises RateLimited, TransientFailure, or PermanentFailure when SES refuses it for good."""
        try:
            self._client.send_email(**self._request(message))
        except ClientError as error:
            raise _classified(error, message.to) from error
        except BotoCoreError as error:
            raise TransientFailure(f"SES could not be reached for the mail to {message.to}: {error}") from error

    def _request(self, message: Message) -> dict[str, Any]:
        simple: dict[str, Any] = {
            "Subject": _part(message.subject),
            "Body": {"Text": _part(message.text), "Html": _part(message.html)},
        }
        if message.headers:
            simple["Headers"] = [{"Name": name, "Value": value} for name, value in message.headers.items()]
        return {
            "FromEmailAddress": self._sender,
            "Destination": {"ToAddresses": [message.to]},
            "Content": {"Simple": simple},
        }


def _part(text: str) -> dict[str, str]:
    return {"Data": text, "Charset": "UTF-8"}


def _classified(error: ClientError, to: str) -> StepFailure:
    """Return the failure's class from SES's error code: what a repetition can cure, and what it cannot."""
    answer = cast("dict[str, Any]", error.response)
    code, status = answer["Error"]["Code"], int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    text = f"SES did not take the mail to {to} ({code}): {answer['Error'].get('Message', '')}"
    if code in _SLOWER:
        return RateLimited(text)
    if status >= _FIRST_SERVER_ERROR:
        return TransientFailure(text)
    return PermanentFailure(f"{text} Check that the sender is verified and that the account may send.")
