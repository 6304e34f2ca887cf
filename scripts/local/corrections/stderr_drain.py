"""A handler that logs nothing costs 50 ms: the pool waits that long for a first line on stderr.

What the handler wrote before it answered is in the pipe already; a late line is collected by the next call.
"""

# ruff: noqa: SLF001 - it corrects private parts of the emulator

import inspect
from typing import Any

from scripts.local.corrections.upstream import expect, lambda_runtime

NAME = "stderr_drain"
_UPSTREAM = (0.050, 0.005, 0.250)
_FIRST_LINE, _IDLE, _CAP = 0.003, 0.002, 0.250
"""Seconds: to wait for a first line, for a further one, and at most."""


def apply() -> None:
    """Shorten the wait."""
    worker = lambda_runtime().Worker
    drain = worker._drain_stderr_bounded
    defaults = tuple(p.default for p in inspect.signature(drain).parameters.values())[1:]
    expect(NAME, "lambda_runtime.Worker._drain_stderr_bounded", holds=defaults == _UPSTREAM)

    def drained(self: Any, first: float = _FIRST_LINE, idle: float = _IDLE, cap: float = _CAP) -> Any:
        return drain(self, first, idle, cap)

    worker._drain_stderr_bounded = drained
