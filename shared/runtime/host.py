"""Where the runtime runs: the ports a function was given, and the plan of the step at hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from shared.errors import PermanentFailure
from shared.manifest import Manifest, Retry, StepPlan, part_plan, route_schema
from shared.ports import Secrets
from shared.runtime.joins import merged
from shared.runtime.journal import Journal
from shared.runtime.scope import Scope, keys_for
from shared.runtime.scopes import COMPENSATE, FALLBACK, graph_at, is_call, is_part, scope_of, split_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ports import Blobs, Clock, Engine, Models, Store, Tools
    from shared.runtime.breaker import Breakers
    from shared.runtime.journal import Snapshot
    from shared.runtime.task import Task


@dataclass(frozen=True, slots=True)
class Published:
    """A published version: its number, the ARN that starts it, and what was compiled."""

    workflow: str
    version: int
    hash: str
    machine: str
    manifest: Manifest


class Definitions(Protocol):
    """Published definitions."""

    def manifest(self, workflow: str, version: int) -> Manifest:
        """Return a version's manifest. Raises NotFound when it is not published."""
        ...

    def published(self, workflow: str, version: int | None = None) -> Published:
        """Return a version, or the latest. Raises NotFound when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Host:
    """The ports that every function needs."""

    store: Store
    blobs: Blobs
    clock: Clock
    engine: Engine
    definitions: Definitions

    def journal(self, task: Task) -> Journal:
        """Return the journal of the task's run, in which the task changes nothing once its epoch is over."""
        return Journal(self.store, self.clock, task.tenant, task.run, task.epoch)

    def manifest(self, task: Task) -> Manifest:
        """Return the manifest that the task's run is pinned to."""
        return self.definitions.manifest(task.workflow, task.version)

    def keys(self, task: Task, plan: StepPlan) -> frozenset[str]:
        """Return the sort keys that deciding about ``plan`` in the task's scope needs."""
        return keys_for(self.manifest(task), plan, task.scope)

    def names(self, task: Task, seen: Snapshot, plan: StepPlan | None = None, **extra: Any) -> Scope:
        """Return the names that expressions see in the task's scope; with ``plan``, its merged ``inputs`` too."""
        scope = Scope(seen, self.blobs, self.manifest(task), task.scope, **extra)
        return scope if plan is None else merged(plan, task.scope, seen, scope)


class NoSecrets(Secrets):
    """Where nobody has put any."""

    def version(self, tenant: str, name: str) -> str:
        """Refuse. Raises PermanentFailure."""
        raise PermanentFailure(f"Tenant {tenant} has no secret {name}.")

    def value(self, tenant: str, name: str, version: str) -> str:
        """Refuse. Raises PermanentFailure."""
        raise PermanentFailure(f"Tenant {tenant} has no secret {name} with version {version}.")


NO_SECRETS = NoSecrets()


@dataclass(frozen=True, slots=True)
class StepHost(Host):
    """The ports of the function that calls models and tools. ``breakers`` None = its runs share none."""

    models: Models
    tools: Tools
    breakers: Breakers | None = None
    secrets: Secrets = NO_SECRETS


def plan_of(manifest: Manifest, path: str, template: str = "") -> StepPlan:
    """Return the plan of the step instance at ``path``, those beside a step included.

    ``template`` names the step that a fallback is made from, or the tool that an agent's call calls. Raises
    PermanentFailure for a path the definition lacks.
    """
    plan = manifest.steps.get(path)  # most steps are the workflow's own, which are named by nothing but their ids
    return plan or _plan_beside(manifest, path, template)


def _plan_beside(manifest: Manifest, path: str, template: str) -> StepPlan:
    if path.endswith(COMPENSATE):
        return compensation(plan_of(manifest, path.removesuffix(COMPENSATE), template))
    if path.endswith(FALLBACK):
        path = path.removesuffix(FALLBACK)
        return fallback(plan_of(manifest, path), graph_at(manifest, scope_of(path)), template)
    agent, inside = split_turn(path)
    if inside:
        return _inside(plan_of(manifest, agent), inside, template)
    scope = scope_of(path)
    plan = graph_at(manifest, scope).get(path.removeprefix(scope))
    if plan is None and is_part(path):
        return part_plan(path.removeprefix(scope))
    if plan is None:
        raise PermanentFailure(f"Version {manifest.hash[:12]} of {manifest.workflow} has no step {path}.")
    return plan


def plan_at(host: Host, task: Task, path: str) -> StepPlan:
    """Return the plan of the step instance at ``path``; which tool an agent's call calls, its record knows.

    Raises PermanentFailure for a path that the definition lacks.
    """
    template = task.template
    if is_call(path) and not template:
        own = path.removesuffix(COMPENSATE)
        record = host.journal(task).read([f"STEP#{own}"]).step(own)
        template = (record.tool if record else None) or ""
    return plan_of(host.manifest(task), path, template)


def _inside(plan: StepPlan, inside: str, tool: str) -> StepPlan:
    """Return the plan of an agent's turn, or of a call. Without its tool it is one of which nothing is known yet."""
    name, turns = f"{plan.id}{inside}", plan.turns
    if turns is None or (tool and tool not in turns.tools):
        raise PermanentFailure(f"{plan.id} is no agent with {f'the tool {tool}' if tool else 'turns'}.")
    if not is_call(name):
        return replace(turns.turn, id=name)
    if tool:
        return replace(turns.tools[tool], id=name)
    return StepPlan(id=name, type="tool", on_error="continue", slot=turns.turn.slot)


def compensation(plan: StepPlan) -> StepPlan:
    """Return the plan that undoes ``plan``: its ``compensate`` call, retried with one key like any reversible call."""
    undo = plan.spec.get("compensate")
    if not undo:
        raise PermanentFailure(f"Step {plan.id} declares no compensation.")
    retry = Retry(max_retries=3, on=("timeout", "rate_limit", "transient"))
    spec = {"tool": undo["tool"], "with": undo["with"], "cost": undo.get("cost", 0)}
    return StepPlan(id=plan.id, type="tool", timeout=plan.timeout, retry=retry, risk="reversible", spec=spec)


def fallback(plan: StepPlan, graph: Mapping[str, StepPlan], template: str) -> StepPlan:
    """Return the template step as it stands in for ``plan``: same edges, and the output schema it must fit.

    What stands in for a router says which route is taken.
    """
    stand_in = graph[template or plan.fallback or ""]
    stand_in = replace(stand_in, id=plan.id, needs=plan.needs, join=plan.join, when=None, output=plan.output)
    if plan.type != "router":
        return stand_in
    return replace(stand_in, output=route_schema(routes_of(plan)), spec={**stand_in.spec, "chooses": True})


def routes_of(plan: StepPlan) -> list[str]:
    """Return where a router may go."""
    return sorted({plan.spec["default"], *(route["to"] for route in plan.spec["routes"])})
