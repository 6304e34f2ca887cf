"""Timers of the in-process engine: what is due when, for which run and token."""

from __future__ import annotations

import heapq
import itertools
import threading


class Timers:
    """A heap of (milliseconds, run, token). Timers are never withdrawn: a token that nobody waits for is ignored."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str, str]] = []
        self._order = itertools.count()
        self._lock = threading.Lock()

    def add(self, due: int, run: str, token: str) -> bool:
        """Set a timer for ``due`` (ms). Returns whether it is now the next one."""
        with self._lock:
            entry = (due, next(self._order), run, token)
            heapq.heappush(self._heap, entry)
            return self._heap[0] is entry

    def next(self) -> int | None:
        """Return when (ms) the next timer is due."""
        with self._lock:
            return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> list[tuple[str, str]]:
        """Take what is due at ``now`` (ms): runs and tokens."""
        found: list[tuple[str, str]] = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                _, _, run, token = heapq.heappop(self._heap)
                found.append((run, token))
        return found
