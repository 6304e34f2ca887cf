"""An MCP server on 127.0.0.1, of the newest revision or of one that wants a handshake."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.tools.mcp import LEGACY, MODERN
from tests.unit.raw_server import Got, RawServer, reply

if TYPE_CHECKING:
    from collections.abc import Callable

ANY_ID = "0" * 32
"""Stands in bytes that are an answer where the id of what is answered goes."""
FIND = {
    "name": "find_customer",
    "description": "Finds a customer.",
    "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    "annotations": {"readOnlyHint": False, "destructiveHint": True},
}


@dataclass
class McpServer:
    """``answers`` are the tools' results by name: a result, or a function of the arguments that returns one.

    ``stream`` = answers come as events, and the stream stays open behind them. ``before`` makes bytes from the message
    of a call that its stream sends first.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=lambda: [FIND])
    modern: bool = True
    stream: bool = False
    session: str = "session-1"
    before: Callable[[dict[str, Any]], bytes] | None = None
    calls: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)

    def __post_init__(self):
        self.raw = RawServer(self._answer)

    def __enter__(self):
        self.raw.__enter__()
        return self

    def __exit__(self, *_):
        self.raw.__exit__()

    @property
    def url(self) -> str:
        return f"{self.raw.url}/mcp"

    @property
    def methods(self) -> list[str]:
        return [json.loads(got.body)["method"] for got in self.raw.got]

    def _answer(self, got: Got):
        asked = json.loads(got.body)
        refused = self._refused(asked, got.headers)
        if refused is not None:
            yield refused
        elif "id" not in asked:
            yield reply(b"", status="202 Accepted")
        else:
            yield from self._result(asked, got.headers)

    def _refused(self, asked: dict[str, Any], headers: dict[str, str]) -> bytes | None:
        method = asked["method"]
        if self.modern:
            meta = asked.get("params", {}).get("_meta", {})
            fits = headers.get("mcp-protocol-version") == meta.get("io.modelcontextprotocol/protocolVersion") == MODERN
            if not fits or headers.get("mcp-method") != method:
                return _error(asked, -32022, "400 Bad Request", data={"supported": [MODERN]})
            if method == "tools/call" and headers.get("mcp-name") != asked["params"]["name"]:
                return _error(asked, -32020, "400 Bad Request")
        elif method != "initialize" and headers.get("mcp-session-id") != self.session:
            status = "404 Not Found" if "mcp-session-id" in headers else "400 Bad Request"
            return _error(asked, -32600, status)
        return None

    def _result(self, asked: dict[str, Any], headers: dict[str, str]):
        method, params = asked["method"], asked.get("params", {})
        more: dict[str, str] = {}
        if method == "server/discover":
            result: Any = {"supportedVersions": [MODERN], "capabilities": {}, "resultType": "complete"}
        elif method == "initialize":
            result, more = {"protocolVersion": LEGACY, "capabilities": {}}, {"mcp_session_id": self.session}
        elif method == "tools/list":
            first = params.get("cursor") is None
            result = {"tools": self.tools[:2], "nextCursor": "2"} if first else {"tools": self.tools[2:]}
        else:
            self.calls.append((params["name"], params["arguments"], headers))
            answer: Callable[..., Any] | Any = self.answers[params["name"]]
            result = answer(params["arguments"]) if callable(answer) else answer
        if isinstance(result, bytes):
            yield result.replace(ANY_ID.encode(), str(asked["id"]).encode())
            return
        message = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        if not self.stream:
            yield reply(message, **more)
            return
        note = b'data: {"jsonrpc": "2.0", "method": "notifications/progress"}\r\n\r\n'
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        yield "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in more.items()).encode() + b"\r\n"
        if self.before and method == "tools/call":
            yield self.before(asked)
        yield b": hello\r\n\r\n" + note + b"event: message\ndata: " + message + b"\n\n"
        yield 30.0


def _error(asked: dict[str, Any], code: int, status: str, **more: Any) -> bytes:
    error = {"code": code, "message": "no", **more}
    return reply(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "error": error}).encode(), status=status)


def text(*said: str, **more: Any) -> dict[str, Any]:
    """Return a tool's result that is text."""
    return {"content": [{"type": "text", "text": one} for one in said], **more}
