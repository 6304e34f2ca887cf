"""``http.request``: any HTTP API, behind the guard."""

from __future__ import annotations

import json as json_
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlencode

from typing_extensions import Doc, TypedDict  # pydantic wants this TypedDict before Python 3.12

from shared.errors import PermanentFailure
from shared.redaction import cut
from shared.tools import client
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.tools.client import Reply
    from shared.tools.means import Means

Method = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
Query = dict[str, str | int | float | bool | list[str]]
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"}
    | {"expect", "accept-encoding", "proxy-authorization", "proxy-connection", "idempotency-key"}
)
"""Headers that the connection or the runtime sets."""
_KEPT_BACK = frozenset(
    {"set-cookie", "set-cookie2", "connection", "keep-alive", "transfer-encoding", "trailer", "upgrade", "alt-svc"}
    | {"proxy-authenticate", "proxy-authorization", "www-authenticate", "authorization", "content-encoding"}
)
"""Headers of an answer that hold credentials, or mean something to the connection alone."""
_MOST_HEADERS = 64


class Response(TypedDict):
    """What came back; ``body`` is JSON where the far side says that it is, else text."""

    status: int
    headers: dict[str, str]
    body: Any


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"http.request": Http(means).request}


class Http:
    """Sends requests by these means. Raises StepFailure subclasses as ``client.send`` does."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def request(  # noqa: PLR0913 - a request has these parts
        self,
        *,
        url: Annotated[str, Doc("Address, with https:// and a host.")],
        method: Annotated[Method, Doc("What is asked; POST, PUT, PATCH and DELETE carry the idempotency key.")] = "GET",
        headers: Annotated[
            dict[str, str] | None, Doc("Headers by name; those of the connection are set by the runtime.")
        ] = None,
        query: Annotated[
            Query | None, Doc("Parameters that are added to the address; a list stands for several of one name.")
        ] = None,
        json: Annotated[Any, Doc("Body, sent as JSON; not together with `body`.")] = None,
        body: Annotated[str | None, Doc("Body, sent as it is; not together with `json`.")] = None,
        expect: Annotated[list[int] | None, Doc("Statuses that are answers; without it, 200 to 299.")] = None,
        call: Call,
    ) -> Response:
        """Send one HTTP request and return status, headers and body of the answer."""
        if json is not None and body is not None:
            raise PermanentFailure("http.request takes `json` or `body`, not both.")
        try:
            ask = client.Ask(
                method=method,
                url=_with_query(url, query or {}),
                headers=_headers(method, headers or {}, call, is_json=json is not None),
                body=body.encode() if body is not None else None if json is None else encoded(json),
                deadline=client.deadline_of(call.timeout),
                expect=frozenset(expect or ()),
            )
        except (
            ValueError,
            TypeError,
            AttributeError,
        ) as error:  # an argument that an expression made into another type
            raise PermanentFailure(f"The request cannot be written: {error}") from None
        reply = client.send(self._means.net(call), ask)
        return {"status": reply.status, "headers": _shown(reply.headers), "body": read_body(reply)}


def encoded(value: Any) -> bytes:
    """Return JSON as bytes. Raises PermanentFailure for what is none."""
    try:
        return json_.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise PermanentFailure(f"The request's JSON cannot be written: {error}") from None


def _with_query(url: str, query: Query) -> str:
    address, _, _ = url.partition("#")
    if not query:
        return url
    plain = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    return f"{address}{'&' if '?' in address else '?'}{urlencode(plain, doseq=True)}"


def _headers(method: str, given: Mapping[str, str], call: Call, *, is_json: bool) -> dict[str, str]:
    """Return the request's headers: the author's, checked, and ours."""
    found = {"accept": "application/json, */*;q=0.5", "user-agent": "signalbox"}
    if is_json:
        found["content-type"] = "application/json"
    for name, value in given.items():
        if not _TOKEN.fullmatch(name):
            raise PermanentFailure(f"The header {cut(name, 60)!r} has a name that no header can have.")
        if name.lower() in _OURS:
            raise PermanentFailure(f"The header {name} is set by the runtime. Leave it out.")
        found[name.lower()] = value
    client.check_headers(found)
    return found if method in client.SAFE else found | {"idempotency-key": call.idempotency_key}


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    kept = [(name, value) for name, value in headers.items() if name not in _KEPT_BACK]
    return dict(kept[:_MOST_HEADERS])


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def read_body(reply: Reply) -> Any:
    """Return the body as JSON where the far side says that it is and it can be read so, else as text."""
    kind, _, parameters = reply.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return json_.loads(reply.body, parse_constant=_refused)
        except (ValueError, RecursionError):
            pass
    charset = re.search(r"charset=\"?([\w-]+)", parameters)
    try:
        return reply.body.decode(charset[1] if charset else "utf-8", errors="replace")
    except LookupError:
        return reply.body.decode(errors="replace")
