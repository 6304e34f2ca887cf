"""Rules about human gates: what they approve, and that a person can see it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.checks.tools import parameters_of
from shared.definition.expressions import ExpressionFailure, template_references
from shared.definition.fit import misfits
from shared.definition.models import Gate, ToolStep
from shared.definition.names import listed, nearest
from shared.definition.units import spelled
from shared.definition.validation import schema_complaint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.scopes import Place
    from shared.definition.yaml_tree import Path
    from shared.errors import Finding


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


@rule("gate_tiers")
def gate_tiers(context: Context) -> Iterator[Told]:
    """Each tier of a gate begins after the one before it, while the gate is open, and adds somebody."""
    for place in context.steps(Gate):
        before, known = 0.0, set(place.step.approvers)
        for index, tier in enumerate(place.step.escalate):
            at = (*place.at, "escalate", index)
            if tier.after <= before:
                told = f"this tier begins after {spelled(tier.after)}, and the one before it after {spelled(before)}"
                yield (*at, "after"), told, "`after` counts from the gate's opening: list the tiers in their order."
            elif tier.after >= place.step.timeout:
                told = f"the gate ends after {spelled(place.step.timeout)}, before this tier begins"
                yield (*at, "after"), told, "Shorten it, or raise the `timeout`."
            twice = [role for number, role in enumerate(tier.to) if role in known or role in tier.to[:number]]
            if twice:
                told = f"{listed(dict.fromkeys(twice))} may decide already"
                yield (*at, "to"), told, "Name each role once: whoever may decide still may in every later tier."
            before, known = max(before, tier.after), known | {*tier.to}


@rule("gate_reminder")
def gate_reminder(context: Context) -> Iterator[Told | Finding]:
    """A tier is reminded before it is over. Warns where that holds for some tiers only."""
    for place in context.steps(Gate):
        after, path, lengths = place.step.remind_after, (*place.at, "remind_after"), _lengths(place.step)
        if after is None or not lengths:
            continue
        late = [number for number, length in enumerate(lengths, 1) if length <= after]
        if len(lengths) == len(late) == 1:
            told = f"the gate ends after {spelled(place.step.timeout)}: nobody is reminded after {spelled(after)}"
            yield path, told, "Shorten it, or raise the `timeout`."
        elif len(lengths) == len(late):
            told = f"no tier lasts longer than {spelled(max(lengths))}: nobody is reminded after {spelled(after)}"
            yield path, told, "Shorten it, or let the tiers begin later: it counts from each tier's beginning."
        elif late:
            told = f"tier {', '.join(map(str, late))} is over before it is reminded after {spelled(after)}"
            remedy = "Shorten it, or let the next tier begin later."
            yield replace(context.loaded.finding("gate_reminder", path, told, remedy), severity="warning")


def _lengths(gate: Gate) -> list[float]:
    """Return how long (s) each tier lasts; none where their order is wrong, which is another rule's."""
    begins = [0.0, *(tier.after for tier in gate.escalate), gate.timeout]
    lengths = [end - begin for begin, end in pairwise(begins)]
    return lengths if min(lengths) > 0 else []


@rule("gate_edit")
def gate_edit(context: Context) -> Iterator[Told]:
    """What a person may change are arguments of the step that is approved, and stays what its tool takes."""
    for place in context.steps(Gate):
        step, path = place.step, (*place.at, "edit")
        if step.edit is None:
            continue
        target = place.scope.at_name(step.approves or "")
        if step.approves is None:
            remedy = "Name the tool step in `approves`, or remove `edit`."
            yield path, "`edit` means nothing without `approves`: what is changed are a step's arguments", remedy
        elif step.edit.get("type") != "object" or not isinstance(step.edit.get("properties"), dict):
            remedy = "Write `{type: object, properties: {...}}` with the arguments that may be changed."
            yield path, "`edit` must be an object's schema that names its properties", remedy
        elif target is not None and isinstance(target.step, ToolStep) and schema_complaint(step.edit) is None:
            yield from _unfit_edits(context, target.step, step, path)


def _unfit_edits(context: Context, approved: ToolStep, gate: Gate, at: Path) -> Iterator[Told]:
    schema: dict[str, Any] = gate.edit or {}
    parameters = parameters_of(context.tools.get(approved.tool)) or {}
    for name, inner in schema["properties"].items():
        path = (*at, "properties", name)
        if name not in approved.arguments:
            remedy = nearest(name, approved.arguments) or f"Arguments: {listed(approved.arguments)}."
            yield path, f"`{gate.approves}` has no argument `{name}`", remedy
        elif "secrets" in _roots(approved.arguments[name]):
            told = f"`{name}` holds a secret: who may change what stands around it decides where the secret goes"
            yield path, told, "Leave the argument out."
        elif _is_marked(inner):
            told = f"`{name}` is marked with `x-redact`, but what a person approves is kept exactly as it runs"
            yield path, told, "Remove the mark, or leave the argument out."
        elif isinstance(inner, dict):
            wanted = {**parameters.get("properties", {}).get(name, {}), "$defs": parameters.get("$defs", {})}
            for told in misfits({**cast("dict[str, Any]", inner), "$defs": schema.get("$defs", {})}, wanted):
                yield path, f"`{name}` of `{approved.tool}`: {told}", "What may be typed must be what the tool takes."


def _roots(template: object) -> set[str]:
    try:
        return {used.root for used in template_references(template)}
    except ExpressionFailure:
        return set()


def _is_marked(schema: Any) -> bool:
    """Tell whether a schema, or any part of it, says that what fits it must not be kept."""
    if isinstance(schema, dict):
        parts = cast("dict[str, Any]", schema)
        return parts.get("x-redact") is True or any(map(_is_marked, parts.values()))
    return isinstance(schema, list) and any(map(_is_marked, cast("list[Any]", schema)))


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
