"""Answers that say no: RFC 9457 problem documents with a stable ``code``. They never show a stack trace."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from shared.api.web import Request, Response, json_response
from shared.errors import MethodNotAllowed, RequestRefused, Unauthenticated, Unverified

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONTENT_TYPE = "application/problem+json"


class UnsupportedMediaType(RequestRefused):
    """The body's content type is not one that is read."""

    status = 415
    code = "unsupported_media_type"


class Unavailable(RequestRefused):
    """Something that this needs does not answer right now; the same request may be sent again."""

    status = 503
    code = "unavailable"


class Relayed(RequestRefused):
    """A refusal by another function, passed on with its own status."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail, code=code)
        self.relayed = status


class WrongMethod(MethodNotAllowed):
    """The path exists, the method does not; ``allowed`` are those that do."""

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__(f"{method[:20]} is not possible here. Allowed: {self.allowed}.")


def refusal(error: RequestRefused, request: Request) -> Response:
    """Return the problem document of a refused request, with the headers that its status asks for."""
    status = error.relayed if isinstance(error, Relayed) else error.status
    return problem(status, error.problem, error.detail, request, headers=_headers(error, request))


def _headers(error: RequestRefused, request: Request) -> dict[str, str]:
    if isinstance(error, WrongMethod):
        return {"allow": error.allowed}
    if isinstance(error, Unauthenticated):
        invalid = ', error="invalid_token"' if "authorization" in request.headers else ""
        return {"www-authenticate": f'Bearer realm="signalbox"{invalid}'}
    if isinstance(error, Unverified):
        return {"www-authenticate": "Standard-Webhooks"}
    return {"retry-after": "1"} if isinstance(error, Unavailable) else {}


def unexpected(request: Request) -> Response:
    """Return the answer to an error that nobody foresaw: it can be found in the log by its ``correlation_id``."""
    detail = "Something went wrong on our side. It is in the log under this correlation_id; try again, or report it."
    return problem(500, "internal", detail, request, extra={"correlation_id": request.id})


def problem(
    status: int,
    code: str,
    detail: str,
    request: Request,
    *,
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Response:
    """Return a problem document. ``instance`` is the path that was asked for."""
    document = {
        "type": f"urn:signalbox:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        "instance": request.path[:200],
        **(extra or {}),
    }
    plain = json_response(status, document)
    return Response(status, plain.body, CONTENT_TYPE, headers or {})
