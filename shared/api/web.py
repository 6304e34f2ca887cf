"""Requests and responses as plain data, and their form in API Gateway's HTTP API events (payload format 2.0)."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shared.errors import InvalidRequest, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BODY = 5 * 1024 * 1024 + 64 * 1024
"""Largest request body in bytes: a run's largest input and its wrapping. Lambda takes 6 MB a request."""


class TooLarge(RequestRefused):
    """The body is larger than what is read."""

    status = 413
    code = "too_large"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. Header names are lower-case; ``id`` names the request in logs."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response."""

    status: int
    body: str = ""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def without_body(self) -> Response:
        """Return what a HEAD request gets."""
        return replace(self, body="")

    def with_headers(self, headers: Mapping[str, str]) -> Response:
        """Return the response with more headers; its own win."""
        return replace(self, headers={**headers, **self.headers})


def json_response(status: int, data: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return ``data`` as JSON."""
    return Response(status, json.dumps(data, ensure_ascii=False, separators=(",", ":")), headers=headers or {})


def parse_event(event: Mapping[str, Any], *, limit: int = MAX_BODY) -> Request:
    """Return the request of an HTTP API event.

    Raises TooLarge when the body has more than ``limit`` bytes, InvalidRequest when it is not what its encoding says.
    """
    request = head_of(event)
    return replace(request, body=_body(event, limit))


def head_of(event: Mapping[str, Any]) -> Request:
    """Return the request without its body: that can always be read."""
    context: Mapping[str, Any] = event.get("requestContext") or {}
    http: Mapping[str, Any] = context.get("http") or {}
    headers: Mapping[str, Any] = event.get("headers") or {}
    query: Mapping[str, Any] = event.get("queryStringParameters") or {}
    return Request(
        method=str(http.get("method", "GET")).upper(),
        path=str(event.get("rawPath") or "/"),
        headers={str(name).lower(): str(value) for name, value in headers.items()},
        query={str(name): str(value) for name, value in query.items()},
        id=str(context.get("requestId") or ""),
    )


def _body(event: Mapping[str, Any], limit: int) -> bytes:
    text = event.get("body") or ""
    encoded = bool(event.get("isBase64Encoded"))
    if len(text) > (limit * 4 // 3 + 4 if encoded else limit):
        raise TooLarge(f"The body is larger than {limit} bytes. Pass large data by reference.")
    try:
        data = base64.b64decode(text, validate=True) if encoded else text.encode()
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise InvalidRequest("The body is neither text nor valid base64.", code="invalid_body") from error
    if len(data) > limit:
        raise TooLarge(f"The body is larger than {limit} bytes. Pass large data by reference.")
    return data


def to_result(response: Response) -> dict[str, Any]:
    """Return the response as API Gateway takes it from a function."""
    headers = {"content-type": response.content_type, **response.headers}
    return {"statusCode": response.status, "headers": headers, "body": response.body, "isBase64Encoded": False}
