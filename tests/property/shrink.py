"""Makes a failing manifest smaller while it still fails, and writes it down for people."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml
from graphs import child, children_of, linked

from shared.manifest import Body, Edge, Manifest, Retry, StepPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 150
"""How many smaller manifests are tried at most."""


def shrink(manifest: Manifest, fails: Callable[[Manifest], bool]) -> Manifest:
    """Return a smaller manifest that ``fails`` as well: no single cut leaves it failing (within a bound of tries)."""
    tries = MOST
    smaller = True
    while smaller and tries:
        smaller = False
        for candidate in cuts(manifest):
            tries -= 1
            if not tries:
                break
            if fails(candidate):
                manifest, smaller = candidate, True
                break
    return manifest


def cuts(manifest: Manifest) -> Iterator[Manifest]:
    """Yield manifests that lack one thing, the largest cuts first."""
    for graph in _cut(Body(manifest.steps, manifest.order)):
        if graph.order:
            yield replace(manifest, steps=graph.steps, order=graph.order)


def _cut(graph: Body) -> Iterator[Body]:
    for name in graph.order:
        yield _without(graph, name)
    for name in graph.order:
        plan = graph.steps[name]
        for inner in _cut(plan.body) if plan.body else ():
            if inner.order:
                yield _with(graph, replace(plan, body=inner))
    for name in graph.order:
        for plan in _simpler(graph.steps[name]):
            yield _with(graph, plan)


def _without(graph: Body, name: str) -> Body:
    kept = [_forgetting(plan, name) for plan in graph.steps.values() if plan.id != name]
    return _tidy(kept, tuple(other for other in graph.order if other != name))


def _forgetting(plan: StepPlan, name: str) -> StepPlan:
    needs = tuple(edge for edge in plan.needs if edge.source != name)
    join = _join(plan, len(needs))
    spec = dict(plan.spec)
    if plan.type == "router":
        spec["routes"] = [route for route in spec["routes"] if route["to"] != name]
        spec["default"] = (spec["default"] if spec["default"] != name else "") or "nowhere"
    if spec.get("approves") == name:
        spec["approves"] = None
    approved_by = None if plan.approved_by == name else plan.approved_by
    risk = "read" if plan.risk == "irreversible" and not approved_by else plan.risk
    when = None if f"steps.{name}." in str(plan.when) else plan.when
    if f"steps.{name}." in str(spec):
        spec = _literal(spec)
    return replace(plan, needs=needs, join=join, spec=spec, approved_by=approved_by, risk=risk, when=when)


def _join(plan: StepPlan, sources: int) -> str | int:
    if sources < 2:
        return "all"
    return min(plan.join, sources) if isinstance(plan.join, int) else plan.join


def _literal(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec that refers to no step."""
    if "with" in spec:
        return {**spec, "with": {**spec["with"], "from": None}}
    if "set" in spec:
        return {"set": {"v": 1}}
    if "routes" in spec:
        return {**spec, "routes": [{**route, "when": "true"} for route in spec["routes"]]}
    return {**spec, "over": [1, 2]}


def _with(graph: Body, plan: StepPlan) -> Body:
    return _tidy([plan if old.id == plan.id else old for old in graph.steps.values()], graph.order)


def _tidy(plans: list[StepPlan], order: tuple[str, ...]) -> Body:
    """Link again, without templates that no step uses any more."""
    used = {plan.fallback for plan in plans if plan.id in order}
    return Body(linked(plan for plan in plans if plan.id in order or plan.id in used), order)


def _simpler(plan: StepPlan) -> Iterator[StepPlan]:
    if plan.body or plan.type in {"human_gate", "wait", "transform", "agent", "sub_workflow"}:
        call = {"tool": "behave", "with": {"seed": 1, "chance": 0.0}, "compensate": None, "reconcile": None}
        yield replace(plan, type="tool", body=None, spec=call, timeout=60.0, output=None)
    plainest = {"when": None, "fallback": None, "retry": Retry(0), "join": "all", "optional": False, "merge": "by_step"}
    for name, value in plainest.items():
        if getattr(plan, name) != value:
            yield replace(plan, **{name: value})
    for edge in plan.needs:
        yield _forgetting(plan, edge.source)
        if edge.when:
            yield replace(plan, needs=tuple(Edge(e.source) if e is edge else e for e in plan.needs))


def text(manifest: Manifest) -> str:
    """Return the manifest much as its workflow file would look."""
    below = [child(name) for name in dict.fromkeys(children_of(manifest))]
    shown = [{"workflow": one.workflow, "steps": _shown(Body(one.steps, one.order))} for one in (manifest, *below)]
    return "---\n".join(yaml.safe_dump(one, sort_keys=False, width=120) for one in shown)


def _shown(graph: Body) -> dict[str, Any]:
    return {name: _fields(plan) for name, plan in graph.steps.items()}


def _fields(plan: StepPlan) -> dict[str, Any]:
    bare = StepPlan(plan.id, plan.type)
    shown: dict[str, Any] = {"type": plan.type}
    if plan.needs:
        shown["needs"] = [{"step": e.source, "when": e.when} if e.when else e.source for e in plan.needs]
    for name in ("join", "when", "fallback", "optional", "risk", "approved_by"):
        if getattr(plan, name) != getattr(bare, name):
            shown[name] = getattr(plan, name)
    shown["on_error"] = plan.on_error
    if plan.retry.max_retries:
        shown["retry"] = {"max_retries": plan.retry.max_retries, "on": list(plan.retry.on)}
    shown |= {name: value for name, value in plan.spec.items() if value is not None}
    return shown | ({"steps": _shown(plan.body)} if plan.body else {})
