"""From a checked workflow to the manifest: everything resolved that the runtime would otherwise have to look up.

Durations are seconds, money is nano-USD, prompts stand inline, policies are filled in from type and risk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, assert_never, cast

from shared.definition.models import (
    MAX_TURNS,
    Agent,
    AgentTool,
    Gate,
    Loop,
    Map,
    Reconcile,
    Router,
    SubWorkflow,
    ToolStep,
    Transform,
    Wait,
)
from shared.definition.triggers import DEFAULT_INPUT
from shared.definition.units import nano_usd
from shared.graph import awaits
from shared.graph.dag import topological
from shared.manifest import MOST_CALLS, Body, Edge, Limits, Manifest, Retry, Risk, StepPlan, Trigger, Turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.definition.models import AnyStep, Budget, ToolCall, Workflow
    from shared.definition.models import Retry as RetryField
    from shared.definition.triggers import Kind, Start
    from shared.graph import Tree
    from shared.manifest import OnError, StepType
    from shared.tools.registry import Tool

DEFAULT_RETRIES = 2
"""For all that has no effect outside: asking a model or a person again is safe, and so is what a dead process left."""
REVERSIBLE_RETRIES = 1
"""At most one, with the same idempotency key (risk policy)."""
MAX_CONCURRENCY = 40
"""Iterations of an inline map at once. Source: Step Functions Developer Guide, "Map state", inline mode."""

_REFERENCE = re.compile(r"\$\{\s*([a-z0-9_]+(?:\.[A-Za-z0-9_]+)*)\s*\}")


def plan(workflow: Workflow, tools: Mapping[str, Tool]) -> Manifest:
    """Return the manifest, without hash and wakes.

    Args:
        workflow: A workflow that the checks have passed.
        tools: The tools that it names.

    Raises:
        CycleError: steps wait for each other.
    """
    whole = _Graph(workflow.steps, workflow, tools).body()
    return Manifest(
        workflow=workflow.workflow,
        hash="",
        input=workflow.input,
        budget=_limits(workflow.budget),
        steps=whole.steps,
        order=whole.order,
        max_parallel=workflow.max_parallel,
        on_error=workflow.on_error,
        description=workflow.description,
        deadline=workflow.deadline,
        triggers=tuple(_trigger(kind, start) for entry in workflow.triggers for kind, start in entry.kinds()),
    )


def _trigger(kind: Kind, start: Start) -> Trigger:
    given = start.model_dump(exclude={"id", "tenant", "input"})
    return Trigger(kind, start.id, start.tenant, DEFAULT_INPUT[kind] if start.input is None else start.input, given)


@dataclass(frozen=True, slots=True)
class _Graph:
    """One graph of a workflow: its own steps, or those in the body of a map or a loop."""

    steps: Mapping[str, AnyStep]
    workflow: Workflow
    tools: Mapping[str, Tool]
    around: Mapping[str, AnyStep] = field(default_factory=dict[str, "AnyStep"])

    def body(self) -> Body:
        """Return all plans, and the order of those that are no templates."""
        templates = _templates(self.steps)
        needs = {name: _sources(step) for name, step in self.steps.items() if name not in templates}
        return Body({name: self._plan(name, step) for name, step in self.steps.items()}, topological(needs))

    def _plan(self, name: str, step: AnyStep) -> StepPlan:
        return StepPlan(
            id=name,
            type=_type(step),
            needs=tuple(Edge(need.step, need.when, self.steps[need.step].optional) for need in step.needs),
            dependents=tuple(other for other, its in self.steps.items() if name in _sources(its)),
            join=step.join,
            merge=step.merge,
            when=step.when,
            timeout=_timeout(step),
            retry=_retry(step),
            fallback=step.fallback,
            on_error=_on_error(step, self.workflow.on_error),
            optional=step.optional,
            risk=_risk(step),
            output=step.output,
            budget=Limits() if _takes_turns(step) else _limits(step.budget),
            approved_by=next((gate for gate, its in self.steps.items() if _approves(its) == name), None),
            spec=self._spec(step),
            body=self._inside(step),
            turns=self._turns(step) if isinstance(step, Agent) and step.tools else None,
            apart=isinstance(step, Map | Loop) and step.apart,
        )

    def _turns(self, step: Agent) -> Turns:
        """Return what an agent with tools does. Its own budget is that of all its turns and calls together."""
        limits, policy = _limits(step.budget), _on_error(step, self.workflow.on_error)
        keep = {"keep_turns": step.context.keep_turns if step.context else 0}
        turn = StepPlan(
            id="turn",
            type="turn",
            timeout=step.timeout,
            retry=_given(step.retry) if step.retry else Retry(max_retries=DEFAULT_RETRIES),
            # What a person can mend stays where it is; the rest is for the agent's own fallback and policy.
            on_error="pause" if policy == "pause" and step.fallback is None else "continue",
            output=step.output,
            budget=limits,
            spec=_fields(step, "portable", "max_tokens", "temperature") | {"model": list(step.model)} | keep,
        )
        tools = {tool.name: self._agent_tool(tool, limits) for tool in step.tools}
        return Turns(turn, tools, step.max_turns or MAX_TURNS, min(MOST_CALLS, self.workflow.max_parallel))

    def _agent_tool(self, tool: AgentTool, limits: Limits) -> StepPlan:
        """Return the plan of the calls of one tool: a failure that leaves no doubt is for the model to read."""
        known = self.tools.get(tool.name)
        offer: dict[str, Any] = {
            "description": tool.description or (known.description if known else ""),
            "parameters": known.parameters if known else {},
        }
        return StepPlan(
            id=tool.name,
            type="tool",
            timeout=tool.timeout,
            retry=Retry(max_retries=DEFAULT_RETRIES if tool.risk == "read" else REVERSIBLE_RETRIES),
            on_error="continue",
            risk=tool.risk,
            budget=limits,
            spec={"tool": tool.name, **_effect(tool, self.tools), **offer},
        )

    def _inside(self, step: AnyStep) -> Body | None:
        if not isinstance(step, Map | Loop):
            return None
        return replace(self, steps=step.steps, around={**self.around, **self.steps}).body()

    def _spec(self, step: AnyStep) -> dict[str, Any]:
        match step:
            case ToolStep():
                return {**_call(step), **_effect(step, self.tools)}
            case Map():
                return self._map_spec(step)
            case _:
                return _spec(step)

    def _map_spec(self, step: Map) -> dict[str, Any]:
        cautious = "collect_all" if all(map(_harmless, step.steps.values())) else "fail_fast"
        rule = step.on_failure or cautious
        own = min(self.workflow.max_parallel, MAX_CONCURRENCY)
        return {
            "over": step.over,
            "as": step.name,
            "max_concurrency": own if step.max_concurrency is None else step.max_concurrency,
            "on_failure": {"quorum": rule} if isinstance(rule, int) else rule,
            "collect": step.collect,
            "max_items": self._max_items(step.over),
        }

    def _max_items(self, over: Any) -> int | None:
        """Return how many items there can be: by a literal list, or by the schema that ``over`` points into."""
        if isinstance(over, list):
            return len(cast("list[Any]", over))
        found = _REFERENCE.fullmatch(over.strip())
        names = found[1].split(".") if found else [""]
        schema = self._schema(names)
        return schema["maxItems"] if schema and isinstance(schema.get("maxItems"), int) else None

    def _schema(self, names: Sequence[str]) -> Mapping[str, Any] | None:
        match names:
            case ["input", *rest]:
                return _part(self.workflow.input, rest)
            case ["steps", step, "output", *rest] if step in self._visible and self._visible[step].output:
                return _part(self._visible[step].output, rest)
            case _:
                return None

    @property
    def _visible(self) -> Mapping[str, AnyStep]:
        return {**self.around, **self.steps}


def _part(schema: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the schema of a property, several levels down, if it is written where it is looked for."""
    found = cast("dict[str, Any] | None", schema if isinstance(schema, dict) else None)
    for name in names:
        found = (found or {}).get("properties", {}).get(name)
    return found


