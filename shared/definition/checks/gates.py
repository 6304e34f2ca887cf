"""Rules about human gates: what they approve, and that a person can see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import ExpressionFailure, template_references
from shared.definition.models import Gate, ToolStep

if TYPE_CHECKING:
    from collections.abc import Iterator


@rule("gate_target")
def gate_target(context: Context) -> Iterator[Told]:
    """A gate approves a tool step that needs it, and no step is approved by two gates."""
    owners: dict[str, str] = {}
    for name, gate in context.steps(Gate):
        target = context.workflow.steps.get(gate.approves or "")
        path = ("steps", name, "approves")
        if target is None or gate.approves is None:
            continue
        if not isinstance(target, ToolStep):
            yield path, f"`{gate.approves}` is no tool step: only exact arguments can be approved", "Name a tool step."
        elif name not in {need.step for need in target.needs}:
            remedy = f"Add `{name}` to the `needs` of `{gate.approves}`."
            yield path, f"`{gate.approves}` does not need the gate `{name}`", remedy
        if gate.approves in owners:
            told = f"`{gate.approves}` is already approved by `{owners[gate.approves]}`"
            yield path, told, "One gate approves a step."
        owners.setdefault(gate.approves, name)


@rule("gate_arguments")
def gate_arguments(context: Context) -> Iterator[Told]:
    """The arguments to approve are known when the gate opens."""
    for name, gate in context.steps(Gate):
        target = context.workflow.steps.get(gate.approves or "")
        if not isinstance(target, ToolStep):
            continue
        for key, value in target.arguments.items():
            for late in sorted(step for step in _steps_in(value) if not context.relations.waits_for(name, step)):
                told = f"`{key}` uses `steps.{late}`, which is not known yet when `{name}` opens"
                remedy = f"Let `{name}` need `{late}`, or leave it out: a person approves exact arguments."
                yield ("steps", str(gate.approves), "with", key), told, remedy


@rule("gate_expiry")
def gate_expiry(context: Context) -> Iterator[Told]:
    """Nobody's silence approves what cannot be undone."""
    for name, gate in context.steps(Gate):
        target = context.workflow.steps.get(gate.approves or "")
        if gate.on_expiry == "approve" and isinstance(target, ToolStep) and target.risk == "irreversible":
            told = f"`on_expiry: approve` would run the irreversible `{gate.approves}` without a person"
            yield ("steps", name, "on_expiry"), told, "Use reject, fail or pause."


def _steps_in(template: object) -> set[str]:
    try:
        found = template_references(template)
    except ExpressionFailure:
        return set()
    return {used.fields[0] for used in found if used.root == "steps" and used.fields}
