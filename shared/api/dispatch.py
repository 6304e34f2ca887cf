"""From a request to its answer: find the route, check token and role, call the endpoint, turn errors to problems."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from shared.api import problems
from shared.api.host import ApiHost, Call
from shared.api.routes import ROUTES, Route
from shared.api.web import head_of, parse_event
from shared.errors import InvalidRequest, NotFound, RequestRefused, TransientFailure
from shared.tenants.tokens import Principal, authenticate, require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.api.web import Request, Response

LOG = logging.getLogger("signalbox")
"""Where errors that nobody foresaw are written, with the correlation id that the caller got."""

_LONGEST_PATH = 1000
_NOBODY = Principal(tenant="", name="", email="", roles=frozenset())
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "strict-transport-security": "max-age=63072000; includeSubDomains",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


def respond(make_host: Callable[[], ApiHost], event: Mapping[str, Any]) -> Response:
    """Answer an HTTP API event. Never raises, not even when the host cannot be made."""
    request = head_of(event)
    return finished(request, _guarded(request, lambda: _answer(make_host, parse_event(event))))


def dispatch(host: ApiHost, request: Request) -> Response:
    """Answer a request. Never raises."""
    return finished(request, _guarded(request, lambda: _answer(lambda: host, request)))


def _guarded(request: Request, answer: Callable[[], Response]) -> Response:
    """Return the answer, or the problem document of what went wrong; nobody's stack trace leaves the house."""
    try:
        return answer()
    except RequestRefused as refused:
        return problems.refusal(refused, request)
    except TransientFailure:
        LOG.warning("busy", exc_info=True, extra={"correlation_id": request.id})
        return problems.refusal(problems.Unavailable("Too much at once. Send the same request again."), request)
    except Exception:  # the outermost boundary: callers get a problem document, whatever happened
        LOG.exception("unexpected error", extra={"correlation_id": request.id, "url": request.path[:200]})
        return problems.unexpected(request)


def finished(request: Request, response: Response) -> Response:
    """Return the response as it leaves: with the headers that all have, and without body for HEAD."""
    headers = _HEADERS | ({"x-request-id": request.id} if request.id else {})
    complete = response.with_headers(headers)
    return complete.without_body() if request.method == "HEAD" else complete


def _answer(make_host: Callable[[], ApiHost], request: Request) -> Response:
    route, names = find(request.method, request.path)
    host = make_host()
    principal = _NOBODY
    if route.role is not None:
        principal = authenticate(request.headers.get("authorization"), host.tokens, host.clock.now())
        require(principal, route.role)
    return route.endpoint(host, Call(request, principal, names))


def find(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Return the route and the names in its path; HEAD takes GET's. Raises NotFound, WrongMethod or InvalidRequest."""
    if len(path) > _LONGEST_PATH:
        raise InvalidRequest(f"The path is longer than {_LONGEST_PATH} characters.", code="invalid_path")
    segments = path.strip("/").split("/")
    found = {route.method: (route, names) for route in ROUTES if (names := route.match(segments)) is not None}
    if not found:
        raise NotFound("There is nothing at this path. The API is described at /v1/openapi.json.", code="unknown_path")
    wanted = "GET" if method == "HEAD" else method
    if wanted not in found:
        raise problems.WrongMethod(method, sorted(found | ({"HEAD": None} if "GET" in found else {})))
    return found[wanted]
