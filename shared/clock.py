"""The real clock, and what others say of time."""

from __future__ import annotations

import random
import re
import time
from datetime import UTC
from email.utils import parsedate_to_datetime

from shared.ports import Clock

_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
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


def retry_after(given: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for, given as seconds or as a date; None = it asks nothing.

    Source: RFC 9110, 10.2.3; some providers send fractions.
    """
    text = (given or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
        return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
