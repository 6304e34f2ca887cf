"""What the design says of edges and joins (its section 4), once more and apart from the runtime's own rules.

All engines ask the same runtime whether a step may run: were it wrong, they would still agree.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from shared import values
from shared.definition.expressions import evaluate
from shared.errors import StepFailure

if TYPE_CHECKING:
    from shared.ledger.records import Step
    from shared.manifest import Edge, StepPlan
    from shared.ports import Blobs
    from shared.runtime.journal import Snapshot

State = Literal["pending", "active", "inactive", "failed", "optional", "broken"]
Decision = Literal["wait", "run", "skip", "fail"]


def decision(plan: StepPlan, scope: str, before: int, seen: Snapshot, blobs: Blobs) -> Decision:
    """Return what a step's join makes of what had settled before the event of that number."""
    states: Counter[State] = Counter()
    for edge in plan.needs:
        source = seen.step(f"{scope}{edge.source}")
        known = source if source and source.settled and (source.settled_seq or 0) < before else None
        states[_state(edge, plan.id, known, seen, blobs)] += 1
    return _of_all(states) if plan.join == "all" else _of_some(states, 1 if plan.join == "any" else int(plan.join))


def _state(edge: Edge, target: str, source: Step | None, seen: Snapshot, blobs: Blobs) -> State:
    if source is None:
        return "pending"
    # What a run had done that failed all the same is undone with everything else in the end.
    if source.status in {"failed", "timed_out"} or (source.status == "compensated" and source.failure):
        return "optional" if edge.optional else "failed"
    if source.status not in {"completed", "compensated"} or (source.type == "router" and source.route != target):
        return "inactive"
    steps = {edge.source: {"output": values.load(source.output, blobs), "status": "completed"}}
    return _holds(edge.when, {"input": values.load(seen.run.input, blobs), "steps": steps})


def _holds(condition: str | None, names: dict[str, Any]) -> State:
    try:
        return "active" if condition is None or evaluate(condition, names) is True else "inactive"
    except StepFailure:
        return "broken"


def _of_all(states: Counter[State]) -> Decision:
    if states["pending"]:
        return "wait"
    if states["failed"]:
        return "skip"
    if states["broken"]:
        return "fail"
    return "run" if states["active"] or states["optional"] == states.total() else "skip"


def _of_some(states: Counter[State], needed: int) -> Decision:
    if states["active"] >= needed:
        return "run"
    if states["active"] + states["pending"] >= needed:
        return "wait"
    return "fail" if states["broken"] else "skip"
