"""Whether a step may run: its edges, its join, the gate that names it, its ``when``. Pure, section by section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from shared.errors import StepFailure
from shared.runtime.outputs import check_attested
from shared.runtime.scope import mentions_inputs

if TYPE_CHECKING:
    from shared.ledger.records import Step
    from shared.manifest import Edge, StepPlan
    from shared.runtime.journal import Snapshot
    from shared.runtime.scope import Scope

EdgeState = Literal["open", "active", "inactive", "failed", "optional", "broken"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ready``, ``skip`` with its reason, ``blocked`` by what has not settled yet, or ``broken`` by a condition."""

    kind: Literal["ready", "skip", "blocked", "broken"]
    reason: str = ""


READY, BROKEN = Verdict("ready"), Verdict("broken")


def verdict(plan: StepPlan, prefix: str, seen: Snapshot, scope: Scope) -> Verdict:
    """Decide whether the step may run, from its sources' records in ``seen``.

    Raises StepFailure when that depends on a condition which cannot be evaluated: the step fails of it; and
    AttestationMismatch when a source's result was not written by us. What has a run of its own may run: its parent has
    decided that. A step that has begun in this epoch, and is tried again, has passed its ``when``.
    """
    if seen.run.part == f"{prefix}{plan.id}":
        return READY
    for edge in plan.needs:
        check_attested(seen.step(f"{prefix}{edge.source}"))
    joined = foreseen(plan, prefix, seen, scope)
    if joined.kind == "broken":
        edges = [edge for edge in plan.needs if _edge(edge, plan, prefix, seen, scope)[1] == "broken"]
        scope.holds(edges[0].when)
    own = seen.step(f"{prefix}{plan.id}")
    entered = own is not None and own.started is not None
    if joined.kind != "ready" or not plan.when or entered or merged(plan, prefix, seen, scope).holds(plan.when):
        return joined
    return Verdict("skip", f"when is false: {plan.when}")


def foreseen(plan: StepPlan, prefix: str, seen: Snapshot, scope: Scope) -> Verdict:
    """Decide what can be told without the step's own ``when``, which is evaluated on its entry only. Never raises.

    Others than the step itself ask for it: a condition of its edges that cannot be evaluated is not their failure.
    """
    joined = _join(plan, [_edge(edge, plan, prefix, seen, scope) for edge in plan.needs])
    if plan.join == "all" and joined.kind == "blocked":
        return joined
    return _gate_verdict(plan, prefix, seen) or joined


def merged(plan: StepPlan, prefix: str, seen: Snapshot, scope: Scope) -> Scope:
    """Return the scope with ``inputs`` for a step whose expressions read it: its active sources' outputs, merged."""
    if not mentions_inputs(plan):
        return scope
    edges = [_edge(edge, plan, prefix, seen, scope) for edge in plan.needs]
    return scope.merging(plan.merge, tuple(edge.source for edge, state in edges if state == "active"))


def _edge(edge: Edge, plan: StepPlan, prefix: str, seen: Snapshot, scope: Scope) -> tuple[Edge, EdgeState]:
    try:
        return edge, edge_state(edge, plan.id, seen.step(f"{prefix}{edge.source}"), scope)
    except StepFailure:
        return edge, "broken"


def edge_state(edge: Edge, target: str, source: Step | None, scope: Scope) -> EdgeState:
    """Return what the edge is now. A router's edge is active only to the target it chose."""
    if source is None or not source.settled:
        return "open"
    if source.status in {"failed", "timed_out"}:
        return "optional" if edge.optional else "failed"
    if source.status != "completed" or (source.type == "router" and source.route != target):
        return "inactive"
    return "active" if scope.holds(edge.when) else "inactive"


def _gate_verdict(plan: StepPlan, prefix: str, seen: Snapshot) -> Verdict | None:
    gate = seen.gate(f"{prefix}{plan.approved_by}") if plan.approved_by else None
    if gate and gate.status not in {"open", "approved"}:
        return Verdict("skip", f"the gate {plan.approved_by} was {gate.status}")
    return None


def _join(plan: StepPlan, edges: list[tuple[Edge, EdgeState]]) -> Verdict:
    if not edges:
        return READY
    if plan.join == "all":
        return _join_all(edges)
    needed = 1 if plan.join == "any" else int(plan.join)
    active = sum(state == "active" for _, state in edges)
    pending = sum(state == "open" for _, state in edges)
    if active >= needed:
        return READY
    if active + pending < needed:
        if any(state == "broken" for _, state in edges):
            return BROKEN
        return Verdict("skip", f"{active} of {needed} needed edges are active and no more can become so")
    return Verdict("blocked", _names(edges, "open"))


def _join_all(edges: list[tuple[Edge, EdgeState]]) -> Verdict:
    states = {state for _, state in edges}
    if "open" in states:
        return Verdict("blocked", _names(edges, "open"))
    if "failed" in states:
        return Verdict("skip", f"failed: {_names(edges, 'failed')}")
    if "broken" in states:
        return BROKEN
    if "active" in states or states == {"optional"}:
        return READY
    return Verdict("skip", f"no active edge from {_names(edges, 'inactive')}")


def _names(edges: list[tuple[Edge, EdgeState]], state: EdgeState) -> str:
    return ", ".join(edge.source for edge, current in edges if current == state)
