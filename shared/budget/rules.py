"""Admission and settlement on the run's head. Pure: every rule takes a head and returns the next one or what is short.

A reservation is taken from ``left`` before dispatch and given back, less what was used, when the attempt closes. So
spent + reserved never exceeds a limit, not for an instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.ledger.record import replace
from shared.ledger.records import Amount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.ledger.records import Head, Step
    from shared.manifest import Limits

NANO = 1_000_000_000
"""Nano-USD in one USD."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a reservation does not fit: the dimension, what was wanted and what is left (nano-USD, tokens, steps, ms)."""

    dimension: str
    wanted: int
    left: int
    level: str = "run"

    def __str__(self) -> str:
        """Say it in a sentence with the dimension's unit."""
        wanted, left = shown(self.dimension, self.wanted), shown(self.dimension, self.left)
        return f"The {self.level}'s {self.dimension} budget is exceeded: {wanted} wanted, {left} left."

    def data(self) -> dict[str, Any]:
        """Return it as the log says it."""
        return {"level": self.level, "dimension": self.dimension, "needed": self.wanted, "left": self.left}


def shown(dimension: str, amount: int) -> str:
    """Return an amount (nano-USD, tokens, steps, ms) with its dimension's unit."""
    if dimension == "usd":
        sign = "-" if amount < 0 else ""
        return f"{sign}USD {abs(amount) // NANO}.{abs(amount) % NANO // 1000:06d}"
    return f"{amount / 1000:g} s" if dimension == "active_time" else str(amount)


def admitted(head: Head, hold: Amount, now: int) -> Head:
    """Take ``hold`` and count the step as open, whether it fits or not: who asks has looked at ``refusals``."""
    deadline = head.active_deadline
    if deadline is None and head.active_left is not None:
        deadline = now + head.active_left
    return _charge(head, hold, open=head.open + 1, active_deadline=deadline)


def reserve(head: Head, hold: Amount) -> Head:
    """Take ``hold`` from what is left, whether it fits or not, and count the step as open."""
    return _charge(head, hold, open=head.open + 1)


def release(head: Head, hold: Amount, used: Amount, now: int) -> Head:
    """Settle an attempt: give ``hold`` back, charge ``used``, and count the step as closed.

    The last close stops the active clock.
    """
    settled = _charge(head, used - hold, open=head.open - 1, last_close=max(head.last_close, now))
    if settled.open or head.active_deadline is None:
        return settled
    return replace(settled, active_left=head.active_deadline - now, active_deadline=None)


def carve(head: Head, hold: Amount, active_time: int) -> Head:
    """Take a child run's envelope out of what is left; ``active_time`` (ms) too. No step is open by that."""
    carved = _charge(head, hold)
    if head.active_deadline is not None:
        return replace(carved, active_deadline=head.active_deadline - active_time)
    return carved if head.active_left is None else replace(carved, active_left=head.active_left - active_time)


def give_back(head: Head, hold: Amount, used: Amount, active_time: int) -> Head:
    """Return to ``left`` what a child run did not use of its envelope; ``active_time`` (ms) is what it left of that."""
    settled = _charge(head, used - hold)
    if head.active_deadline is not None:
        return replace(settled, active_deadline=head.active_deadline + active_time)
    return settled if head.active_left is None else replace(settled, active_left=head.active_left + active_time)


def refusals(head: Head, hold: Amount, timeout: int, now: int) -> Iterator[Refusal]:
    """Yield every dimension in which ``hold`` and ``timeout`` (ms) do not fit what the run has left."""
    yield from lacking(head, hold)
    left = active_left(head, now)
    if left is not None and left < timeout:
        yield Refusal("active_time", timeout, left)


def lacking(head: Head, hold: Amount) -> Iterator[Refusal]:
    """Yield every dimension in which ``hold`` does not fit what the run has left."""
    for dimension, wanted, left in (
        ("usd", hold.usd, head.left_usd),
        ("tokens", hold.tokens, head.left_tokens),
        ("steps", hold.steps, head.left_steps),
    ):
        if left is not None and left < wanted:
            yield Refusal(dimension, wanted, left)


def step_refusals(limits: Limits, step: Step, hold: Amount, timeout: int) -> Iterator[Refusal]:
    """Yield every dimension in which the step's own budget does not allow another attempt besides what it has used.

    ``timeout`` (ms) is the active time that the attempt may take. What a person added belongs to the step's budget.
    """
    spent, more = step.spent, step.raised or Amount()
    active = None if limits.active_time is None else int(limits.active_time * 1000)
    for dimension, limit, used, wanted in (
        ("usd", limits.usd, spent.usd - more.usd, hold.usd),
        ("tokens", limits.tokens, spent.tokens - more.tokens, hold.tokens),
        ("steps", limits.steps, spent.steps - more.steps, hold.steps),
        ("active_time", active, step.active - step.raised_active, timeout),
    ):
        if limit is not None and used + wanted > limit:
            yield Refusal(dimension, wanted, limit - used, "step")


def active_left(head: Head, now: int) -> int | None:
    """Return the active time left (ms): it runs only while a step is open. None = unlimited."""
    return head.active_left if head.active_deadline is None else head.active_deadline - now


def left(head: Head, dimension: str, now: int) -> int | None:
    """Return what is left of a dimension (nano-USD, tokens, steps, ms); None = unlimited."""
    return active_left(head, now) if dimension == "active_time" else getattr(head, f"left_{dimension}")


def _charge(head: Head, amount: Amount, **changes: Any) -> Head:
    return replace(
        head,
        **changes,
        left_usd=_minus(head.left_usd, amount.usd),
        left_tokens=_minus(head.left_tokens, amount.tokens),
        left_steps=_minus(head.left_steps, amount.steps),
    )


def _minus(left: int | None, amount: int) -> int | None:
    return None if left is None else left - amount
