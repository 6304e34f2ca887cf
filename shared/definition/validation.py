"""jsonschema behind two small functions. Only checks load it."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from jsonschema import Draft202012Validator
from jsonschema import exceptions as _exceptions
from referencing import Registry
from referencing.exceptions import Unresolvable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.definition.yaml_tree import Path

Complaint = tuple["Path", str, str]
"""Where in the value, what is wrong, which keyword said so."""


def complaints(value: Any, schema: Mapping[str, Any]) -> list[Complaint]:
    """Return why ``value`` does not fit ``schema``; empty when it does."""
    known = cast("Any", Registry)()  # knows nothing and fetches nothing
    validator = cast("Any", Draft202012Validator(cast("Any", schema), registry=known))
    try:
        return [_complaint(error) for error in validator.iter_errors(value)]
    except Unresolvable as unknown:
        return [((), f"its schema refers to {str(unknown.ref)[:80]!r}, which is not part of it", "$ref")]


def schema_complaint(schema: Mapping[str, Any]) -> Complaint | None:
    """Return the most telling reason why ``schema`` is no JSON Schema (draft 2020-12), or None when it is one."""
    return None if _is_plain(schema) else _schema_complaint(json.dumps(schema))


_KINDS = ("string", "number", "integer", "boolean", "object", "array", "null")


def _is_plain(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    known = cast("dict[str, Any]", schema)
    return all(key in _PLAIN and _PLAIN[key](value) for key, value in known.items())


def _are_names(values: list[Any]) -> bool:
    return all(isinstance(one, str) for one in values) and len(set(values)) == len(values)


_PLAIN: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: value in _KINDS,
    "description": lambda value: isinstance(value, str),
    "title": lambda value: isinstance(value, str),
    "properties": lambda value: isinstance(value, dict) and all(map(_is_plain, cast("dict[str, Any]", value).values())),
    "items": _is_plain,
    "required": lambda value: isinstance(value, list) and _are_names(cast("list[Any]", value)),
    "additionalProperties": lambda value: isinstance(value, bool),
    "enum": lambda value: isinstance(value, list),
}
"""The keywords that most schemas consist of. A schema of these alone needs no validator, which is slow."""


@lru_cache(maxsize=1024)
def _schema_complaint(text: str) -> Complaint | None:
    validator = cast("Any", Draft202012Validator(cast("Any", Draft202012Validator.META_SCHEMA)))
    error = cast("Any", _exceptions).best_match(validator.iter_errors(json.loads(text)))
    return _complaint(error) if error is not None else None


def _complaint(error: Any) -> Complaint:
    return tuple(error.absolute_path), str(error.message)[:200], str(error.validator)
