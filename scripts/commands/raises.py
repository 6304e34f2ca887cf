"""How much a person adds to a run's limits: as options of the command line, and as typed at a question."""

from collections.abc import Mapping
from decimal import Decimal
from math import ceil
from typing import Any

EXAMPLE = "usd=0.50 (or tokens=, steps=, active_time=10m)"
_STRIDES = {"usd": Decimal("0.50"), "tokens": 10_000, "steps": 10, "active_time": 600_000}
"""What is proposed to be added to a limit that is short, by dimension: this, or as many times this as are needed."""
_COUNTED = frozenset({"tokens", "steps"})


def milliseconds(text: str) -> int:
    """Return a duration such as 10m in milliseconds. Raises ValueError."""
    from shared.definition.units import seconds  # noqa: PLC0415 - rarely needed

    try:
        return int(seconds(text) * 1000)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def proposed(short: Mapping[str, Any]) -> tuple[str, str]:
    """Return the dimension that is short and how much to add to it, as options take it: enough for what it asked."""
    name = str(short["dimension"])
    stride, needed = _STRIDES[name], Decimal(short.get("needed") or 0)
    amount = stride * max(1, ceil(needed / stride))
    return name, f"{amount // 60_000}m" if name == "active_time" else str(amount)


def example(short: Mapping[str, Any] | None) -> str:
    """Return how an amount may be typed, for the limit that is short."""
    return "=".join(proposed(short)) if short else EXAMPLE


def read(text: str) -> dict[str, Any]:
    """Return the amounts of a line such as ``usd=0.50 steps=2``, as the API takes them. Raises ValueError."""
    return dict(_amount(*part.partition("=")[::2]) for part in text.replace(",", " ").split() or [text])


def _amount(name: str, given: str) -> tuple[str, Any]:
    if name == "usd":
        return name, given
    if name == "active_time":
        return name, milliseconds(given)
    if name in _COUNTED and given.isdecimal():
        return name, int(given)
    raise ValueError(f"Give it as {EXAMPLE}, not as {name}{'=' if given else ''}{given}.")
