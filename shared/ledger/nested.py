"""What records are made of besides plain fields: amounts, failures, ledger entries."""

from __future__ import annotations

from shared.frozen import frozen


@frozen
class Amount:
    """What an attempt holds or has spent."""

    usd: int = 0
    tokens: int = 0
    steps: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Add dimension by dimension."""
        return Amount(self.usd + other.usd, self.tokens + other.tokens, self.steps + other.steps)

    def __sub__(self, other: Amount) -> Amount:
        """Subtract dimension by dimension."""
        return Amount(self.usd - other.usd, self.tokens - other.tokens, self.steps - other.steps)


NOTHING = Amount()


@frozen
class Failure:
    """Why an attempt failed. ``retry_after`` in milliseconds, as the far side asked for it.

    ``uncertain`` = its call may have had its effect all the same. ``pause`` is why it pauses its step in any case.
    ``level`` and ``dimension`` say which limit refused, ``wanted`` (nano-USD, tokens, steps, ms) what was asked of it.
    ``held`` = a circuit breaker kept it from its call. ``final`` = it fails what its step belongs to in any case.
    """

    error_class: str
    message: str
    retry_after: int | None = None
    uncertain: bool = False
    pause: str | None = None
    level: str | None = None
    dimension: str | None = None
    wanted: int = 0
    held: bool = False
    final: bool = False


@frozen
class Call:
    """The ledger entry of a step's effect: recorded before the call, so that an interrupted one is known.

    ``dispatch`` rises when a person says that it did not happen, and when a later epoch makes it anew. ``digest`` is
    that of the canonical arguments.
    """

    tool: str
    risk: str
    dispatch: int
    digest: str
    key: str
    at: int
