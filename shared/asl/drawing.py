"""A definition as a picture: a Mermaid flowchart of its steps as they will run.

Solid arrows are kept by the machine's shape, dashed ones by an await. Bodies of maps and loops are boxes.
Source: Mermaid, "Flowcharts - Basic Syntax".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.asl.jumps import Chain, Fork, Lanes, Routed, Switch
from shared.definition.models import LONGEST_PARKED
from shared.definition.units import NANO, spelled
from shared.graph.tree import Await, Parallel, Sequence, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.asl.layout import Layout
    from shared.manifest import Body, Edge, Manifest, StepPlan

_SHAPES = {
    "agent": ("[", "]"),
    "tool": ("[[", "]]"),
    "transform": ("(", ")"),
    "router": ("{", "}"),
    "human_gate": ("{{", "}}"),
    "wait": ("([", "])"),
    "sub_workflow": ("[/", "/]"),
}


def draw(layout: Layout, manifest: Manifest) -> str:
    """Return the text of the picture."""
    lines = ["flowchart TD", *_graph(layout, manifest, "", "  "), "  classDef gate stroke-width:3px"]
    return "\n".join(lines) + "\n"


def _graph(layout: Layout, graph: Manifest | Body, prefix: str, indent: str) -> Iterator[str]:
    waited = awaited(layout.routed)
    for name in graph.order:
        yield from _step(layout, graph.steps[name], prefix, indent)
    for name in graph.order:
        for edge in graph.steps[name].needs:
            yield f"{indent}{_edge(edge, graph, name, prefix, dashed=edge.source in waited.get(name, ()))}"
    for name in graph.order:
        if fallback := graph.steps[name].fallback:
            label = _quoted(f"{fallback} · stands in for {name}")
            yield f"{indent}{_id(prefix, name)} -. failed .-> {_id(prefix, name)}__fallback[{label}]"


def _step(layout: Layout, plan: StepPlan, prefix: str, indent: str) -> Iterator[str]:
    own = _id(prefix, plan.id)
    if plan.body:
        yield f"{indent}subgraph {own}[{_quoted(_label(plan))}]"
        yield from _graph(layout.bodies[plan.id], plan.body, f"{prefix}{plan.id}/", f"{indent}  ")
        yield f"{indent}end"
        return
    if plan.turns:
        most = f"{_label(plan)} · at most {plan.turns.most} turns, each with the calls it proposes"
        yield f"{indent}subgraph {own}[{_quoted(most)}]"
        for name, tool in plan.turns.tools.items():
            yield f"{indent}  {own}__{re.sub(r'[^A-Za-z0-9_]', '_', name)}[[{_quoted(_label(tool))}]]"
        yield f"{indent}end"
        return
    left, right = _SHAPES[plan.type]
    mark = ":::gate" if plan.type == "human_gate" else ""
    yield f"{indent}{own}{left}{_quoted(_label(plan))}{right}{mark}"


def _label(plan: StepPlan) -> str:
    match plan.type:
        case "map":
            limit = plan.spec.get("max_concurrency") or "all"
            return f"{plan.id} · for each of {plan.spec['over']}, {limit} at once{_limits(plan)}"
        case "loop":
            return f"{plan.id} · until {plan.spec['until']}, at most {plan.spec['max_iterations']} times{_limits(plan)}"
        case "human_gate":
            return f"{plan.id} · {_deciders(plan)}"
        case "tool" if plan.risk != "read":
            return f"{plan.id} · {plan.risk}"
        case "sub_workflow":
            return f"{plan.id} · runs {plan.spec['workflow']}"
        case _:
            pass
    join = (
        "" if plan.join == "all" else f" · {plan.join if plan.join == 'any' else f'{plan.join} of {len(plan.needs)}'}"
    )
    return f"{plan.id}{join}{f' · when {plan.when}' if plan.when else ''}"


def _deciders(plan: StepPlan) -> str:
    """Return who decides a gate, and who may later besides."""
    later = (f", after {spelled(tier['after'])} {', '.join(tier['to'])} too" for tier in plan.spec.get("escalate", ()))
    return f"{', '.join(plan.spec.get('approvers', ()))} decide{''.join(later)}"


def _limits(plan: StepPlan) -> str:
    """Return what ends and limits a map or loop that has a run of its own."""
    if not plan.apart:
        return ""
    budget = plan.budget
    known = {
        f"within {spelled(plan.timeout)}": plan.timeout < LONGEST_PARKED,
        f"USD {(budget.usd or 0) / NANO:g} together": budget.usd is not None,
        f"{budget.tokens} tokens together": budget.tokens is not None,
        f"{budget.steps} attempts together": budget.steps is not None,
        f"{spelled(budget.active_time or 0)} at work": budget.active_time is not None,
    }
    return "".join(f", {words}" for words, given in known.items() if given)


def _edge(edge: Edge, graph: Manifest | Body, name: str, prefix: str, *, dashed: bool) -> str:
    source = graph.steps[edge.source]
    label = edge.when or (name if source.type == "router" else "")
    text = f"|{_quoted(label)}|" if label else ""
    return f"{_id(prefix, edge.source)} {'-.->' if dashed else '-->'}{text} {_id(prefix, name)}"


def awaited(node: Routed) -> dict[str, frozenset[str]]:
    """Return by step the sources that an await, and not the machine's shape, puts before it."""
    found: dict[str, frozenset[str]] = {}
    match node:
        case Sequence(items) | Chain(items):
            for item, following in zip(items, (*items[1:], None), strict=True):
                if isinstance(item, Await) and following is not None:
                    found |= dict.fromkeys(_entries(following), frozenset(item.sources))
                found |= awaited(item)
        case Parallel(branches) | Fork(branches) | Lanes(branches):
            for branch in branches:
                found |= awaited(branch)
        case Switch(_, cases):
            for _, case in cases:
                found |= awaited(case)
        case _:
            pass
    return found


def _entries(node: Routed) -> Iterator[str]:
    """Yield the steps that a node starts with."""
    match node:
        case Step(name) | Await(name):
            yield name
        case Sequence(items) | Chain(items):
            yield from _entries(items[0])
        case Parallel(branches) | Fork(branches) | Lanes(branches):
            for branch in branches:
                yield from _entries(branch)
        case Switch(_, cases):
            for _, case in cases:
                yield from _entries(case)


def _id(prefix: str, name: str) -> str:
    # A prefix of our own, since a node must not be called `end`.
    return f"s_{prefix.replace('/', '__')}{name}"


def _quoted(text: str) -> str:
    shown = " ".join(str(text).split())
    escaped = shown.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'"{escaped}"'
