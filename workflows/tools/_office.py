"""The back office over HTTP, for tools that have an effect: each effect is one record, kept once per idempotency key.

``ERP_URL`` in the deployment's tool settings is its base address; ``scripts/erp`` stands in for it. A record is found
again with the tool ``erp_find`` and taken back with ``erp_void``, whatever its kind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.errors import PermanentFailure, RateLimited, StepFailure, StepTimeout, TransientFailure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message
    from http.client import HTTPResponse

    from shared.tools.registry import Call

MARGIN = 1.0
"""Seconds of the step's time that are kept for recording the result."""
LARGEST_ANSWER = 1_000_000
"""Bytes of an answer that are read."""


class Document(TypedDict):
    """A record of the back office, by its number there."""

    document: str


def record(kind: str, fields: Mapping[str, Any], call: Call) -> Document:
    """Keep a record. The same idempotency key never makes two. Raises StepFailure subclasses as ``request`` does."""
    return numbered(request("POST", "/documents", call, {"kind": kind, **fields}))


def numbered(answer: Mapping[str, Any]) -> Document:
    """Return the record that an answer names. Raises PermanentFailure when it names none."""
    number = answer.get("document")
    if not isinstance(number, str | int) or number == "":
        raise PermanentFailure("The back office's answer has no `document`. Check ERP_URL and the system's version.")
    return {"document": str(number)}


def request(method: str, path: str, call: Call, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Send one request, without retries: the workflow retries.

    Raises RateLimited for 429, TransientFailure for 5xx and lost connections, StepTimeout when time is over, and
    PermanentFailure for any other refusal and for a missing or wrong ``ERP_URL``.
    """
    from http.client import HTTPException  # noqa: PLC0415 - other steps' processes need no HTTP client
    from urllib.error import HTTPError, URLError  # noqa: PLC0415 - likewise
    from urllib.request import Request, urlopen  # noqa: PLC0415 - likewise

    data = json.dumps(body).encode() if body is not None else None
    headers = {"Accept": "application/json", "Idempotency-Key": call.idempotency_key}
    if data is not None:
        headers["Content-Type"] = "application/json"
    asked = Request(_base(call) + path, data=data, headers=headers, method=method)  # noqa: S310 - _base checks it
    try:
        with urlopen(asked, timeout=max(call.timeout - MARGIN, MARGIN)) as response:  # noqa: S310 - likewise
            return _answer(response)
    except HTTPError as error:
        raise _refusal(error.code, error.read(500).decode(errors="replace"), error.headers) from None
    except TimeoutError:
        raise _late(method) from None
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _late(method) from None
        raise TransientFailure(f"The back office cannot be reached: {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise TransientFailure(f"The connection to the back office was lost: {error}") from None


def _base(call: Call) -> str:
    base = call.settings.get("ERP_URL", "").rstrip("/")
    if not base:
        raise PermanentFailure("The address of the back office is not known. Set ERP_URL in the tool settings.")
    if not base.startswith(("http://", "https://")):
        raise PermanentFailure(f"ERP_URL must begin with http:// or https://, not {base!r}. Correct the tool settings.")
    return base


def _answer(response: HTTPResponse) -> dict[str, Any]:
    try:
        answer = json.loads(response.read(LARGEST_ANSWER))
    except ValueError:
        raise PermanentFailure("The back office did not answer with JSON. Check ERP_URL.") from None
    if not isinstance(answer, dict):
        raise PermanentFailure("The back office did not answer with a JSON object. Check ERP_URL.")
    return cast("dict[str, Any]", answer)


def _late(method: str) -> StepTimeout:
    return StepTimeout(f"The back office did not answer {method} in time.")


def _refusal(status: int, text: str, headers: Message) -> StepFailure:
    """Return the failure that an HTTP status means."""
    told = f"The back office answered {status}: {' '.join(text.split()) or 'no reason given'}"
    if status == 429:  # noqa: PLR2004 - Too Many Requests
        return RateLimited(told, retry_after=_retry_after(headers))
    if status == 408:  # noqa: PLR2004 - Request Timeout
        return StepTimeout(told)
    if status >= 500:  # noqa: PLR2004 - the far side's own fault
        return TransientFailure(told, retry_after=_retry_after(headers))
    return PermanentFailure(told)


def _retry_after(headers: Message) -> float | None:
    given = headers.get("Retry-After", "")
    return float(given) if given.isdigit() else None
