"""Rules about human gates: what they approve, and that a person can see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import ExpressionFailure, template_references
from shared.definition.models import Gate, ToolStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.scopes import Place
    from shared.definition.yaml_tree import Path


@rule("gate_target")
def gate_target(context: Context) -> Iterator[Told]:
    """A gate approves a tool step that needs it, and no step is approved by two gates."""
    owners: dict[Path, str] = {}
    for place in context.steps(Gate):
        name, approved = place.name, place.step.approves
        target = place.scope.at_name(approved or "")
        path = (*place.at, "approves")
        if target is None:
            continue
        if not isinstance(target.step, ToolStep):
            yield path, f"`{approved}` is no tool step: only exact arguments can be approved", "Name a tool step."
        elif name not in {need.step for need in target.step.needs}:
            remedy = f"Add `{name}` to the `needs` of `{approved}`."
            yield path, f"`{approved}` does not need the gate `{name}`", remedy
        if target.at in owners:
            yield path, f"`{approved}` is already approved by `{owners[target.at]}`", "One gate approves a step."
        owners.setdefault(target.at, name)


@rule("gate_arguments")
def gate_arguments(context: Context) -> Iterator[Told]:
    """The arguments to approve are known when the gate opens."""
    for place in context.steps(Gate):
        target = place.scope.at_name(place.step.approves or "")
        if target is None or not isinstance(target.step, ToolStep):
            continue
        for key, value in target.step.arguments.items():
            for late in _late(place, value):
                told = f"`{key}` uses `{late}`, which is not known yet when `{place.name}` opens"
                remedy = f"Let `{place.name}` need it, or leave it out: a person approves exact arguments."
                yield (*target.at, "with", key), told, remedy


@rule("gate_expiry")
def gate_expiry(context: Context) -> Iterator[Told]:
    """Nobody's silence approves what cannot be undone."""
    for place in context.steps(Gate):
        approved = place.step.approves
        target = place.scope.steps.get(approved or "")
        if place.step.on_expiry == "approve" and isinstance(target, ToolStep) and target.risk == "irreversible":
            told = f"`on_expiry: approve` would run the irreversible `{approved}` without a person"
            yield (*place.at, "on_expiry"), told, "Use reject, fail or pause."


def _late(gate: Place[Gate], template: object) -> list[str]:
    """Return what a template uses that is unknown when the gate opens: steps that it does not wait for, and itself."""
    try:
        used = template_references(template)
    except ExpressionFailure:
        return []
    steps = {one.fields[0] for one in used if one.root == "steps" and one.fields}
    late = {name for name in steps if gate.scope.knows(name) and not gate.scope.relations.waits_for(gate.name, name)}
    merged = ["inputs"] if any(one.root == "inputs" for one in used) else []
    return [*(f"steps.{name}" for name in sorted(late)), *merged]
