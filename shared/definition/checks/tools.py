"""Rules about tools: that they exist, and that arguments and results fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.definition.checks.arguments import value_faults
from shared.definition.checks.registry import Context, Told, rule
from shared.definition.fit import misfits
from shared.definition.models import Agent, Router, ToolStep
from shared.definition.names import listed, nearest
from shared.definition.scopes import general
from shared.definition.sites import Field
from shared.manifest import route_schema
from shared.tools.registry import Tool, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.definition.models import AgentTool, AnyStep
    from shared.definition.scopes import Place
    from shared.definition.yaml_tree import Path


@rule("unknown_tool")
def unknown_tool(context: Context) -> Iterator[Told]:
    """Every tool exists."""
    for path, name in _names(context):
        if name not in context.tools:
            remedy = nearest(name, context.tools) or f"Tools: {listed(sorted(context.tools))}."
            yield (*path, "tool"), f"there is no tool `{name}`", remedy


@rule("tool_signature")
def tool_signature(context: Context) -> Iterator[Told]:
    """Every tool that is used says the types of its arguments and result."""
    for path, name in _names(context):
        tool = context.tools.get(name)
        try:
            _ = (tool.parameters, tool.returns) if tool else None
        except ToolError as error:
            yield (*path, "tool"), str(error), "Correct the tool's module."


@rule("tool_arguments")
def tool_arguments(context: Context) -> Iterator[Told]:
    """Arguments are those of the tool, complete and of the right types."""
    for place, path, name, arguments in calls(context):
        schema = parameters_of(context.tools.get(name))
        if schema is None:
            continue
        known: dict[str, Any] = schema["properties"]
        for missing in (one for one in schema["required"] if one not in arguments):
            yield (*path, "with"), f"`{name}` needs the argument `{missing}`", f"Add `{missing}: ...`."
        for key, value in arguments.items():
            if key not in known:
                remedy = nearest(key, known) or f"Arguments: {listed(known)}."
                yield (*path, "with", key), f"`{name}` has no argument `{key}`", remedy
                continue
            wanted = {**known[key], "$defs": schema.get("$defs", {})}
            for told in value_faults(context, Field(place, (*path, "with", key), value), wanted):
                yield (*path, "with", key), f"`{key}` of `{name}`: {told}", ""


@rule("tool_output")
def tool_output(context: Context) -> Iterator[Told]:
    """A tool's result fits the step's declared output, and so does what stands in for it."""
    for place in context.steps(ToolStep):
        step = place.step
        returns, declared = context.outputs.returns(step.tool), context.outputs.schema(general(place))
        if returns is None or declared is None:
            continue
        for told in misfits(returns, declared):
            yield (*place.at, "output"), f"the result of `{step.tool}` does not fit: {told}", ""
        found = context.outputs.returns(step.reconcile.tool) if step.reconcile else None
        for told in misfits(found, declared) if found is not None else ():
            remedy = f"What the probe finds becomes the output of `{place.name}`: return the same fields."
            yield (*place.at, "reconcile", "tool"), f"the probe's result does not fit: {told}", remedy


@rule("fallback_output")
def fallback_output(context: Context) -> Iterator[Told]:
    """The output of a fallback fits the schema of the step it stands in for."""
    for place in context.places:
        stand_in = place.scope.at_name(place.step.fallback or "")
        if stand_in is None:
            continue
        wanted, given = _to_fit(context, place), context.outputs.schema(stand_in)
        for told in misfits(given, wanted) if given is not None and wanted is not None else ():
            remedy = "Give it an `output` that fits."
            yield (*place.at, "fallback"), f"the output of `{stand_in.name}` does not fit: {told}", remedy


def _to_fit(context: Context, place: Place[AnyStep]) -> Mapping[str, Any] | None:
    """Return what a step's fallback has to return; one that stands in for a router says which route is taken."""
    step = place.step
    if isinstance(step, Router):
        names = {str(route.to) for route in step.routes} | ({step.default} if step.default else set[str]())
        return route_schema(sorted(names))
    return context.outputs.schema(place) if step.output is not None else None


def _names(context: Context) -> Iterator[tuple[Path, str]]:
    """Yield every tool that is named: called by a step, or offered to an agent's model."""
    for place in context.steps(Agent):
        own = ((index, tool) for index, tool in enumerate(place.step.tools) if not tool.mcp)
        yield from (((*place.at, "tools", index), tool.tool) for index, tool in own)
    yield from ((path, name) for _, path, name, _ in calls(context))


def calls(context: Context) -> Iterator[tuple[Place[AnyStep], Path, str, Mapping[str, Any]]]:
    """Yield every use of a tool: the step, the path of the mapping that names the tool, the tool, its arguments."""
    for place in context.steps(ToolStep):
        yield general(place), place.at, place.step.tool, place.step.arguments
        yield from _beside(general(place), place.at, place.step)
    for place in context.steps(Agent):
        for index, tool in enumerate(place.step.tools):
            yield from _beside(general(place), (*place.at, "tools", index), tool)


def _beside(
    place: Place[AnyStep], path: Path, call: ToolStep | AgentTool
) -> Iterator[tuple[Place[AnyStep], Path, str, Mapping[str, Any]]]:
    """Yield what undoes a call, and what looks for it."""
    for field, other in (("compensate", call.compensate), ("reconcile", call.reconcile)):
        if other is not None:
            yield place, (*path, field), other.tool, other.arguments


def parameters_of(tool: Tool | None) -> Mapping[str, Any] | None:
    """Return the schema of a tool's arguments; None where there is no such tool, or it does not tell."""
    try:
        return tool.parameters if tool else None
    except ToolError:
        return None
