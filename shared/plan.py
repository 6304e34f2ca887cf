"""From a checked workflow to the manifest: everything resolved that the runtime would otherwise have to look up.

Durations are seconds, money is nano-USD, prompts stand inline, policies are filled in from type and risk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from shared.definition.models import Agent, Gate, Reconcile, Router, ToolStep, Transform
from shared.definition.units import nano_usd
from shared.graph import awaits
from shared.graph.dag import topological
from shared.manifest import Edge, Limits, Manifest, Retry, Risk, StepPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.definition.models import AnyStep, Budget, ToolCall, Workflow
    from shared.definition.models import Retry as RetryField
    from shared.graph import Tree
    from shared.manifest import OnError

DEFAULT_RETRIES = 2
"""For all that has no effect outside: asking a model or a person again is safe, and so is what a dead process left."""
REVERSIBLE_RETRIES = 1
"""At most one, with the same idempotency key (risk policy)."""


def plan(workflow: Workflow, costs: Mapping[str, int]) -> Manifest:
    """Return the manifest, without hash and wakes.

    Args:
        workflow: A workflow that the checks have passed.
        costs: What one call of each tool costs at most, in nano-USD.

    Raises:
        CycleError: steps wait for each other.
    """
    templates = _templates(workflow)
    order = topological({name: _sources(step) for name, step in workflow.steps.items() if name not in templates})
    return Manifest(
        workflow=workflow.workflow,
        hash="",
        input=workflow.input,
        budget=_limits(workflow.budget),
        steps={name: _step(name, workflow, costs) for name in workflow.steps},
        order=order,
        max_parallel=workflow.max_parallel,
        on_error=workflow.on_error,
        description=workflow.description,
    )


def with_wakes(manifest: Manifest, tree: Tree) -> Manifest:
    """Note in every step which awaits of the tree its settling must answer."""
    listeners: dict[str, list[str]] = {}
    for parked in awaits(tree):
        for source in parked.sources:
            listeners.setdefault(source, []).append(parked.step)
    steps = {name: replace(step, wakes=tuple(sorted(listeners.get(name, ())))) for name, step in manifest.steps.items()}
    return replace(manifest, steps=steps)


def _templates(workflow: Workflow) -> set[str]:
    """Return the steps that only stand in for others: named as a fallback, and no part of the graph."""
    used = {step.fallback for step in workflow.steps.values()}
    needed = {need.step for step in workflow.steps.values() for need in step.needs}
    return {name for name, step in workflow.steps.items() if name in used and not step.needs and name not in needed}


def _sources(step: AnyStep) -> tuple[str, ...]:
    return tuple(need.step for need in step.needs)


def _step(name: str, workflow: Workflow, costs: Mapping[str, int]) -> StepPlan:
    step = workflow.steps[name]
    return StepPlan(
        id=name,
        type=step.type,
        needs=tuple(Edge(need.step, need.when, workflow.steps[need.step].optional) for need in step.needs),
        dependents=tuple(other for other, its in workflow.steps.items() if name in _sources(its)),
        join=step.join,
        merge=step.merge,
        when=step.when,
        timeout=step.timeout,
        retry=_retry(step),
        fallback=step.fallback,
        on_error=_on_error(step, workflow.on_error),
        optional=step.optional,
        risk=_risk(step),
        output=step.output,
        budget=_limits(step.budget),
        approved_by=next((gate for gate, its in workflow.steps.items() if _approves(its) == name), None),
        spec=_spec(step, costs),
    )


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


def _spec(step: AnyStep, costs: Mapping[str, int]) -> dict[str, Any]:
    match step:
        case Agent():
            return _fields(step, "portable", "system", "prompt", "max_tokens", "temperature") | {
                "model": list(step.model)
            }
        case ToolStep():
            return _tool_spec(step, costs)
        case Transform():
            return {"set": step.assign}
        case Router():
            routes = [route.model_dump(exclude_none=True) for route in step.routes]
            given = _fields(step, "strategy", "default", "prompt", "value")
            return given | {"routes": routes, "model": list(step.model)}
        case Gate():
            given = _fields(step, "approves", "subject", "show", "on_expiry", "not_initiator")
            return given | {"approvers": list(step.approvers), "channels": list(step.channels)}
        case _:
            assert_never(step)


def _fields(step: AnyStep, *names: str) -> dict[str, Any]:
    return {name: getattr(step, name) for name in names}


def _tool_spec(step: ToolStep, costs: Mapping[str, int]) -> dict[str, Any]:
    return _call(step) | {
        "cost": costs.get(step.tool, 0),
        "compensate": _call(step.compensate) if step.compensate else None,
        "reconcile": _reconcile(step.reconcile) if step.reconcile else None,
    }


def _call(call: ToolCall | ToolStep) -> dict[str, Any]:
    return {"tool": call.tool, "with": call.arguments}


def _reconcile(probe: Reconcile) -> dict[str, Any]:
    return _call(probe) | {"found": probe.found, "conclusive_after": probe.conclusive_after}