def _harmless(step: AnyStep) -> bool:
    if isinstance(step, Map | Loop):
        return all(map(_harmless, step.steps.values()))
    if isinstance(step, Agent):
        return all(tool.risk == "read" for tool in step.tools)
    return _risk(step) == "read" and not isinstance(step, SubWorkflow)


def with_wakes(steps: Mapping[str, StepPlan], tree: Tree) -> dict[str, StepPlan]:
    """Note in every step of a graph which awaits of its tree the step's settling must answer."""
    listeners: dict[str, list[str]] = {}
    for parked in awaits(tree):
        for source in parked.sources:
            listeners.setdefault(source, []).append(parked.step)
    return {name: replace(step, wakes=tuple(sorted(listeners.get(name, ())))) for name, step in steps.items()}


def _templates(steps: Mapping[str, AnyStep]) -> set[str]:
    """Return the steps that only stand in for others: named as a fallback, and no part of the graph."""
    used = {step.fallback for step in steps.values()}
    needed = {need.step for step in steps.values() for need in step.needs}
    return {name for name, step in steps.items() if name in used and not step.needs and name not in needed}


def _sources(step: AnyStep) -> tuple[str, ...]:
    return tuple(need.step for need in step.needs)


def _takes_turns(step: AnyStep) -> bool:
    return isinstance(step, Agent) and bool(step.tools)


def _type(step: AnyStep) -> StepType:
    return "turns" if _takes_turns(step) else step.type


