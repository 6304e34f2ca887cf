"""Durations and money as workflow files write them."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

NANO = 1_000_000_000
"""nano-USD in one USD."""

_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)")
DURATION_PATTERN = f"^{_DURATION.pattern}$"
"""The same for JSON Schema."""
_FINEST = Decimal(1) / NANO


def seconds(value: Any) -> float:
    """Return the seconds of a duration such as ``500ms``, ``60s``, ``10m``, ``24h`` or ``2d``.

    Raises ValueError for anything else; a number without a unit is refused because it could mean anything.
    """
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a duration with its unit, such as 500ms, 60s, 10m, 24h or 2d")
    amount = Decimal(match[1]) * _SECONDS[match[2]]
    if amount == 0:
        raise ValueError("a duration must be longer than nothing")
    return float(amount)


def spelled(duration: float) -> str:
    """Return seconds as a file would say them, in the largest unit that needs no fraction."""
    for unit in ("d", "h", "m", "s"):
        if duration % float(_SECONDS[unit]) == 0:
            return f"{duration / float(_SECONDS[unit]):g}{unit}"
    return f"{duration * 1000:g}ms"


def usd(value: Any) -> Decimal:
    """Return an amount of USD, exactly as written. Raises ValueError for negative or too fine amounts."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("expected an amount of USD, such as 0.50")  # noqa: TRY004 - pydantic collects ValueErrors
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise ValueError("expected an amount of USD, such as 0.50") from None
    if not amount.is_finite() or amount < 0 or amount % _FINEST != 0:
        raise ValueError("expected an amount of USD from 0 with at most nine decimals")
    return amount


def nano_usd(amount: Decimal) -> int:
    """Return ``amount`` USD in nano-USD (1 USD = 1,000,000,000)."""
    return int(amount * NANO)
