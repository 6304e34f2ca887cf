"""What the log must show of every run, on any engine.

Nothing starts before what it depends on has settled, and never more at once than there are places for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joining import decision
from outcome import scopes_in

from shared.runtime.scopes import COMPENSATE, FALLBACK, graph_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from family import Member

    from shared.ledger.records import Event
    from shared.ports import Blobs

WORK = {
    "step_opened",
    "gate_opened",
    "map_entered",
    "loop_iteration",
    "wait_started",
    "step_completed",
    "step_failed",
    "step_skipped",
}


def disorder(member: Member, blobs: Blobs) -> list[str]:
    """Return what one run's log shows to have happened in a wrong order."""
    events = member.events()
    return [*_misjoined(member, events, blobs), *crowded(member.places, events), *_refusals(events)]


def _misjoined(member: Member, events: Sequence[Event], blobs: Blobs) -> Iterator[str]:
    """Yield the steps that began, or were skipped, before their join could know, or against what it said."""
    first = _first(events)
    for scope in scopes_in(member.records):
        for plan in graph_at(member.manifest, scope).values():
            event = first.get(f"{scope}{plan.id}")
            did = _did(event) if event else "nothing"
            if event and event.seq < member.head.began and not _is_kept(member, event):
                continue  # what it depended on in an earlier epoch is not on record any more
            if event and did != "nothing":
                due = decision(plan, scope, event.seq, member.records, blobs)
                if due != did and (due, event.type) != ("fail", "step_failed"):
                    yield f"{event.path}: {event.type} (event {event.seq}), but its join says {due}"


def _first(events: Sequence[Event]) -> dict[str, Event]:
    """Return the first thing that every step did in the last epoch in which it did anything."""
    first: dict[str, Event] = {}
    since = 0
    for event in events:
        since = event.seq if event.type == "run_resumed" else since
        path = (event.path or "").removesuffix(FALLBACK)
        if event.type in WORK and path and (path not in first or first[path].seq < since):
            first[path] = event
    return first


def _is_kept(member: Member, event: Event) -> bool:
    step = member.records.step((event.path or "").removesuffix(FALLBACK))
    return step is not None and step.status == "completed"


def crowded(most: int, events: Sequence[Event]) -> list[str]:
    """Return the steps that opened while as many were at work as may be, compensations aside."""
    working: set[str] = set()
    found: list[str] = []
    for event in events:
        path = event.path or ""
        if event.type != "step_opened" or path.endswith(COMPENSATE):
            working.discard(path)
        elif path not in working:
            found += [f"{path} (event {event.seq}) is one too many beside {working}"] if len(working) >= most else []
            working.add(path)
    return found


def _did(event: Event) -> str:
    """Return what a step's first event says of its join: that it let the step run, or that it skipped it."""
    reason = str(event.data.get("reason", ""))
    if event.type != "step_skipped" or reason.startswith("when is false"):
        return "run"
    # A person has skipped it, or an agent's turn and the agent with it.
    return "nothing" if reason.startswith(("the gate", "by ")) or "/turn[" in reason else "skip"


def _refusals(events: Sequence[Event]) -> list[str]:
    """Return deliveries that the runtime had to send back because the engine had come too early."""
    texts = [(event.path, str(event.data)) for event in events]
    return [f"{path} was delivered too early" for path, text in texts if "was started before" in text]
