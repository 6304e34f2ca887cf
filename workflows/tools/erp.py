"""The ERP system over HTTP: post a document, void it, find out whether it exists.

``ERP_URL`` in the deployment's tool settings is its base address. ``Idempotency-Key`` makes a repeated post harmless.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.errors import PermanentFailure, RateLimited, StepFailure, StepTimeout, TransientFailure
from shared.tools.registry import Call, tool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message
    from http.client import HTTPResponse

MARGIN = 1.0
"""Seconds of the step's time that are kept for recording the result."""
LARGEST_ANSWER = 1_000_000
"""Bytes of an answer that are read."""


class Document(TypedDict):
    """A document in the ERP system."""

    document: str


class Voided(TypedDict):
    """A document that no longer counts."""

    document: str
    status: str


class Found(TypedDict):
    """How many documents bear a key; the first one, empty if there is none."""

    count: int
    document: str


@tool
def erp_post(  # noqa: PLR0913 - a document has these fields
    vendor: str, number: str, due: str, currency: str, amount: float, category: str, *, call: Call
) -> Document:
    """Post a document. The same idempotency key never posts two.

    Raises StepFailure subclasses as ``_request`` does.
    """
    body = {
        "vendor": vendor,
        "number": number,
        "due": due,
        "currency": currency,
        "amount": amount,
        "category": category,
    }
    answer = _request("POST", "/documents", call, body)
    return {"document": _text(answer, "document")}


@tool
def erp_void(document: str, *, call: Call) -> Voided:
    """Void a document; voiding it again is harmless. Raises StepFailure subclasses as ``_request`` does."""
    answer = _request("POST", f"/documents/{quote(document, safe='')}/void", call, {})
    return {"document": document, "status": str(answer.get("status", "void"))}


@tool
def erp_find(key: str, *, call: Call) -> Found:
    """Find the document posted under an idempotency key. Raises StepFailure subclasses as ``_request`` does."""
    answer = _request("GET", f"/documents?key={quote(key, safe='')}", call)
    documents = cast("list[Any]", answer.get("documents") or [])
    first = cast("dict[str, Any]", documents[0]) if documents and isinstance(documents[0], dict) else {}
    return {"count": int(answer.get("count", len(documents))), "document": str(first.get("document", ""))}


def _request(method: str, path: str, call: Call, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
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
    request = Request(_base(call) + path, data=data, headers=headers, method=method)  # noqa: S310 - _base checks it
    try:
        with urlopen(request, timeout=max(call.timeout - MARGIN, MARGIN)) as response:  # noqa: S310 - likewise
            return _answer(response)
    except HTTPError as error:
        raise _refusal(error.code, error.read(500).decode(errors="replace"), error.headers) from None
    except TimeoutError:
        raise StepTimeout(f"The ERP system did not answer {method} in time.") from None
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise StepTimeout(f"The ERP system did not answer {method} in time.") from None
        raise TransientFailure(f"The ERP system cannot be reached: {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise TransientFailure(f"The connection to the ERP system was lost: {error}") from None


def _base(call: Call) -> str:
    base = call.settings.get("ERP_URL", "").rstrip("/")
    if not base:
        raise PermanentFailure("The address of the ERP system is not known. Set ERP_URL in the tool settings.")
    if not base.startswith(("http://", "https://")):
        raise PermanentFailure(f"ERP_URL must begin with http:// or https://, not {base!r}. Correct the tool settings.")
    return base


def _answer(response: HTTPResponse) -> dict[str, Any]:
    content = response.read(LARGEST_ANSWER)
    try:
        answer = json.loads(content)
    except ValueError:
        raise PermanentFailure("The ERP system did not answer with JSON. Check ERP_URL.") from None
    if not isinstance(answer, dict):
        raise PermanentFailure("The ERP system did not answer with a JSON object. Check ERP_URL.")
    return cast("dict[str, Any]", answer)


def _refusal(status: int, text: str, headers: Message) -> StepFailure:
    """Return the failure that an HTTP status means."""
    told = f"The ERP system answered {status}: {' '.join(text.split()) or 'no reason given'}"
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


def _text(answer: Mapping[str, Any], name: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str | int) or value == "":
        raise PermanentFailure(f"The ERP system's answer has no `{name}`. Check ERP_URL and the system's version.")
    return str(value)
