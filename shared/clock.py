"""The real clock."""

from __future__ import annotations

import random
import time

from shared.ports import Clock

_RANDOM = random.SystemRandom()


class SystemClock(Clock):
    """Wall-clock time, real waiting, real randomness."""

    def now(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def jitter(self, upper: float) -> float:
        """Return a random number between 0 and ``upper``."""
        return _RANDOM.uniform(0.0, upper)
