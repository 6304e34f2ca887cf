"""What the log must show of every run, on any engine.

Nothing starts before what it depends on has settled, and never more at once than there are places for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcome import scopes_in

from shared.runtime.scopes import COMPENSATE, FALLBACK, graph_at, order_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from family import Member

    from shared.ledger.records import Event, Step
    from shared.manifest import Manifest, StepPlan
    from shared.runtime.journal import Snapshot

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


def disorder(member: Member) -> list[str]:
    """Return what one run's log shows to have happened in a wrong order."""
    events = member.events()
    return too_early(member.manifest, member.records, events) + crowded(member.places, events)


def too_early(manifest: Manifest, seen: Snapshot, events: Sequence[Event]) -> list[str]:
    """Return the steps that began, or were skipped, before their join could know."""
    first: dict[str, Event] = {}
    for event in events:
        if event.type in WORK and event.path:
            first.setdefault(event.path.removesuffix(FALLBACK), event)
    found: list[str] = []
    for scope in scopes_in(seen):
        for name in order_at(manifest, scope):
            event = first.get(f"{scope}{name}")
            if event:
                found += _early(graph_at(manifest, scope)[name], scope, event, seen)
    return found + _refusals(events)


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


def _early(plan: StepPlan, scope: str, event: Event, seen: Snapshot) -> Iterator[str]:
    sources = [(edge, step) for edge in plan.needs if (step := seen.step(f"{scope}{edge.source}")) and step.settled]
    before = [(edge, step) for edge, step in sources if (step.settled_seq or 0) < event.seq]
    pending = len(plan.needs) - len(before)
    what = f"{event.path}: {event.type} (event {event.seq})"
    if event.type == "step_skipped" and not _by_join(event):
        return
    if plan.join == "all":
        if pending:
            yield f"{what} before all of its sources had settled"
        return
    needed = min(len(plan.needs), 1 if plan.join == "any" else int(plan.join))
    # Whether a condition held, the log does not say.
    active = [edge for edge, step in before if _may_be_active(plan, step)]
    hopeless = sum(not edge.when for edge in active) + pending < needed
    if _gives_up(event) and not hopeless:
        yield f"{what} while {pending} sources were pending and {needed} edges needed"
    broken = event.type == "step_failed" and hopeless and any(edge.when for edge in active)
    if not (_gives_up(event) or broken) and len(active) < needed:
        yield f"{what} after {len(active)} of {needed} completed sources"


def _may_be_active(plan: StepPlan, source: Step) -> bool:
    """Tell whether the edge from a settled source is active, unless its condition does not hold."""
    completed = source.status in {"completed", "compensated"}
    return completed and (source.type != "router" or source.route == plan.id)


def _gives_up(event: Event) -> bool:
    """Tell whether the step was skipped because its join could not be satisfied any more."""
    return event.type == "step_skipped" and "needed edges" in str(event.data.get("reason", ""))


def _by_join(event: Event) -> bool:
    reason = str(event.data.get("reason", ""))
    return not reason.startswith(("the gate", "by "))


def _refusals(events: Sequence[Event]) -> list[str]:
    """Return deliveries that the runtime had to send back because the engine had come too early."""
    texts = [(event.path, str(event.data)) for event in events]
    return [f"{path} was delivered too early" for path, text in texts if "was started before" in text]
