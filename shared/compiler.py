"""The compiler: load → check → plan → emit. Pure but for reading files: the same input gives the same bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.asl import Layout, emit, fold, measure, place_jumps, render, unwind_machine
from shared.asl.limits import MAX_DEFINITION, MAX_EVENTS, MAX_MANIFEST, heaviest
from shared.asl.names import MAX_LENGTH
from shared.asl.slots import takes_slot, with_slots
from shared.asl.split import ROOM, split
from shared.definition.checks import check
from shared.definition.loader import load_file
from shared.definition.neighbours import neighbours
from shared.errors import DefinitionError, Finding
from shared.graph import Graph, Tree, decompose, order_graph
from shared.graph.ordering import early
from shared.manifest import Trigger
from shared.models.prices import prices
from shared.plan import plan, with_wakes
from shared.tools.builtin import with_builtins
from shared.tools.registry import ToolError, load_tools
from shared.triggers.occurrences import queue_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shared.definition.loader import Loaded
    from shared.definition.neighbours import Neighbour
    from shared.manifest import Body, Manifest, StepPlan
    from shared.tools.registry import Tool

__all__ = [
    "Compiled",
    "Summary",
    "Trigger",
    "Unit",
    "compile_file",
    "compile_loaded",
    "compile_manifest",
    "queue_name",
    "unwind_machine",
]

# What a placeholder grows to: a qualified function ARN is at most this much longer than ``${ControlFunction}``.
_ARN_GROWTH = 150
_HASH_LENGTH = 64
_LEAST_SIZE = 2_000
"""Bytes; the states of one step are never less, so a machine of more of them than fit need not be tried."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a definition amounts to.

    ``critical_path`` is the longest chain of steps; ``transitions`` are those of a run in which nothing goes wrong,
    at most; ``worst`` those, and ``events`` the history events, of one in which everything does; sizes in bytes.
    """

    steps: int
    critical_path: tuple[str, ...]
    transitions: int
    worst: int
    events: int
    definition_size: int
    manifest_size: int


@dataclass(frozen=True, slots=True)
class Unit:
    """A manifest with its machine, its hash, what both amount to, and how the graph will run."""

    manifest: Manifest
    asl: Mapping[str, Any]
    summary: Summary
    layout: Layout


@dataclass(frozen=True, slots=True)
class Compiled:
    """One compiled definition. ``findings`` holds its warnings; ``source`` is the file's text."""

    name: str
    asl: Mapping[str, Any]
    manifest: Manifest
    hash: str
    source: str
    findings: tuple[Finding, ...]
    summary: Summary
    layout: Layout


def compile_file(
    path: Path | str,
    *,
    tools: Mapping[str, Tool] | None = None,
    models: frozenset[str] | None = None,
    servers: frozenset[str] | None = None,
) -> Compiled:
    """Compile a workflow file.

    Args:
        path: The file.
        tools: The tools that steps may name; without it, those of the folder ``tools`` next to the file.
        models: The models that steps may name; without it, those of the price table.
        servers: The MCP servers that steps may name; without it, they are not checked.

    Raises:
        DefinitionError: the file is refused; it carries every finding.
    """
    path = Path(path)
    return compile_loaded(
        load_file(path, strict=False),
        tools=_tools_beside(path) if tools is None else tools,
        models=frozenset(prices()) if models is None else models,
        workflows=neighbours(path.parent),
        servers=servers,
    )


def compile_loaded(
    loaded: Loaded,
    *,
    tools: Mapping[str, Tool],
    models: frozenset[str],
    workflows: Mapping[str, Neighbour] | None = None,
    servers: frozenset[str] | None = None,
) -> Compiled:
    """Compile a loaded workflow; ``workflows`` are those that it may start, ``servers`` those of MCP, None = unknown.

    Raises:
        DefinitionError: the workflow is refused; it carries every finding.
    """
    findings = check(loaded, tools, models, workflows, servers)
    _refuse(findings)
    unit = compile_manifest(plan(loaded.workflow, with_builtins(tools)))
    findings += tuple(_over_limits(unit, loaded.name))
    _refuse(findings)
    return Compiled(
        name=unit.manifest.workflow,
        asl=unit.asl,
        manifest=unit.manifest,
        hash=unit.manifest.hash,
        source=loaded.source,
        findings=findings,
        summary=unit.summary,
        layout=unit.layout,
    )


def compile_manifest(manifest: Manifest, room: int = ROOM) -> Unit:
    """Order, decompose, place jumps, split, emit, hash and measure one manifest, whose wakes and hash it fills in.

    ``room`` is how many history events one execution is planned for.
    """
    steps, layout = lay_out(manifest)
    steps = split(layout, with_slots(layout, steps, manifest.max_parallel), room, manifest.max_parallel)
    manifest = replace(manifest, hash="", steps=steps, slots=any(map(takes_slot, steps.values())))
    planned = _canonical(manifest)
    # Only what would not fit otherwise is folded: states named after their steps read better.
    if len(steps) * _LEAST_SIZE <= MAX_DEFINITION:
        unit = _unit(manifest, planned, layout)
        if unit.summary.definition_size <= MAX_DEFINITION:
            return unit
    return _unit(manifest, planned, fold(layout, steps))


