"""Rules about risk: what can be undone says how, what cannot passes a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import Gate, ToolStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.scopes import Place


@rule("compensate")
def compensate(context: Context) -> Iterator[Told]:
    """A reversible step says how it is undone; no other step does."""
    for place in context.steps(ToolStep):
        name, step = place.name, place.step
        if step.risk == "reversible" and step.compensate is None:
            remedy = "Add `compensate: {tool: ..., with: ...}`, or call it irreversible."
            yield (*place.at, "risk"), f"`{name}` is reversible but does not say how it is undone", remedy
        if step.risk != "reversible" and step.compensate is not None:
            told = f"`compensate` means nothing for a step of risk `{step.risk}`"
            yield (*place.at, "compensate"), told, "Remove it, or set `risk: reversible`."


@rule("reconcile")
def reconcile(context: Context) -> Iterator[Told]:
    """Only a call with an effect has an outcome to find out."""
    for place in context.steps(ToolStep):
        step = place.step
        if step.risk == "read" and step.reconcile is not None:
            told = "`reconcile` means nothing for a step of risk `read`: it is simply repeated"
            yield (*place.at, "reconcile"), told, "Remove it."


@rule("irreversible_gate")
def irreversible_gate(context: Context) -> Iterator[Told]:
    """Every path to an irreversible step passes a gate that approves it."""
    for place in context.steps(ToolStep):
        name, step = place.name, place.step
        if step.risk != "irreversible":
            continue
        gates = _gates(place)
        relations = place.scope.relations
        if name in relations.templates:
            told = f"the irreversible `{name}` cannot be a fallback: no gate stands before it"
            yield place.at, told, "Let a person decide in a step of its own."
        elif not gates:
            where = " in the same graph" if place.scope.outer else ""
            remedy = f"Add a human_gate with `approves: {name}` before it{where}."
            yield (*place.at, "risk"), f"the irreversible `{name}` has no gate that approves it", remedy
        elif name in relations.reachable(without=gates):
            yield _bypass(place, gates)


@rule("effect_retry")
def effect_retry(context: Context) -> Iterator[Told]:
    """An irreversible call is never retried by itself, a reversible one once."""
    for place in context.steps(ToolStep):
        name, step = place.name, place.step
        retries = step.retry.max_retries if step.retry else 0
        path = (*place.at, "retry")
        if step.risk == "irreversible" and retries > 0:
            told = f"the irreversible `{name}` must not be retried"
            yield path, told, "Remove `retry`; an interrupted call is reconciled or shown to a person."
        elif step.risk == "reversible" and retries > 1:
            yield path, f"the reversible `{name}` may be retried once", "Set `max_retries: 1`."


def _gates(place: Place[ToolStep]) -> frozenset[str]:
    """Return the gates that approve a step: those of its own graph, for a person decides about exact arguments."""
    steps = {name: step.approves for name, step in place.scope.steps.items() if isinstance(step, Gate)}
    ghosts = {name: ghost.approves for name, ghost in place.scope.ghosts.items()}
    return frozenset(name for name, approved in (*steps.items(), *ghosts.items()) if approved == place.name)


def _bypass(place: Place[ToolStep], gates: frozenset[str]) -> Told:
    relations = place.scope.relations
    open_steps = relations.reachable(without=gates | {place.name})
    around = next((source for source in relations.sources[place.name] if source in open_steps), None)
    way = f"through `{around}` without its gate" if around else "without its gate"
    remedy = f"Let it need only the gate: outputs of `{around or 'others'}` can be used anyway if the gate comes later."
    return (*place.at, "needs"), f"the irreversible `{place.name}` can be reached {way}", remedy
