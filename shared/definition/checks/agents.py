"""Rules about agents with tools: what a model may call, at what risk, and how often it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.fit import misfits
from shared.definition.models import Agent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.models import AgentTool
    from shared.definition.yaml_tree import Path

MOST_TURNS = 100
MOST_TOOLS = 32


@rule("agent_turns")
def agent_turns(context: Context) -> Iterator[Told]:
    """Only an agent with tools has turns, and they are bounded."""
    for place in context.steps(Agent):
        step = place.step
        for field in ("max_turns", "context"):
            if getattr(step, field) is not None and not step.tools:
                told = f"`{field}` means nothing for an agent without `tools`: it is asked once"
                yield (*place.at, field), told, "Remove it, or name its `tools`."
        if (step.max_turns or 0) > MOST_TURNS:
            told = f"{step.max_turns:,} turns are as good as no bound"
            yield (*place.at, "max_turns"), told, f"At most {MOST_TURNS}: say what can make sense."


@rule("agent_tools")
def agent_tools(context: Context) -> Iterator[Told]:
    """A model chooses among a few tools, each offered once."""
    for place in context.steps(Agent):
        if len(place.step.tools) > MOST_TOOLS:
            told = f"{len(place.step.tools)} tools are more than the {MOST_TOOLS} that an agent may have"
            yield (*place.at, "tools"), told, "Divide the work among several agents."
    for path, tool, before in _offers(context):
        if tool.name in before:
            yield (*path, "tool"), f"`{tool.tool}` is offered twice", "Remove one of them."


@rule("agent_risk")
def agent_risk(context: Context) -> Iterator[Told]:
    """What a model may call changes nothing, or says how it is undone."""
    for path, tool, _ in _offers(context):
        if tool.risk == "irreversible":
            told = f"a model cannot be let call the irreversible `{tool.tool}`: no person could approve its arguments"
            remedy = "Make it a step of its own after the agent, behind a human_gate with `approves`."
            yield (*path, "risk"), told, remedy
        elif tool.risk == "reversible" and tool.compensate is None:
            remedy = "Add `compensate: {tool: ..., with: ...}`, or make it a step of its own behind a gate."
            yield (*path, "risk"), f"`{tool.tool}` is reversible but does not say how it is undone", remedy
        for field in ("compensate", "reconcile"):
            if tool.risk == "read" and getattr(tool, field) is not None:
                yield (*path, field), f"`{field}` means nothing for a tool of risk `read`", "Remove it."


@rule("agent_probe")
def agent_probe(context: Context) -> Iterator[Told]:
    """What a probe finds stands in for the result of the call it looks for."""
    for path, tool, _ in _offers(context):
        wanted, probe = context.outputs.returns(tool.tool), tool.reconcile
        if tool.mcp:
            continue  # nobody knows what a server's tool returns
        given = context.outputs.returns(probe.tool) if probe else None
        for told in misfits(given, wanted) if given is not None and wanted is not None else ():
            remedy = f"What the probe finds becomes the result of `{tool.tool}`: return the same fields."
            yield (*path, "reconcile", "tool"), f"the probe's result does not fit: {told}", remedy


def _offers(context: Context) -> Iterator[tuple[Path, AgentTool, frozenset[str]]]:
    """Yield every tool of every agent with its path in the file, and the names of those before it."""
    for place in context.steps(Agent):
        names = [tool.name for tool in place.step.tools]
        for index, tool in enumerate(place.step.tools):
            yield (*place.at, "tools", index), tool, frozenset(names[:index])
