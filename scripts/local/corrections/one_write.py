"""An answer leaves in two writes, its head and its body, so whoever waits for it is woken twice.

AWS's own endpoints send a short answer in one piece. Here the second write, and the reader's second turn on a laptop's
few cores, cost more than making the answer.
"""

# ruff: noqa: SLF001 - it corrects private parts of the emulator's HTTP server

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from scripts.local.corrections.upstream import expect

NAME = "one_write"
_HEADS = "Response"
"""The event whose bytes wait for what follows them."""


def apply() -> None:
    """Keep a head whose body's length is known until the body comes."""
    protocol: Any = importlib.import_module("hypercorn.protocol.h11")
    kind = protocol.H11Protocol
    expect(NAME, "hypercorn H11Protocol._send_h11_event", holds="RawData" in kind._send_h11_event.__code__.co_names)
    initialise, send_event = kind.__init__, kind._send_h11_event

    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        self.send = _Joining(self.send, protocol.RawData)

    async def sent(self: Any, event: Any) -> None:
        self.send.holds = type(event).__name__ == _HEADS and _has_length(event)
        await send_event(self, event)

    kind.__init__, kind._send_h11_event = initialised, sent


def _has_length(event: Any) -> bool:
    """Tell whether the body is all there already: one that is made bit by bit has no length yet."""
    return any(name == b"content-length" and value != b"0" for name, value in event.headers)


class _Joining:
    """The way to the socket, which keeps a head back until the next event."""

    def __init__(self, send: Callable[[Any], Awaitable[None]], raw: type) -> None:
        self.holds = False
        self._send, self._raw, self._head = send, raw, b""

    async def __call__(self, event: Any) -> None:
        """Pass an event on, with the head that was kept before it."""
        if not isinstance(event, self._raw):
            await self._flush()
            return await self._send(event)
        data = self._head + event.data  # pyright: ignore[reportAttributeAccessIssue] - hypercorn's RawData
        self._head = data if self.holds else b""
        if data and not self.holds:
            await self._send(self._raw(data=data))
        return None

    async def _flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            await self._send(self._raw(data=head))
