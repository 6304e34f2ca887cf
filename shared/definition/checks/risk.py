"""Rules about risk: what can be undone says how, what cannot passes a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import Gate, ToolStep

if TYPE_CHECKING:
    from collections.abc import Iterator


@rule("compensate")
def compensate(context: Context) -> Iterator[Told]:
    """A reversible step says how it is undone; no other step does."""
    for name, step in context.steps(ToolStep):
        if step.risk == "reversible" and step.compensate is None:
            remedy = "Add `compensate: {tool: ..., with: ...}`, or call it irreversible."
            yield ("steps", name, "risk"), f"`{name}` is reversible but does not say how it is undone", remedy
        if step.risk != "reversible" and step.compensate is not None:
            told = f"`compensate` means nothing for a step of risk `{step.risk}`"
            yield ("steps", name, "compensate"), told, "Remove it, or set `risk: reversible`."


@rule("reconcile")
def reconcile(context: Context) -> Iterator[Told]:
    """Only a call with an effect has an outcome to find out."""
    for name, step in context.steps(ToolStep):
        if step.risk == "read" and step.reconcile is not None:
            told = "`reconcile` means nothing for a step of risk `read`: it is simply repeated"
            yield ("steps", name, "reconcile"), told, "Remove it."


@rule("irreversible_gate")
def irreversible_gate(context: Context) -> Iterator[Told]:
    """Every path to an irreversible step passes a gate that approves it."""
    for name, step in context.steps(ToolStep):
        if step.risk != "irreversible":
            continue
        gates = frozenset(gate for gate, body in context.steps(Gate) if body.approves == name)
        if name in context.relations.templates:
            told = f"the irreversible `{name}` cannot be a fallback: no gate stands before it"
            yield ("steps", name), told, "Let a person decide in a step of its own."
        elif not gates:
            remedy = f"Add a human_gate with `approves: {name}` before it."
            yield ("steps", name, "risk"), f"the irreversible `{name}` has no gate that approves it", remedy
        elif name in context.relations.reachable(without=gates):
            yield _bypass(context, name, gates)


@rule("effect_retry")
def effect_retry(context: Context) -> Iterator[Told]:
    """An irreversible call is never retried by itself, a reversible one once."""
    for name, step in context.steps(ToolStep):
        retries = step.retry.max_retries if step.retry else 0
        path = ("steps", name, "retry")
        if step.risk == "irreversible" and retries > 0:
            told = f"the irreversible `{name}` must not be retried"
            yield path, told, "Remove `retry`; an interrupted call is reconciled or shown to a person."
        elif step.risk == "reversible" and retries > 1:
            yield path, f"the reversible `{name}` may be retried once", "Set `max_retries: 1`."


def _bypass(context: Context, name: str, gates: frozenset[str]) -> Told:
    open_steps = context.relations.reachable(without=gates | {name})
    around = next(source for source in context.relations.sources[name] if source in open_steps)
    told = f"the irreversible `{name}` can be reached through `{around}` without its gate"
    remedy = f"Let it need only the gate: outputs of `{around}` can be used anyway when the gate comes after it."
    return ("steps", name, "needs"), told, remedy
