"""How much a person adds to a run's limits: as options of the command line, and as typed at a question."""

from typing import Any

EXAMPLE = "usd=0.50 (or tokens=, steps=, active_time=10m)"
_COUNTED = frozenset({"tokens", "steps"})


def milliseconds(text: str) -> int:
    """Return a duration such as 10m in milliseconds. Raises ValueError."""
    from shared.definition.units import seconds  # noqa: PLC0415 - rarely needed

    try:
        return int(seconds(text) * 1000)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


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
