"""How many calls this process makes at a time, whichever runs they belong to."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.inprocess.live import Live, Walk


class Seats:
    """``count`` calls at a time (0 = any number); who comes later waits, first come, first served.

    Waiting for a seat comes before everything else that a call does: its time-out has not begun, nothing is open.
    """

    def __init__(self, count: int) -> None:
        self._left = count or 1_000_000
        self._waiting: deque[tuple[Live, Walk]] = deque()
        self._lock = threading.Lock()

    def take(self, live: Live, walk: Walk) -> bool:
        """Take a seat, or wait for one."""
        with self._lock:
            if not self._left:
                self._waiting.append((live, walk))
                return False
            self._left -= 1
            return True

    def free(self) -> None:
        """Give a seat back."""
        with self._lock:
            self._left += 1

    def next(self) -> tuple[Live, Walk] | None:
        """Return who may try again to take a seat, if one is free."""
        with self._lock:
            while self._left and self._waiting:
                live, walk = self._waiting.popleft()
                if not live.closed:
                    return live, walk
        return None
