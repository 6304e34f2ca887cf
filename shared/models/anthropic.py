"""Anthropic's models through the official SDK, with its own retries off: the cascade is the only retry layer."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from shared.clock import retry_after
from shared.errors import InvalidOutput, PermanentFailure, RateLimited, StepFailure, StepTimeout, TransientFailure
from shared.models.prices import price_of
from shared.ports import ModelReply, ModelRequest, Models, Proposal, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from shared.ports import Exchange

_OVERHEAD_TOKENS = 400
"""Tokens a request can cost besides its text: the provider's own framing, and the instructions for a JSON reply."""
_TOOL_TOKENS = 700
"""What the provider's own instructions about tools cost besides. Source: Messages API, "Tool use", pricing."""
_CONNECT_TIMEOUT = 5.0
_SERVER_ERROR, _OVERLOADED = 500, 529
_SPEND_LIMIT = "enforced_spend_limit_reached"


class AnthropicModels(Models):
    """``key`` fetches the API key when the first request needs it; ``base_url`` empty = the provider's own."""

    def __init__(self, key: Callable[[], str], base_url: str = "") -> None:
        self._key = key
        self._base_url = base_url

    @cached_property
    def _client(self) -> Any:
        import anthropic  # noqa: PLC0415 - one second of imports, only where a model is called

        return anthropic.Anthropic(api_key=self._key(), base_url=self._base_url or None, max_retries=0)

    def complete(self, request: ModelRequest) -> ModelReply:
        """Send one request, without retries. Raises StepFailure subclasses; refused requests used nothing."""
        reply = self._send(lambda: self._client.messages.create(**_body(request), timeout=self._timeout(request)))
        used = reply.usage
        tokens_in = used.input_tokens + (used.cache_creation_input_tokens or 0) + (used.cache_read_input_tokens or 0)
        usage = price_of(request.model).usage(tokens_in, used.output_tokens)
        text = "".join(block.text for block in reply.content if block.type == "text")
        if reply.stop_reason == "refusal":
            raise PermanentFailure("The model refused to answer. Change the prompt or the model.", usage=usage)
        calls = tuple(Proposal(block.name, block.input) for block in reply.content if block.type == "tool_use")
        return ModelReply(text, usage, reply.stop_reason or "", calls)

    def ceiling(self, request: ModelRequest, *, exact: bool = False) -> Usage:
        """Return the most this request can use: a token is at least one byte, unless the provider counts."""
        prompt = self._count(request) if exact else _bound(request)
        return price_of(request.model).usage(prompt, request.max_tokens)

    def _count(self, request: ModelRequest) -> int:
        body = {name: value for name, value in _body(request).items() if name not in {"max_tokens", "temperature"}}
        counted = self._send(lambda: self._client.messages.count_tokens(**body, timeout=self._timeout(request)))
        return counted.input_tokens

    def _timeout(self, request: ModelRequest) -> Any:
        import httpx2  # noqa: PLC0415 - comes with the SDK

        return httpx2.Timeout(request.timeout, connect=min(_CONNECT_TIMEOUT, request.timeout))

    def _send(self, call: Callable[[], Any]) -> Any:
        import anthropic  # noqa: PLC0415

        try:
            return call()
        except anthropic.APITimeoutError as error:
            raise StepTimeout("The model did not answer within the step's time-out.") from error
        except anthropic.APIConnectionError as error:
            raise TransientFailure(f"The model could not be reached: {error}") from error
        except anthropic.APIStatusError as error:
            raise failure_of(error.status_code, error.body, error.response.headers.get("retry-after")) from error
        except RecursionError as error:
            raise InvalidOutput("The model's reply is nested too deeply to be read.") from error
        except anthropic.AnthropicError as error:
            raise PermanentFailure(f"The request to the model could not be made: {error}", usage=Usage()) from error


def failure_of(status: int, body: object, wish: str | None) -> StepFailure:
    """Return the failure that an HTTP status means. A refused request used nothing; of a failed one nobody knows."""
    text = json.dumps(body, default=str)[:500]
    if status == 429 and _SPEND_LIMIT not in text:  # noqa: PLR2004
        message = f"The provider limits requests (429): {text}"
        return RateLimited(message, retry_after=retry_after(wish), usage=Usage())
    if status in {408, 409} or status >= _SERVER_ERROR:
        message, used = f"The provider failed ({status}): {text}", Usage() if status == _OVERLOADED else None
        return TransientFailure(message, retry_after=retry_after(wish), usage=used)
    return PermanentFailure(f"The provider refused the request ({status}): {text}", usage=Usage())


def _body(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": messages(request),
    }
    if request.tools:
        body["tools"] = offered(request)
    if request.system:
        body["system"] = request.system
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.schema:
        body["output_config"] = {"format": {"type": "json_schema", "schema": _strict(request.schema)}}
    return body


def offered(request: ModelRequest) -> list[dict[str, Any]]:
    """Return the tools of a request as the API takes them."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
        for tool in request.tools
    ]


def messages(request: ModelRequest) -> list[dict[str, Any]]:
    """Return the prompt and what was said since, as the API takes it."""
    return [{"role": "user", "content": request.prompt}, *_said(request.turns)]


def _said(turns: Sequence[Exchange]) -> Iterator[dict[str, Any]]:
    """Yield what was said since the prompt. Calls are numbered here: a model's own ids could be anything."""
    for number, turn in enumerate(turns, 1):
        ids = [f"call_{number}_{index}" for index, _ in enumerate(turn.calls)]
        said = [_text(turn.text)] if turn.text.strip() or not turn.calls else []
        uses = [
            {"type": "tool_use", "id": one, "name": call.tool, "input": call.arguments}
            for one, call in zip(ids, turn.calls, strict=True)
        ]
        results = [
            {"type": "tool_result", "tool_use_id": one, "content": result.text, "is_error": result.failed}
            for one, result in zip(ids, turn.results, strict=True)
        ]
        yield {"role": "assistant", "content": [*said, *uses]}
        yield {"role": "user", "content": [*results, *([_text(turn.told)] if turn.told or not results else [])]}


def _text(text: str) -> dict[str, str]:
    """Return a text block; the API takes no empty one."""
    return {"type": "text", "text": text.strip() or "(nothing)"}


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a schema that providers can force a reply into; the rest is checked on the reply."""
    import anthropic  # noqa: PLC0415

    return cast("Any", anthropic).transform_schema(dict(schema))


def _bound(request: ModelRequest) -> int:
    """Return the most tokens that a request's input can be: one for every byte of it, and what comes with it."""
    schema = json.dumps(request.schema) if request.schema else ""
    bound = len(request.system.encode()) + len(request.prompt.encode()) + len(schema.encode()) + _OVERHEAD_TOKENS
    if not request.tools:
        return bound
    return bound + _TOOL_TOKENS + len(json.dumps([offered(request), messages(request)]).encode())
