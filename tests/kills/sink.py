"""What is outside, for runs whose processes are killed: files that keep every effect, whoever dies meanwhile.

One line an effect, written at once: it has happened or it has not. A file a run, each under a lock that dies with its
holder.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shared.testing import FakeTools

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.tools.registry import Call

PRICE = 1_000
"""Nano-USD that every call costs."""


class Sink:
    """The far side. ``post`` and ``pay`` know no keys: asked twice, they do it twice. ``note`` does it once a key."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def effects(self, run: str) -> list[dict[str, str]]:
        """Return what was done for a run, in order."""
        file = self._folder / run
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def runs(self) -> list[str]:
        """Return the runs for which something was done."""
        return [file.name for file in self._folder.iterdir()]

    @contextmanager
    def _locked(self, run: str) -> Iterator[int]:
        descriptor = os.open(self._folder / run, os.O_CREAT | os.O_APPEND | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def do(self, tool: str, call: Call, *, keyed: bool = False) -> dict[str, Any]:
        """Have an effect; with ``keyed``, only if none has this key."""
        with self._locked(call.run_id) as descriptor:
            if not keyed or not self._known(call.run_id, call.idempotency_key):
                line = {"tool": tool, "key": call.idempotency_key, "path": call.path}
                os.write(descriptor, json.dumps(line).encode() + b"\n")
        return {"document": call.idempotency_key}

    def find(self, key: str, call: Call) -> dict[str, Any]:
        """Look an effect up by its key."""
        with self._locked(call.run_id):
            return {"count": self._known(call.run_id, key), "document": key}

    def _known(self, run: str, key: str) -> int:
        return sum(line["key"] == key for line in self.effects(run))


class SinkTools(FakeTools):
    """The tools that reach the sink. Each call takes up to ``pause`` seconds before and after its effect."""

    def __init__(self, sink: Sink, pause: float = 0.02) -> None:
        self._sink, self._pause = sink, pause
        done = {name: self._doing(name) for name in ("post", "pay", "note", "void")}
        seen = {"look": lambda *_: {"ok": True}, "find": lambda given, call: sink.find(given["key"], call)}
        super().__init__({**done, **seen})
        self.costs = dict.fromkeys((*done, "look"), PRICE)

    def _doing(self, name: str) -> Any:
        return lambda _, call: self._sink.do(name, call, keyed=name == "note")

    def invoke(self, name: str, arguments: Any, call: Call) -> Any:
        """Call the tool, so slowly that a kill may meet it at any point."""
        time.sleep(random.uniform(0, self._pause))  # noqa: S311 - no secret
        result = super().invoke(name, arguments, call)
        time.sleep(random.uniform(0, self._pause))  # noqa: S311 - likewise
        return result
