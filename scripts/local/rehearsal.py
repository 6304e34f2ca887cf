"""A stand-in for the Anthropic Messages API that answers from scripts: no key, no cost, the same every time.

`python -m scripts.local.rehearsal [--port P] [--scripts FOLDER]` prints its URL and serves on 127.0.0.1.
Point an SDK at it with `ANTHROPIC_BASE_URL`; any key will do.

- `POST /v1/messages` (also streaming, tools, structured output) and `POST /v1/messages/count_tokens`
- `POST /_rehearsal/faults`: `{"next": [{"status": 429, "retry_after": 2}, {"delay": 30}, {"hang_up": true}],
  "match": "text"}`; the fields of a fault are those of `scripts.local.web.Fault`
- `GET /_rehearsal/requests`: counts and the last requests · `GET /_rehearsal/health`

A script (`workflows/fixtures/rehearsal/NAME.yaml`) holds rules; what no rule answers is made from the schema asked for.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts.local import rehearsal_script
from scripts.local.schemas import MISSING, fit
from scripts.local.web import Answer, Request, Service

SCRIPTS = Path(__file__).resolve().parents[2] / "workflows" / "fixtures" / "rehearsal"
_CHARACTERS = 4
"""Characters a token, as a rule of thumb."""
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
Body = Mapping[str, Any]
Block = dict[str, Any]


class Rehearsal(Service):
    """The HTTP interface."""

    name = "rehearsal"

    def __init__(self, port: int = 0, scripts: Path = SCRIPTS) -> None:
        super().__init__(port)
        self._rules = rehearsal_script.load(scripts)

    def refusal(self, status: int, message: str) -> Answer:
        """An error as the API words it."""
        kind = _ERRORS.get(status, "api_error")
        return Answer(status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_local"})

    def answer(self, request: Request) -> Answer:
        """Route a request."""
        if not (request.headers.get("x-api-key") or request.headers.get("authorization")):
            return self.refusal(401, "x-api-key header is required")
        if request.method != "POST":
            return self.refusal(404, f"Not found: {request.method} {request.path}")
        if request.path == "/v1/messages/count_tokens":
            return Answer(200, {"input_tokens": input_tokens(request.json())})
        if request.path == "/v1/messages":
            return self._message(request.json())
        return self.refusal(404, f"Not found: {request.path}")

    def _message(self, body: Body) -> Answer:
        missing = [name for name in ("model", "max_tokens", "messages") if name not in body]
        if missing:
            return self.refusal(400, f"{missing[0]}: Field required")
        message = reply(body, self._rules)
        if body.get("stream"):
            return Answer(200, b"".join(events(message)), content_type="text/event-stream")
        return Answer(200, message, {"request-id": message["id"].replace("msg", "req")})


def reply(body: Body, rules: tuple[rehearsal_script.Rule, ...]) -> dict[str, Any]:
    """The message that answers `body`: equal requests get equal answers."""
    tool = _forced_tool(body)
    schema: Mapping[str, Any] | None = tool["input_schema"] if tool else _output_schema(body)
    asked = _asked(body, schema or {})
    rule = rehearsal_script.choose(rules, asked)
    found: Any = MISSING if rule is None else rehearsal_script.value(rule, asked.text)
    block, reason = _block(rule or {}, found, schema, tool, body)
    identity = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:24]
    block, reason, output_tokens = _limited(block, reason, int(body["max_tokens"]))
    if block["type"] == "tool_use":
        block["id"] = f"toolu_{identity}"
    return {
        "id": f"msg_{identity}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [block],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": input_tokens(body),
            "output_tokens": output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def _block(
    rule: Mapping[str, Any], found: Any, schema: Mapping[str, Any] | None, tool: Block | None, body: Body
) -> tuple[Block, str]:
    """The content block and the stop reason."""
    call: Mapping[str, Any] | None = rule.get("call")
    if call is not None:
        offered = next(t for t in body["tools"] if t["name"] == call["tool"])
        read: dict[str, Any] = {} if found is MISSING else found
        given: dict[str, Any] = {**call.get("input", {}), **read}
        return _tool_use(offered, given), "tool_use"
    if tool is not None:
        return _tool_use(tool, found), "tool_use"
    if schema is not None:
        return _text(json.dumps(fit(found, schema), ensure_ascii=False)), "end_turn"
    return _text(str(rule.get("text", "This is a rehearsed answer."))), "end_turn"


def _text(text: str) -> Block:
    return {"type": "text", "text": text, "citations": None}


def _tool_use(tool: Mapping[str, Any], given: Any) -> Block:
    return {"type": "tool_use", "id": "", "name": tool["name"], "input": fit(given, tool["input_schema"])}


def _limited(block: Block, reason: str, limit: int) -> tuple[Block, str, int]:
    """Cut a text that is longer than `limit` tokens, as the API does."""
    used = _tokens(block.get("text") or json.dumps(block.get("input")))
    if used <= limit or block["type"] != "text":
        return block, reason, used
    return {**block, "text": block["text"][: limit * _CHARACTERS]}, "max_tokens", limit


def _forced_tool(body: Body) -> Block | None:
    """The tool that the request leaves no way around."""
    choice: Mapping[str, Any] = body.get("tool_choice") or {}
    tools: list[Block] = body.get("tools") or []
    if choice.get("type") == "tool":
        return next((t for t in tools if t["name"] == choice["name"]), None)
    return tools[0] if choice.get("type") == "any" and tools else None


def _output_schema(body: Body) -> Mapping[str, Any] | None:
    config: Mapping[str, Any] = body.get("output_config") or {}
    form: Mapping[str, Any] = config.get("format") or body.get("output_format") or {}
    return form.get("schema") if form.get("type") == "json_schema" else None


def _asked(body: Body, schema: Mapping[str, Any]) -> rehearsal_script.Asked:
    blocks = [block for message in body["messages"] for block in _blocks(message["content"])]
    tools: list[Block] = body.get("tools") or []
    return rehearsal_script.Asked(
        text="\n".join(str(block["text"]) for block in blocks if block.get("type") == "text"),
        properties=frozenset(schema.get("properties", {})),
        tools=frozenset(str(tool["name"]) for tool in tools),
        results=sum(block.get("type") == "tool_result" for block in blocks),
    )


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _tokens(text: str) -> int:
    return max(1, -(-len(text) // _CHARACTERS))


def input_tokens(body: Body) -> int:
    """Tokens of everything that a model would read."""
    read = [body.get(name) for name in ("system", "messages", "tools", "output_config")]
    return sum(_tokens(json.dumps(part)) for part in read if part)


def events(message: Mapping[str, Any]) -> Iterator[bytes]:
    """The server-sent events that carry `message`."""
    usage = message["usage"]
    start: Block = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield _event("message_start", message=start)
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)
    yield _event(
        "message_delta",
        delta={"stop_reason": message["stop_reason"], "stop_sequence": None},
        usage={"output_tokens": usage["output_tokens"]},
    )
    yield _event("message_stop")


def _block_events(index: int, block: Block) -> Iterator[bytes]:
    is_text = block["type"] == "text"
    text = block["text"] if is_text else json.dumps(block["input"])
    yield _event(
        "content_block_start", index=index, content_block={**block, **({"text": ""} if is_text else {"input": {}})}
    )
    for piece in _pieces(text, 20):
        delta = (
            {"type": "text_delta", "text": piece} if is_text else {"type": "input_json_delta", "partial_json": piece}
        )
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(prog="scripts/rehearsal", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0 = any free port")
    parser.add_argument("--scripts", type=Path, default=SCRIPTS, help="folder of *.yaml")
    args = parser.parse_args()
    server = Rehearsal(args.port, args.scripts)
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
