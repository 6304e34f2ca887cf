"""A client of the Model Context Protocol over streamable HTTP: lists tools and calls them, nothing else.

Two kinds of servers are spoken to: those of revision 2026-07-28, for which every request stands alone, and older ones,
which want a handshake first. It is written here, and not taken from the official package, because everything that
leaves must pass the guard, one deadline and the size limits; that package brings an asynchronous client without these,
and a web server.

Whatever a server says is hostile. Here only answers are bounded and read as JSON: what an agent's model reads of them
is cut and checked in ``mcp_tools.py``.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from shared.errors import PermanentFailure, StepFailure, TransientFailure, UnclearAnswer
from shared.redaction import cut
from shared.tools import client

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping

    from shared.tools.client import Net, Reply

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
_LEGACY = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", LEGACY})
_CLIENT = {"name": "signalbox", "version": "1"}
_META = "io.modelcontextprotocol/"
_NAMED = {"tools/call": "name"}
_REFUSED = frozenset({-32700, -32600, -32601, -32602, -32020, -32021, -32022})
"""Errors that say that nothing was done: not understood, or refused by the protocol. Sources: JSON-RPC 2.0, 5.1; MCP
2026-07-28, which adds HeaderMismatch, MissingRequiredClientCapability and UnsupportedProtocolVersion. Others between
-32099 and -32000 mean what the server likes."""
_INTERNAL = -32603
_UNKNOWN_SESSION = 404
_PAGES = 20
"""Pages of a server's list that are read."""
LARGEST_LIST = 2 * 1024 * 1024
"""Bytes of all pages of a server's list."""

Json = dict[str, Any]


class Server(NamedTuple):
    """One server, as the deployment names it. ``token`` is its bearer token, if it has one."""

    name: str
    url: str
    token: str = ""


class Dialect(NamedTuple):
    """How a server wants to be spoken to: the revision, and the session that it has opened."""

    version: str
    session: str = ""


class Errand(NamedTuple):
    """One request to a server: what is sent, and by when (monotonic clock) its answer must be there.

    ``key`` is the idempotency key of a call, empty for what changes nothing; ``largest`` = bytes of the answer.
    """

    method: str
    params: Json
    deadline: float
    key: str = ""
    largest: int = client.LARGEST_ANSWER


@contextmanager
def before_the_call() -> Generator[None]:
    """What fails in here leaves no doubt: the call has not begun, and nothing else changes anything."""
    try:
        yield
    except StepFailure as failure:
        failure.uncertain = False
        raise


