"""What the log must show of every run, on any engine: nothing starts before what it depends on has settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcome import scopes_in

from shared.runtime.scopes import FALLBACK, graph_at, order_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shared.ledger.records import Event
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


def _early(plan: StepPlan, scope: str, event: Event, seen: Snapshot) -> Iterator[str]:
    before = [step for edge in plan.needs if (step := seen.step(f"{scope}{edge.source}")) and step.settled]
    before = [step for step in before if (step.settled_seq or 0) < event.seq]
    completed = sum(step.status in {"completed", "compensated"} for step in before)
    if event.type == "step_skipped" and not _by_join(event):
        return
    if plan.join == "all" and len(before) < len(plan.needs):
        yield f"{event.path}: {event.type} (event {event.seq}) before all of its sources had settled"
    needed = {"all": 0, "any": 1}.get(str(plan.join), plan.join)
    if plan.needs and event.type != "step_skipped" and completed < int(needed):
        yield f"{event.path}: {event.type} (event {event.seq}) after {completed} of {needed} completed sources"


def _by_join(event: Event) -> bool:
    reason = str(event.data.get("reason", ""))
    return not reason.startswith(("the gate", "by "))


def _refusals(events: Sequence[Event]) -> list[str]:
    """Return deliveries that the runtime had to send back because the engine had come too early."""
    texts = [(event.path, str(event.data)) for event in events]
    return [f"{path} was delivered too early" for path, text in texts if "was started before" in text]
