"""Envelopes: what a child run may use of its parent's limits, carved out of the parent's head and given back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.budget import rules
from shared.ledger.records import Amount
from shared.manifest import Limits
from shared.ports import Key, Write
from shared.runtime.journal import Change, Journal, Note, Snapshot

if TYPE_CHECKING:
    from shared.budget.rules import Refusal
    from shared.ledger.records import Head, Run, Step
    from shared.runtime.host import Host


def envelope(head: Head, own: Limits, child: Limits, now: int) -> Limits:
    """Return the child's limits: the step's budget, else the child's own, else all that the parent has left."""

    def pick(first: Any, second: Any, left: Any) -> Any:
        return first if first is not None else second if second is not None else left

    left = rules.active_left(head, now)
    return Limits(
        usd=pick(own.usd, child.usd, head.left_usd),
        tokens=pick(own.tokens, child.tokens, head.left_tokens),
        steps=pick(own.steps, child.steps, head.left_steps),
        active_time=pick(own.active_time, child.active_time, None if left is None else left / 1000),
    )


def share(head: Head, parts: int, now: int) -> Limits:
    """Return an equal share of what the parent has left; a part that needs more takes more."""

    def of(left: int | None) -> int | None:
        return None if left is None else max(0, left) // parts

    active = of(rules.active_left(head, now))
    seconds = None if active is None else active / 1000
    return Limits(of(head.left_usd), of(head.left_tokens), of(head.left_steps), seconds)


def take_more(host: Host, journal: Journal, seen: Snapshot, refusal: Refusal) -> bool:
    """Move what a part is short of from its parent's envelope into its own. Returns whether the parent had it.

    ``seen`` is of the part's run. Only parts take more: another run has limits of its own.
    """
    run = seen.run
    if not run.part or not run.parent or refusal.level != "run":
        return False
    parent, path = run.parent.split("|", 1)
    above = Journal(host.store, host.clock, run.tenant, parent)
    raising = _Raising(host, journal, refusal, path)
    while True:
        known = above.read(["RUN", f"STEP#{path}"])
        found, _ = above.transact(known, raising.decide)
        if isinstance(found, bool):
            return found
        if not take_more(host, above, known, found):
            return False


_RAISED, _OVER = True, False
"""The part has enough now; or it is over, and needs no more."""


class _Raising:
    """The one transaction on both heads by which a part's envelope grows."""

    def __init__(self, host: Host, below: Journal, refusal: Refusal, path: str) -> None:
        self._host, self._below, self._refusal, self._path = host, below, refusal, path

    def decide(self, seen: Snapshot) -> Change[bool | Refusal]:
        """Raise by what is missing now; a refusal says what the parent itself is short of."""
        step, child, now = seen.step(self._path), self._below.read(["RUN"]), self._host.clock.now()
        if step is None or step.child != child.run.id or step.settled or seen.head.ended or seen.head.unwinding:
            return Change(_OVER)
        missing = self._refusal.wanted - _left(child.head, self._refusal.dimension, now)
        if missing <= 0:
            return Change(_RAISED)
        available = _left(seen.head, self._refusal.dimension, now)
        if available < missing:
            return Change(replace(self._refusal, wanted=missing, left=available))
        return self._raise(seen.head, step, child, missing)

    def _raise(self, head: Head, step: Step, child: Snapshot, missing: int) -> Change[bool | Refusal]:
        more, seconds = _amount(self._refusal.dimension, missing)
        grown = replace(step, hold=step.hold + more)
        note = Note("child_raised", step.path, None, {"dimension": self._refusal.dimension, "by": missing})
        head_below = rules.give_back(child.head, more, Amount(), int(seconds * 1000))
        writes = (self._write(child.head, head_below), self._write(child.run, _raised(child.run, more, seconds)))
        return Change(_RAISED, (rules.carve(head, more, seconds), grown), (note,), writes)

    def _write(self, known: Head | Run, fresh: Head | Run) -> Write:
        return Write(Key(self._below.pk, fresh.sk), fresh.to_item(), known.rev)


def _left(head: Head, dimension: str, now: int) -> int:
    """Return what is left of a dimension that has a limit (nano-USD, tokens, steps, ms)."""
    found = rules.active_left(head, now) if dimension == "active_time" else getattr(head, f"left_{dimension}")
    return 0 if found is None else int(found)


def _amount(dimension: str, number: int) -> tuple[Amount, float]:
    """Return so much of a dimension as an amount and seconds of active time."""
    if dimension == "active_time":
        return Amount(), number / 1000
    return Amount(**{dimension: number}), 0.0


def _raised(run: Run, more: Amount, seconds: float) -> Run:
    def plus(limit: int | None, by: int) -> int | None:
        return None if limit is None else limit + by

    return replace(
        run,
        limit_usd=plus(run.limit_usd, more.usd),
        limit_tokens=plus(run.limit_tokens, more.tokens),
        limit_steps=plus(run.limit_steps, more.steps),
        limit_active=plus(run.limit_active, int(seconds * 1000)),
    )
