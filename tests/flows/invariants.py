"""What holds of every run at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from shared.ledger.records import Amount, Ending
from shared.runtime.rebuild import compare

if TYPE_CHECKING:
    from machine import World

    from shared.ledger.records import Step

ENDINGS = {f"run_{ending}" for ending in get_args(Ending)}


def check(world: World) -> None:
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
        # What a completed part did may be undone later, when the whole fails: it then ends once more.
        assert sum(event.type in ENDINGS for event in events) in ({1, 2} if seen.run.part else {1})


def _unresolved(step: Step) -> bool:
    """Tell whether somebody still has to say how the step goes on or what it did, or its child has to end."""
    doubtful = step.failure and step.failure.uncertain and step.call and step.call.risk != "read"
    if doubtful and step.status not in {"skipped", "completed", "compensated"}:
        return True
    if step.settled:
        return False
    return step.status in {"paused", "unknown"} or (step.status == "waiting" and step.child is not None)