class Mcp:
    """Speaks with one server; how it wants to be spoken to is found out once."""

    def __init__(self, net: Net, server: Server, dialect: Dialect | None = None) -> None:
        self._net, self._server = net, server
        self._read = 0
        self.dialect = dialect

    def call(self, tool: str, arguments: Mapping[str, Any], deadline: float, key: str) -> Any:
        """Call a tool and return its structured content, else its text. Raises StepFailure subclasses."""
        params = {"name": tool, "arguments": dict(arguments), "_meta": {"io.signalbox/idempotency-key": key}}
        return _content(self._server.name, tool, self._request(Errand("tools/call", params, deadline, key)))

    def tools(self, wanted: Collection[str], deadline: float) -> dict[str, Json]:
        """Return those of the wanted tools that the server lists, by name. Raises StepFailure subclasses."""
        found: dict[str, Json] = {}
        cursor: Any = None
        for _ in range(_PAGES):
            params = {"cursor": cursor} if cursor else {}
            with before_the_call():
                answer = self._request(Errand("tools/list", params, deadline, largest=LARGEST_LIST - self._read))
            listed = ((one.get("name"), one) for one in _items(answer.get("tools")))
            found = {name: one for name, one in listed if isinstance(name, str) and name in wanted} | found
            cursor = answer.get("nextCursor")
            if len(found) == len(wanted) or not isinstance(cursor, str) or not cursor:
                return found
        raise PermanentFailure(f"The MCP server {self._server.name} lists its tools on more than {_PAGES} pages.")

    def _request(self, errand: Errand) -> Json:
        if self.dialect is None:
            self.dialect = self._negotiated(errand.deadline)
        known = bool(self.dialect.session)
        reply, answer = self._post(errand, self.dialect)
        if reply.status == _UNKNOWN_SESSION and known:  # the server has forgotten the session: it has done nothing
            self.dialect = self._negotiated(errand.deadline)
            reply, answer = self._post(errand, self.dialect)
        return self._result(errand, reply, answer)

    def _negotiated(self, deadline: float) -> Dialect:
        """Ask which revision the server speaks."""
        with before_the_call():
            _, answer = self._post(Errand("server/discover", {}, deadline), Dialect(MODERN))
            versions = _object(_object(answer).get("result")).get("supportedVersions")
            if isinstance(versions, list) and MODERN in versions:
                return Dialect(MODERN)
            return self._shaken_hands(deadline)

    def _shaken_hands(self, deadline: float) -> Dialect:
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": _CLIENT}
        hello = Errand("initialize", params, deadline)
        reply, answer = self._post(hello, Dialect(""))
        version = self._result(hello, reply, answer).get("protocolVersion")
        if version not in _LEGACY:
            told = f"The MCP server {self._server.name} speaks revision {cut(str(version), 40)!r}"
            raise PermanentFailure(f"{told}; known are {MODERN} and {', '.join(sorted(_LEGACY))}.")
        found = Dialect(str(version), reply.headers.get("mcp-session-id", ""))
        self._post(Errand("notifications/initialized", {}, deadline), found)
        return found

    def _post(self, errand: Errand, dialect: Dialect) -> tuple[Reply, Json | None]:
        """Send one message; return the answer to it, None where there is none."""
        number = "" if errand.method.startswith("notifications/") else uuid.uuid4().hex
        body, headers = self._written(errand, dialect, number)
        events = _Events(number)
        ask = client.Ask("POST", self._server.url, headers, body, errand.deadline, _READ, events.enough)
        reply = client.send(self._net, ask._replace(largest=errand.largest))
        self._read += len(reply.body)
        return reply, events.last() if _is_stream(reply) else _answer(reply.body, number)

    def _written(self, errand: Errand, dialect: Dialect, number: str) -> tuple[bytes, dict[str, str]]:
        """Return body and headers of a message. Raises PermanentFailure for what is no text or no JSON."""
        try:
            message = json.dumps(_message(errand, dialect, number), ensure_ascii=False, allow_nan=False)
            return message.encode(), self._headers(errand, dialect)
        except (ValueError, TypeError, RecursionError) as error:
            told = f"What {self._server.name} would be asked by {errand.method} cannot be written"
            raise PermanentFailure(f"{told}: {error}") from None

    def _headers(self, errand: Errand, dialect: Dialect) -> dict[str, str]:
        found = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        given = {
            "authorization": f"Bearer {self._server.token}" if self._server.token else "",
            "mcp-protocol-version": dialect.version,
            "mcp-session-id": dialect.session,
            "idempotency-key": errand.key,
        }
        if dialect.version == MODERN:
            name = errand.params.get(_NAMED.get(errand.method, ""), "")
            given |= {"mcp-method": errand.method, "mcp-name": _header(name)}
        return {**found, **{name: value for name, value in given.items() if value}}

    def _result(self, errand: Errand, reply: Reply, answer: Json | None) -> Json:
        """Return the result in an answer, or raise what it says instead."""
        error = _object(answer).get("error")
        if isinstance(error, dict):
            raise _failure(self._server.name, errand.method, cast("Json", error))
        if not 200 <= reply.status < 300:  # noqa: PLR2004 - success, RFC 9110
            raise client.failure_of("POST", self._server.name, reply)
        result = _object(answer).get("result")
        if not isinstance(result, dict):
            raise UnclearAnswer(f"The MCP server {self._server.name} gave {errand.method} no answer that can be read.")
        return cast("Json", result)


