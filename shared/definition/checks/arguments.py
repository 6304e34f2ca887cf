"""Compares a value that a step passes on, a constant or a template, with the schema of what is expected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from shared.definition.expressions import ExpressionFailure, slots, sole_slot
from shared.definition.fit import misfits
from shared.definition.names import listed, nearest
from shared.definition.sites import Site
from shared.definition.validation import complaints

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.definition.checks.registry import Context, Told
    from shared.definition.sites import Field

_TYPES = {"BOOL": "boolean", "INT": "integer", "DOUBLE": "number", "STRING": "string", "NULL": "null"}


def value_faults(context: Context, field: Field, wanted: dict[str, Any]) -> Iterator[str]:
    """Yield why the value of ``field`` does not fit ``wanted``."""
    try:
        alone = sole_slot(field.value)
        fixed = next(slots(field.value), None) is None
        given = _schema_of(context, field, alone.expression) if alone else _schema_of_template(field.value)
    except ExpressionFailure:
        return
    if fixed:
        yield from (message for _, message, _ in complaints(field.value, wanted))
    elif given is not None:
        yield from misfits(given, wanted)


def input_faults(context: Context, field: Field, wanted: dict[str, Any], whom: str, where: str = "") -> Iterator[Told]:
    """Yield where the value of ``field`` does not fit ``wanted``, the input schema of the workflow ``whom``.

    ``where`` says in remedies what has to be added around a field that is missing.
    """
    if isinstance(field.value, dict):
        yield from _by_name(context, field, wanted, whom, where)
        return
    for told in value_faults(context, field, wanted):
        yield field.path, f"the input does not fit: {told}", ""


def _by_name(context: Context, field: Field, wanted: dict[str, Any], whom: str, where: str) -> Iterator[Told]:
    properties: dict[str, Any] = wanted.get("properties", {})
    arguments = cast("dict[str, Any]", field.value)
    for missing in (one for one in wanted.get("required", []) if one not in arguments):
        yield field.path, f"`{whom}` needs the input `{missing}`", f"Add {where}`{missing}: ...`."
    for key, value in arguments.items():
        path = (*field.path, key)
        if key not in properties:
            if properties and wanted.get("additionalProperties") in (None, False):
                yield path, f"`{whom}` has no input `{key}`", nearest(key, properties) or f"{listed(properties)}."
        elif isinstance(properties[key], dict):
            schema = {**properties[key], "$defs": wanted.get("$defs", {})}
            for told in value_faults(context, replace(field, path=path, value=value), schema):
                yield path, f"`{key}` of `{whom}`: {told}", ""


def _schema_of_template(value: Any) -> Mapping[str, Any] | None:
    kind = "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
    return {"type": kind}


def _schema_of(context: Context, field: Field, expression: str) -> Mapping[str, Any] | None:
    """Return the schema of an expression's value: of the field that it merely names, else by its type."""
    found = context.outputs.of_expression(field.scope, expression)
    if found is not None:
        return found
    checked = context.typing.check(Site(field, field.path, expression))
    if checked.type is None:
        return None
    shown = repr(checked.type)
    kind = _TYPES.get(shown) or ("array" if shown.startswith("LIST") else "object" if shown.startswith("MAP") else "")
    return {"type": "object" if checked.type.is_message() else kind} if kind or checked.type.is_message() else None