def _timeout(step: AnyStep) -> float:
    return step.event.timeout if isinstance(step, Wait) and step.event else step.timeout


def _approves(step: AnyStep) -> str | None:
    return step.approves if isinstance(step, Gate) else None


def _on_error(step: AnyStep, otherwise: OnError) -> OnError:
    if step.on_error is not None:
        return step.on_error
    # A person has just decided; asking one again what the decision means would be no pause but a loop.
    return "fail" if isinstance(step, Gate) and otherwise == "pause" else otherwise


def _risk(step: AnyStep) -> Risk:
    return step.risk if isinstance(step, ToolStep) else "read"


def _retry(step: AnyStep) -> Retry:
    given = _given(step.retry) if step.retry else None
    if isinstance(step, ToolStep) and step.risk != "read":
        most = REVERSIBLE_RETRIES if step.risk == "reversible" else 0
        given = given or Retry(max_retries=most)
        return replace(given, max_retries=min(given.max_retries, most))
    if isinstance(step, Map | Loop) or _takes_turns(step):
        return Retry(max_retries=0)  # what failed inside has had its own retries
    if isinstance(step, Wait | SubWorkflow):
        return given or Retry(max_retries=DEFAULT_RETRIES, on=("transient",))  # their time-outs are final
    return given or Retry(max_retries=DEFAULT_RETRIES)


def _given(retry: RetryField) -> Retry:
    return Retry(
        max_retries=retry.max_retries,
        backoff=retry.backoff,
        base_delay=retry.base_delay,
        max_delay=retry.max_delay,
        jitter=retry.jitter,
        on=tuple(retry.on),
    )


def _limits(budget: Budget) -> Limits:
    usd = None if budget.usd is None else nano_usd(budget.usd)
    return Limits(usd, budget.tokens, budget.steps, budget.active_time)


def _spec(step: Agent | Transform | Router | Gate | Loop | Wait | SubWorkflow) -> dict[str, Any]:
    match step:
        case Agent() if step.tools:
            return _fields(step, "system", "prompt")
        case Agent():
            fields = _fields(step, "portable", "system", "prompt", "max_tokens", "temperature")
            return fields | {"model": list(step.model)}
        case Transform():
            return {"set": step.assign}
        case Router():
            routes = [route.model_dump(exclude_none=True) for route in step.routes]
            given = _fields(step, "strategy", "default", "prompt", "value")
            return given | {"routes": routes, "model": list(step.model)}
        case Gate():
            given = _fields(step, "approves", "subject", "show", "on_expiry", "not_initiator")
            given |= {"approvers": list(step.approvers), "channels": list(step.channels)}
            # Only where it is said: versions that were published before these fields existed stay comparable.
            own = {"edit": step.edit} if step.edit else {}
            return given | own | _tiers(step) | ({"quorum": step.quorum} if step.quorum > 1 else {})
        case _:
            return _spec_around(step)


def _tiers(gate: Gate) -> dict[str, Any]:
    """Return when a gate reminds and escalates, where it does."""
    tiers = [{"after": tier.after, "to": list(tier.to)} for tier in gate.escalate]
    reminds = {} if gate.remind_after is None else {"remind_after": gate.remind_after}
    return reminds | ({"escalate": tiers} if tiers else {})


def _spec_around(step: Loop | Wait | SubWorkflow) -> dict[str, Any]:
    match step:
        case Loop():
            return _fields(step, "until", "max_iterations", "collect")
        case Wait():
            return _wait_spec(step)
        case SubWorkflow():
            return _fields(step, "workflow", "version") | {"with": step.arguments}
        case _:
            assert_never(step)


def _wait_spec(step: Wait) -> dict[str, Any]:
    if step.event:
        return {"event": {"name": step.event.name, "match": step.event.match, "timeout": step.event.timeout}}
    return {"for": step.duration} if step.duration is not None else {"until": step.until}


def _fields(step: AnyStep, *names: str) -> dict[str, Any]:
    return {name: getattr(step, name) for name in names}


def _effect(step: ToolStep | AgentTool, tools: Mapping[str, Tool]) -> dict[str, Any]:
    """Return what a call costs at most, how it is undone, and how it is looked for."""
    name = step.name if isinstance(step, AgentTool) else step.tool
    return {
        "cost": tools[name].cost if name in tools else 0,
        "compensate": _call(step.compensate) if step.compensate else None,
        "reconcile": _reconcile(step.reconcile) if step.reconcile else None,
    }


def _call(call: ToolCall | ToolStep) -> dict[str, Any]:
    return {"tool": call.tool, "with": call.arguments}


def _reconcile(probe: Reconcile) -> dict[str, Any]:
    return _call(probe) | {"found": probe.found, "conclusive_after": probe.conclusive_after}
