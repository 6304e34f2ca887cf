"""Raised limits: what a person adds to a run has to come from somewhere, or the runs above would spend too much.

A child run takes it from what its parent has left; what the parent lacks is added to the parent's limits in the same
way, up to the topmost run, which draws it from its tenant's budget. All of it is one transaction with the resumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.budget import rules, tenant
from shared.budget.rules import NANO
from shared.errors import Conflict
from shared.ledger.record import replace
from shared.ledger.records import Amount
from shared.runtime.journal import Change, Journal, Note

if TYPE_CHECKING:
    from decimal import Decimal

    from shared.budget.shards import Amounts
    from shared.ledger.records import Head, Run, Step
    from shared.ports import Write
    from shared.runtime.host import Host


@dataclass(frozen=True, slots=True)
class Raise:
    """How much a person adds to the run's limits, and to the step's own; ``active_time`` in milliseconds."""

    usd: Decimal | None = None
    tokens: int = 0
    steps: int = 0
    active_time: int = 0

    @property
    def amounts(self) -> Amounts:
        """What is added, by dimension, in whole units."""
        usd = int((self.usd or 0) * NANO)
        return {"usd": usd, "tokens": self.tokens, "steps": self.steps, "active_time": self.active_time}


def raised(run: Run, head: Head, step: Step, more: Amounts) -> tuple[tuple[Run, ...], Head, Step]:
    """Return the run and its head with ``more`` of every limit that there is, and the step with so much of its own."""
    whole, head = raised_whole(run, head, more)
    return (whole,), head, raised_own(step, more)


def raised_own(step: Step, more: Amounts) -> Step:
    """Return the step with ``more`` of its own limits."""
    added, active = _split(more)
    return replace(step, raised=(step.raised or Amount()) + added, raised_active=step.raised_active + active)


def raised_whole(run: Run, head: Head, more: Amounts) -> tuple[Run, Head]:
    """Return the run and its head with ``more`` of every limit that there is."""
    added, active = _split(more)
    return raised_run(run, added, active), rules.give_back(head, added, Amount(), active)


def raised_run(run: Run, more: Amount, active: int) -> Run:
    """Return the run with ``more`` of every limit that it has; ``active`` in ms."""
    return replace(
        run,
        limit_usd=_plus(run.limit_usd, more.usd),
        limit_tokens=_plus(run.limit_tokens, more.tokens),
        limit_steps=_plus(run.limit_steps, more.steps),
        limit_active=_plus(run.limit_active, active),
    )


def fund(host: Host, run: Run, more: Amounts) -> tuple[Write, ...]:
    """Return the writes, in other partitions, that find ``more`` for a run.

    Raises TenantBudgetExceeded, or Conflict when the run above does not wait for this one any more.
    """
    if not any(more.values()):
        return ()
    if not run.parent:
        return tenant.take_more(host.store, run, more, host.clock.now())
    parent, path = run.parent.split("|", 1)
    above = Journal(host.store, host.clock, run.tenant, parent)
    seen = above.read(["RUN", f"STEP#{path}"])
    step = seen.step(path)
    if step is None or step.child != run.id or step.settled or seen.head.ended:
        what = f"Run {run.id} belongs to {parent}, which does not wait for it any more: there is nothing to raise."
        raise Conflict(what, code="parent_gone")
    missing = _missing(seen.head, more, host.clock.now())
    lacked, active = _split(missing)
    whole = raised_run(seen.run, lacked, active)
    records, note = _carved(rules.give_back(seen.head, lacked, Amount(), active), step, more)
    change = Change(None, (*records, whole), (note,), fund(host, seen.run, missing))
    return above.writes(seen, change)


def _carved(head: Head, step: Step, more: Amounts) -> tuple[tuple[Head, Step], Note]:
    """Carve ``more`` out of a parent's head for the child that ``step`` waits for."""
    added, active = _split(more)
    note = Note("child_raised", step.path, None, {"by": more})
    return (rules.carve(head, added, active), replace(step, hold=step.hold + added)), note


def _missing(head: Head, more: Amounts, now: int) -> Amounts:
    """Return what a parent has too little of; what it does not limit it cannot lack."""
    left = {
        "usd": head.left_usd,
        "tokens": head.left_tokens,
        "steps": head.left_steps,
        "active_time": rules.active_left(head, now),
    }
    known = {name: available for name, available in left.items() if available is not None}
    return {name: max(0, amount - max(0, known[name])) for name, amount in more.items() if name in known}


def _split(more: Amounts) -> tuple[Amount, int]:
    """Return amounts as what heads count in: an amount, and milliseconds of active time."""
    active = more.get("active_time", 0)
    return Amount(more.get("usd", 0), more.get("tokens", 0), more.get("steps", 0)), active


def _plus(limit: int | None, more: int) -> int | None:
    return None if limit is None else limit + more
