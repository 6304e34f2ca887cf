"""The compiler: load → check → plan → emit. Pure but for reading files: the same input gives the same bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.asl import emit, measure, place_jumps, render, unwind_machine
from shared.asl.limits import MAX_DEFINITION, MAX_EVENTS, MAX_MANIFEST
from shared.asl.names import MAX_LENGTH
from shared.definition.checks import check
from shared.definition.loader import load_file
from shared.errors import DefinitionError, Finding
from shared.graph import Graph, Tree, decompose, order_graph
from shared.graph.ordering import early
from shared.models.prices import prices
from shared.plan import plan, with_wakes
from shared.tools.registry import ToolError, load_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shared.definition.loader import Loaded
    from shared.manifest import Manifest
    from shared.tools.registry import Tool

__all__ = [
    "Compiled",
    "Summary",
    "Unit",
    "compile_file",
    "compile_loaded",
    "compile_manifest",
    "unwind_machine",
]

# What a placeholder grows to: a qualified function ARN is at most this much longer than ``${ControlFunction}``.
_ARN_GROWTH = 150
_HASH_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Summary:
    """What a definition amounts to.

    ``critical_path`` is the longest chain of steps; ``transitions`` are those of a run in which nothing goes wrong,
    at most; ``events`` the history events of one in which everything does; sizes in bytes.
    """

    steps: int
    critical_path: tuple[str, ...]
    transitions: int
    events: int
    definition_size: int
    manifest_size: int


@dataclass(frozen=True, slots=True)
class Unit:
    """A manifest with its machine, its hash and what both amount to."""

    manifest: Manifest
    asl: Mapping[str, Any]
    summary: Summary


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


def compile_file(
    path: Path | str, *, tools: Mapping[str, Tool] | None = None, models: frozenset[str] | None = None
) -> Compiled:
    """Compile a workflow file.

    Args:
        path: The file.
        tools: The tools that steps may name; without it, those of the folder ``tools`` next to the file.
        models: The models that steps may name; without it, those of the price table.

    Raises:
        DefinitionError: the file is refused; it carries every finding.
    """
    path = Path(path)
    loaded = load_file(path)
    return compile_loaded(
        loaded,
        tools=_tools_beside(path) if tools is None else tools,
        models=frozenset(prices()) if models is None else models,
    )


def compile_loaded(loaded: Loaded, *, tools: Mapping[str, Tool], models: frozenset[str]) -> Compiled:
    """Compile a loaded workflow.

    Raises:
        DefinitionError: the workflow is refused; it carries every finding.
    """
    findings = check(loaded, tools, models)
    _refuse(findings)
    unit = compile_manifest(plan(loaded.workflow, {name: tool.cost for name, tool in tools.items()}))
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
    )


def compile_manifest(manifest: Manifest) -> Unit:
    """Order, decompose, place jumps, emit, hash and measure one manifest, whose wakes and hash it fills in."""
    order, tree = _decomposed(manifest)
    manifest = with_wakes(replace(manifest, hash=""), tree)
    routed = place_jumps(tree, manifest)
    asl = emit(routed, manifest).to_json()
    definition, planned = render(asl), _canonical(manifest.to_json())
    measures = measure(routed, manifest.steps)
    summary = Summary(
        steps=len(manifest.order),
        critical_path=order.longest_path(),
        transitions=measures.transitions,
        events=measures.events,
        definition_size=len(definition.encode()) + _ARN_GROWTH * _tasks(asl),
        manifest_size=len(planned.encode()) + _HASH_LENGTH,
    )
    return Unit(replace(manifest, hash=_content_hash(definition, planned)), asl, summary)


def _content_hash(definition: str, planned: str) -> str:
    """Return the SHA-256 over the canonical JSON of machine and manifest, the latter without its own hash."""
    return hashlib.sha256(f'{{"asl":{definition},"manifest":{planned}}}'.encode()).hexdigest()


def _decomposed(manifest: Manifest) -> tuple[Graph, Tree]:
    steps = {name: manifest.steps[name] for name in manifest.order}
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
        (unit.summary.events, MAX_EVENTS, "history events in the worst case", "Lower max_retries or split it."),
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


def _state_names(machine: Mapping[str, Any]) -> Iterator[str]:
    for name, state in machine["States"].items():
        yield name
        for branch in state.get("Branches", ()):
            yield from _state_names(branch)


def _tasks(machine: Mapping[str, Any]) -> int:
    own = sum(state["Type"] == "Task" for state in machine["States"].values())
    nested = (branch for state in machine["States"].values() for branch in state.get("Branches", ()))
    return own + sum(map(_tasks, nested))


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
