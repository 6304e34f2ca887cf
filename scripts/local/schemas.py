"""Makes any value fit a JSON Schema: keeps what fits, converts what can be converted, invents the rest."""

from collections.abc import Callable, Mapping
from typing import Any, cast

Schema = Mapping[str, Any]
MISSING = object()
"""Stands for "no value given"; null is a value."""


def fit(value: Any, schema: Schema, root: Schema | None = None) -> Any:
    """The value nearest to `value` that `schema` accepts."""
    root = schema if root is None else root
    schema = _resolved(schema, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return value if value in schema["enum"] else schema["enum"][0]
    kind = _kind(value, schema)
    return _FITTERS.get(kind, _fit_any)(value, schema, root)


def _resolved(schema: Schema, root: Schema) -> Schema:
    """Follow references; of alternatives take the first that is not null."""
    while "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
    for word in ("anyOf", "oneOf"):
        if word in schema:
            chosen = next((s for s in schema[word] if s.get("type") != "null"), schema[word][0])
            return _resolved(chosen, root)
    return schema


def _kind(value: Any, schema: Schema) -> str:
    kinds = schema.get("type", "object" if "properties" in schema else "any")
    if isinstance(kinds, str):
        return kinds
    if value is None and "null" in kinds:
        return "null"
    return next((str(k) for k in kinds if k != "null"), "null")


def _fit_object(value: Any, schema: Schema, root: Schema) -> dict[str, Any]:
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    properties: Schema = schema.get("properties", {})
    wanted = [name for name in properties if name in given or name in schema.get("required", [])]
    fitted = {name: fit(given.get(name, MISSING), properties[name], root) for name in wanted}
    extra = {} if schema.get("additionalProperties") is False or properties else given
    return {**extra, **fitted}


def _fit_array(value: Any, schema: Schema, root: Schema) -> list[Any]:
    given = cast("list[Any]", value) if isinstance(value, list) else []
    items = [*given, *[MISSING] * (schema.get("minItems", 0) - len(given))][: schema.get("maxItems")]
    return [fit(item, schema.get("items", {}), root) for item in items]


def _fit_number(value: Any, schema: Schema, _root: Schema) -> float:
    low, high = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    return min(max(_number(value), low), high)


def _fit_integer(value: Any, schema: Schema, root: Schema) -> int:
    return int(_fit_number(value, schema, root))


def _number(value: Any) -> float:
    try:
        return value if isinstance(value, int | float) else float(str(value).replace(",", ""))
    except ValueError:
        return 0


def _fit_string(value: Any, schema: Schema, _root: Schema) -> str:
    if value is MISSING or value is None:
        samples = {"date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z", "email": "someone@example.com"}
        value = schema.get("default", samples.get(schema.get("format", ""), "rehearsed"))
    return str(value).ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]


def _fit_boolean(value: Any, _schema: Schema, _root: Schema) -> bool:
    return value is True or str(value).lower() in {"true", "yes"}


def _fit_null(_value: Any, _schema: Schema, _root: Schema) -> None:
    return None


def _fit_any(value: Any, _schema: Schema, _root: Schema) -> Any:
    return None if value is MISSING else value


_FITTERS: Mapping[str, Callable[[Any, Schema, Schema], Any]] = {
    "object": _fit_object,
    "array": _fit_array,
    "number": _fit_number,
    "integer": _fit_integer,
    "string": _fit_string,
    "boolean": _fit_boolean,
    "null": _fit_null,
}
