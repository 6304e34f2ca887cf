"""What holds of every run at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from shared.budget import tenant
from shared.ledger.records import Amount, Ending
from shared.runtime.journal import Journal
from shared.runtime.rebuild import compare

if TYPE_CHECKING:
    from family import Member
    from machine import World

    from shared.ledger.records import Step

ENDINGS = {f"run_{ending}" for ending in get_args(Ending)}


def check(world: World) -> None:
    check_run(world)
    check_tenant(world)


def check_run(world: World | Member) -> None:
    seen, head = world.records, world.head
    events = world.journal.events()
    assert [event.seq for event in events] == list(range(1, head.seq + 1)), "the log has gaps"
    told = compare(seen, events).differences
    assert not [one for one in told if one.record != "RUN"], told  # lists follow later
    steps = seen.steps()
    if head.ended:
        assert head.open == head.paused == head.waiting == 0
        assert not [step.path for step in steps if step.open or step.hold != Amount() or _unresolved(step)]
        assert events[-1].type == f"run_{head.ended}"
        # What a completed child did may be undone later, when its parent fails: it then ends once more.
        since = [event.type for event in events if event.seq >= head.began]
        assert sum(kind in ENDINGS for kind in since) in ({1, 2} if seen.run.parent else {1})


def check_tenant(world: World) -> None:
    """Runs that go on hold their limits, and those that have ended have cost what they used."""
    known = tenant.read(world.store, world.tenant)
    journals = [
        Journal.at(world.store, world.clock, key.pk)
        for key in getattr(world.store, "_store", world.store).items
        if key.sk == "RUN"
    ]
    runs = [(seen.run, seen.head) for seen in (journal.read(["RUN"]) for journal in journals) if not seen.run.parent]
    for name, limit, left in (
        ("usd", "limit_usd", "left_usd"),
        ("tokens", "limit_tokens", "left_tokens"),
        ("steps", "limit_steps", "left_steps"),
    ):
        held = sum(getattr(run, limit) for run, _ in runs if name in run.drawn)
        assert known.held[name] == held, f"{name}: the tenant holds {known.held[name]}, its runs {held}"
        if name in known.set.limits:
            spent = sum(getattr(run, limit) - getattr(head, left) for run, head in runs if not run.drawn)
            assert known.spent[name] == spent, f"{name}: the tenant spent {known.spent[name]}, its runs {spent}"
    assert not [run.id for run, head in runs if head.ended and run.drawn]


def _unresolved(step: Step) -> bool:
    """Tell whether somebody still has to say how the step goes on or what it did, or its child has to end.

    Who has given up finding out has said so: the record and the log name them.
    """
    if step.given_up:
        return False
    doubtful = step.failure and step.failure.uncertain and step.call and step.call.risk != "read"
    if doubtful and step.status not in {"skipped", "completed", "compensated"}:
        return True
    if step.settled:
        return False
    return step.status in {"paused", "unknown"} or (step.status == "waiting" and step.child is not None)