def _unit(manifest: Manifest, planned: str, layout: Layout) -> Unit:
    asl = emit(layout, manifest).to_json()
    definition = render(asl)
    measures = measure(layout, manifest.steps)
    summary = Summary(
        steps=_count(manifest),
        critical_path=layout.order.longest_path(),
        transitions=measures.transitions,
        worst=measures.worst,
        events=measures.events,
        definition_size=len(definition.encode()) + _ARN_GROWTH * _tasks(asl),
        manifest_size=len(planned.encode()) + _HASH_LENGTH,
    )
    return Unit(replace(manifest, hash=_content_hash(definition, planned)), asl, summary, layout)


def _count(graph: Manifest | Body) -> int:
    """Return how many steps are drawn, in all bodies too."""
    plans = [graph.steps[name] for name in graph.order]
    return len(plans) + sum(_count(plan.body) for plan in plans if plan.body)


def lay_out(graph: Manifest | Body) -> tuple[dict[str, StepPlan], Layout]:
    """Return the steps of a graph with their wakes, in all bodies too, and how they will run."""
    order, tree = _decomposed(graph)
    inside = {name: (plan.body, lay_out(plan.body)) for name, plan in graph.steps.items() if plan.body}
    steps = with_wakes(graph.steps, tree)
    for name, (body, (plans, _)) in inside.items():
        steps[name] = replace(steps[name], body=replace(body, steps=plans))
    layout = Layout(order, place_jumps(tree, graph), {name: laid for name, (_, (_, laid)) in inside.items()})
    return steps, layout


def _content_hash(definition: str, planned: str) -> str:
    """Return the SHA-256 over the canonical JSON of machine and manifest, the latter without its own hash."""
    return hashlib.sha256(f'{{"asl":{definition},"manifest":{planned}}}'.encode()).hexdigest()


def _decomposed(graph: Manifest | Body) -> tuple[Graph, Tree]:
    steps = {name: graph.steps[name] for name in graph.order}
    needs = {name: tuple(edge.source for edge in step.needs) for name, step in steps.items()}
    order = order_graph(needs, {name: step.join for name, step in steps.items()})
    parked = {name: needs[name] for name, step in steps.items() if early(needs[name], step.join)}
    return order, decompose(order, parked)


def _tools_beside(path: Path) -> Mapping[str, Tool]:
    try:
        return load_tools(path.parent / "tools")
    except ToolError as error:
        raise DefinitionError((Finding("tools", str(error), str(path)),)) from error


def _refuse(findings: Iterable[Finding]) -> None:
    findings = tuple(findings)
    if any(finding.severity == "error" for finding in findings):
        raise DefinitionError(findings)


def _over_limits(unit: Unit, file: str) -> Iterator[Finding]:
    """Find what Step Functions or DynamoDB would refuse, now or in the middle of a run."""
    reached = (
        (unit.summary.events, MAX_EVENTS, "history events in the worst case", _fewer_events(unit)),
        (unit.summary.definition_size, MAX_DEFINITION, "bytes of state machine", "Split it into several workflows."),
        (unit.summary.manifest_size, MAX_MANIFEST, "bytes of manifest", "Shorten its prompts or split it."),
    )
    for number, limit, what, remedy in reached:
        if number > limit:
            message = f"the workflow needs {number:,} {what}; at most {limit:,} are possible."
            yield Finding("limits", message, file, remedy=remedy)
    for name in _state_names(unit.asl):
        if len(name) > MAX_LENGTH:
            message = f"the state name `{name}` has {len(name)} characters; at most {MAX_LENGTH} are possible."
            yield Finding("limits", message, file, remedy="Shorten the step's name.")


def _fewer_events(unit: Unit) -> str:
    """Say what makes most of the events: a map, a loop or an agent, if there is one, else retries."""
    found = heaviest(unit.layout, unit.manifest.steps)
    if found is None:
        return "Lower max_retries or split it."
    name, events = found
    spec, turns = unit.manifest.steps[name].spec, unit.manifest.steps[name].turns
    if turns:
        return f"`{name}` alone writes {events:,} for {turns.most} turns: lower max_turns."
    count = f"{spec['max_items']} items" if "max_items" in spec else f"{spec['max_iterations']} iterations"
    lower = "maxItems in the list's schema" if "max_items" in spec else "max_iterations"
    lower = f"lower {lower} or max_retries, or move its steps into a sub_workflow"
    return f"`{name}` alone writes {events:,} for {count}: {lower}."


def _state_names(machine: Mapping[str, Any]) -> Iterator[str]:
    for inner in _machines(machine):
        yield from inner["States"]


def _tasks(machine: Mapping[str, Any]) -> int:
    return sum(state["Type"] == "Task" for inner in _machines(machine) for state in inner["States"].values())


def _machines(machine: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the machine and all that stand inside its states."""
    yield machine
    for state in machine["States"].values():
        for inner in (*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ())):
            yield from _machines(inner)


def _canonical(manifest: Manifest) -> str:
    return json.dumps(manifest.to_json(), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
