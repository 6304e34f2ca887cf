"""Envelopes: what a child run may use of its parent's limits, carved out of the parent's head and given back."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from shared.budget import rules
from shared.ledger.records import Amount
from shared.manifest import Limits
from shared.ports import Key, Write
from shared.runtime.host import plan_of
from shared.runtime.journal import Change, Journal, Note, Snapshot
from shared.runtime.raising import raised_run
from shared.runtime.scopes import is_apart

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


def within(limits: Limits, own: Limits) -> Limits:
    """Return the smaller limit of each dimension."""

    def least(one: Any, other: Any) -> Any:
        return other if one is None else one if other is None else min(one, other)

    return Limits(*(least(getattr(limits, each.name), getattr(own, each.name)) for each in fields(Limits)))


def find_more(host: Host, journal: Journal, seen: Snapshot, refusal: Refusal) -> bool:
    """Move what a run is short of into its envelope. Returns whether there was something: asking again makes sense.

    A part takes it from the whole, and so does a map or loop with a run of its own, as far as its budget goes. A whole
    takes back what those have not used. Only they share like that: a sub-workflow has limits of its own.
    """
    if refusal.level != "run":
        return False
    return _take_more(host, journal, seen, refusal) or _take_back(host, journal, refusal, "")


def _take_more(host: Host, journal: Journal, seen: Snapshot, refusal: Refusal) -> bool:
    run = seen.run
    if not run.part or not run.parent:
        return False
    parent, path = run.parent.split("|", 1)
    above = Journal(host.store, host.clock, run.tenant, parent)
    budget = plan_of(host.definitions.manifest(run.workflow, run.version), path).budget
    while True:
        known = above.read(["RUN", f"STEP#{path}"])
        found = above.transact(known, lambda again: _Move(host, journal, path, refusal).down(again, budget))[0]
        if not isinstance(found, Short):
            return found
        short = replace(refusal, wanted=found.wanted, left=found.left)
        if not (_take_more(host, above, known, short) or _take_back(host, above, short, path)):
            return False


def _take_back(host: Host, journal: Journal, refusal: Refusal, but: str) -> bool:
    """Move up what parts have not used, until it is enough; ``but`` is the path of the part that it is for."""
    whole = journal.read_all()
    parts = [step for step in whole.steps() if is_apart(step) and step.path != but and step.status == "waiting"]
    for part in parts:
        below = Journal(host.store, host.clock, whole.run.tenant, part.child or "")
        known = journal.read(["RUN", part.sk])
        journal.transact(known, _Move(host, below, part.path, refusal).up)
    return bool(parts) and _left(journal.read([]).head, refusal.dimension, host.clock.now()) >= refusal.wanted


@dataclass(frozen=True, slots=True)
class Short:
    """The whole has less left than a part is missing."""

    wanted: int
    left: int


class _Move:
    """The one transaction on both heads by which a part's envelope grows or shrinks; ``below`` is the part's run."""

    def __init__(self, host: Host, below: Journal, path: str, refusal: Refusal) -> None:
        self._host, self._below, self._path, self._refusal = host, below, path, refusal

    def down(self, seen: Snapshot, budget: Limits) -> Change[bool | Short]:
        """Give the part what it is missing now, as far as ``budget`` lets it have that much."""
        step, child, now = seen.step(self._path), self._below.read(["RUN"]), self._host.clock.now()
        if step is None or not _shares(seen, step, child):
            return Change(_NOTHING)
        missing = self._refusal.wanted - self._left(child.head, now)
        available = self._left(seen.head, now)
        if missing <= 0:
            return Change(_MOVED)
        if not _allowed(budget, child.run, self._refusal.dimension, missing):
            return Change(_NOTHING)
        if available < missing:
            return Change(Short(missing, available))
        return self._moved(seen.head, step, child, missing)

    def up(self, seen: Snapshot) -> Change[None]:
        """Take from the part what the whole is missing now, or as much of it as the part has not used."""
        step, child, now = seen.step(self._path), self._below.read(["RUN"]), self._host.clock.now()
        running = self._refusal.dimension == "active_time" and child.head.open
        if step is None or running or not _shares(seen, step, child):
            return Change(None)
        spare = min(self._left(child.head, now), self._refusal.wanted - self._left(seen.head, now))
        return self._moved(seen.head, step, child, -spare) if spare > 0 else Change(None)

    def _moved(self, head: Head, step: Step, child: Snapshot, by: int) -> Change[Any]:
        """Move ``by`` down, or up where it is negative."""
        more, active = _amount(self._refusal.dimension, by)
        held = replace(step, hold=step.hold + more)
        note = Note("child_raised", step.path, None, {"dimension": self._refusal.dimension, "by": by})
        above, below = rules.carve(head, more, active), rules.give_back(child.head, more, Amount(), active)
        writes = (self._write(child.head, below), self._write(child.run, raised_run(child.run, more, active)))
        return Change(_MOVED, (above, held), (note,), writes)

    def _left(self, head: Head, now: int) -> int:
        return _left(head, self._refusal.dimension, now)

    def _write(self, known: Head | Run, fresh: Head | Run) -> Write:
        return Write(Key(self._below.pk, fresh.sk), fresh.to_item(), known.rev)


_MOVED, _NOTHING = True, False


def _shares(seen: Snapshot, step: Step, child: Snapshot) -> bool:
    """Tell whether a part and its whole both go on."""
    over = child.head.ended or child.head.unwinding or seen.head.ended or seen.head.unwinding
    return step.child == child.run.id and not step.settled and not over


def _allowed(budget: Limits, run: Run, dimension: str, more: int) -> bool:
    """Tell whether the run's limit may rise by ``more``: what it was given and what it holds is its whole limit."""
    if dimension == "active_time":
        most = None if budget.active_time is None else int(budget.active_time * 1000)
        return most is None or (run.limit_active or 0) + more <= most
    most = getattr(budget, dimension)
    return most is None or (getattr(run, f"limit_{dimension}") or 0) + more <= most


def _left(head: Head, dimension: str, now: int) -> int:
    """Return what is left of a dimension that has a limit (nano-USD, tokens, steps, ms)."""
    return rules.left(head, dimension, now) or 0


def _amount(dimension: str, number: int) -> tuple[Amount, int]:
    """Return so much of a dimension as an amount and milliseconds of active time."""
    return (Amount(), number) if dimension == "active_time" else (Amount(**{dimension: number}), 0)