_READ = frozenset({200, 202, 400, 404, 405})
"""Statuses whose body may hold what the protocol says."""


class _Events:
    """The events of a stream as they come, each read once: until one is the answer to the request with this id."""

    def __init__(self, number: str) -> None:
        self._number = number
        self._rest = bytearray()
        self._found: Json | None = None

    def enough(self, piece: Reply) -> bool:
        """Take a piece of a stream; tell whether it has brought the answer: a server may leave it open behind it."""
        if not _is_stream(piece):
            return False
        seen = max(0, len(self._rest) - 3)
        self._rest += piece.body
        while self._found is None and (end := _BLANK.search(self._rest, seen)):
            self._found = self._read(bytes(self._rest[: end.start()]))
            del self._rest[: end.end()]
            seen = 0
        return self._found is not None

    def last(self) -> Json | None:
        """Return the answer when no more comes: nothing need stand behind the last event."""
        return self._found or self._read(bytes(self._rest))

    def _read(self, event: bytes) -> Json | None:
        lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
        return _answer(b"\n".join(lines), self._number)


_LINE = re.compile(rb"\r\n|\n|\r")
_BLANK = re.compile(rb"\r?\n\r?\n|\r\r")


def _is_stream(reply: Reply) -> bool:
    return "text/event-stream" in reply.headers.get("content-type", "")


def _answer(text: bytes, number: str) -> Json | None:
    """Return a message if it is the answer to the request with this id: any other is the answer to somebody else's."""
    found = _parsed(text)
    return found if found and number and found.get("id") == number and "method" not in found else None


def _message(errand: Errand, dialect: Dialect, number: str) -> Json:
    params = dict(errand.params)
    if dialect.version == MODERN:
        about = {"protocolVersion": MODERN, "clientInfo": _CLIENT, "clientCapabilities": {}}
        params["_meta"] = {**params.get("_meta", {}), **{f"{_META}{name}": value for name, value in about.items()}}
    identified = {"id": number} if number else {}
    return {"jsonrpc": "2.0", **identified, "method": errand.method, **({"params": params} if params else {})}


def _header(text: str) -> str:
    """Return a text as a header's value: encoded where it could not stand as it is."""
    if re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?", text) and not text.startswith("=?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?=" if text else ""


def _parsed(text: bytes) -> Json | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Json", found) if isinstance(found, dict) else None


def _failure(server: str, method: str, error: Json) -> StepFailure:
    code, told = error.get("code"), cut(str(error.get("message", "")), 500)
    text = f"The MCP server {server} refused {method} ({code}): {told or 'no reason given'}"
    if code in _REFUSED:
        return PermanentFailure(text)
    return TransientFailure(text) if code == _INTERNAL else UnclearAnswer(text)


def _content(server: str, tool: str, result: Json) -> Any:
    """Return what a tool has returned. Raises UnclearAnswer when it reports an error: it may have done half of it."""
    parts = list(_items(result.get("content")))
    texts = [str(part.get("text", "")) for part in parts if part.get("type") == "text"]
    if result.get("isError"):
        told = cut(" ".join(texts), 1_000) or "no reason given"
        raise UnclearAnswer(f"{tool} of the MCP server {server} reports an error: {told}")
    if result.get("resultType", "complete") != "complete":
        raise UnclearAnswer(f"{tool} of the MCP server {server} asks for more input, which nobody could give here.")
    if result.get("structuredContent") is not None:
        return result["structuredContent"]
    return "\n".join(texts) if len(texts) == len(parts) else {"content": parts}


def _items(value: Any) -> Iterator[Json]:
    for one in cast("list[Any]", value) if isinstance(value, list) else []:
        if isinstance(one, dict):
            yield cast("Json", one)


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
