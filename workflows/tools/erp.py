"""The ERP system over HTTP: post a document, void it, find out whether it exists.

``ERP_URL`` in the deployment's tool settings is its base address. ``Idempotency-Key`` makes a repeated post harmless.
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.tools.registry import Call, tool
from workflows.tools._office import Document, numbered, request


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

    Raises StepFailure subclasses as ``request`` does.
    """
    body = {
        "vendor": vendor,
        "number": number,
        "due": due,
        "currency": currency,
        "amount": amount,
        "category": category,
    }
    return numbered(request("POST", "/documents", call, body))


@tool
def erp_void(document: str, *, call: Call) -> Voided:
    """Void a document; voiding it again is harmless. Raises StepFailure subclasses as ``request`` does."""
    answer = request("POST", f"/documents/{quote(document, safe='')}/void", call, {})
    return {"document": document, "status": str(answer.get("status", "void"))}


@tool
def erp_find(key: str, *, call: Call) -> Found:
    """Find the document posted under an idempotency key. Raises StepFailure subclasses as ``request`` does."""
    answer = request("GET", f"/documents?key={quote(key, safe='')}", call)
    documents = cast("list[Any]", answer.get("documents") or [])
    first = cast("dict[str, Any]", documents[0]) if documents and isinstance(documents[0], dict) else {}
    return {"count": int(answer.get("count", len(documents))), "document": str(first.get("document", ""))}
