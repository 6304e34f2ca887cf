"""Rules about the JSON Schemas in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import Gate
from shared.definition.names import nearest
from shared.definition.types import resolve, variants
from shared.definition.validation import schema_complaint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.definition.yaml_tree import Path

_KINDS = ("string", "number", "integer", "boolean", "object", "array", "null")


@rule("schema")
def schema(context: Context) -> Iterator[Told]:
    """Every schema is JSON Schema 2020-12, and its local references lead somewhere."""
    for path, body in _schemas(context):
        wrong = schema_complaint(body)
        if wrong is not None:
            yield (*path, *wrong[0]), f"this is not a JSON Schema: {wrong[1]}", _remedy(wrong[2])
        else:
            yield from _references(path, body, body)
            yield from _requirements(path, body)


@rule("input_object")
def input_object(context: Context) -> Iterator[Told]:
    """A run's input is an object, so that fields can be added later."""
    if context.workflow.input.get("type") != "object":
        yield ("input",), "the input's schema must have `type: object`", "Put the value into a property."


def _schemas(context: Context) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    yield ("input",), context.workflow.input
    for place in context.places:
        if place.step.output is not None:
            yield (*place.at, "output"), place.step.output
        if isinstance(place.step, Gate) and place.step.edit is not None:
            yield (*place.at, "edit"), place.step.edit


def _remedy(keyword: str) -> str:
    return f"Types: {', '.join(_KINDS)}." if keyword in ("enum", "anyOf") else ""


def _references(path: Path, node: Any, root: Mapping[str, Any]) -> Iterator[Told]:
    if isinstance(node, list):
        for index, item in enumerate(cast("list[Any]", node)):
            yield from _references((*path, index), item, root)
    elif isinstance(node, dict):
        known = cast("dict[str, Any]", node)
        reference = known.get("$ref")
        if isinstance(reference, str) and (not reference.startswith("#") or resolve(known, root) is None):
            yield (*path, "$ref"), f"`{reference}` leads nowhere", "Refer to a part of this schema, as `#/$defs/...`."
        for key, value in known.items():
            yield from _references((*path, key), value, root)


def _requirements(path: Path, node: Mapping[str, Any]) -> Iterator[Told]:
    """Find required names that no property describes: nearly always a misspelling."""
    if "properties" not in node or variants(node):
        return
    properties = cast("dict[str, Any]", node["properties"])
    for index, name in enumerate(node.get("required", [])):
        if name not in properties and node.get("additionalProperties") in (None, False):
            remedy = nearest(name, properties) or "Describe it, or correct its name."
            yield (*path, "required", index), f"`{name}` is required but is not among the properties", remedy
    for name, inner in properties.items():
        if isinstance(inner, dict):
            yield from _requirements((*path, "properties", name), cast("dict[str, Any]", inner))
