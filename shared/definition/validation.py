"""jsonschema behind two small functions. Only checks load it."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from jsonschema import Draft202012Validator
from jsonschema import exceptions as _exceptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.definition.yaml_tree import Path

Complaint = tuple["Path", str, str]
"""Where in the value, what is wrong, which keyword said so."""


def complaints(value: Any, schema: Mapping[str, Any]) -> list[Complaint]:
    """Return why ``value`` does not fit ``schema``; empty when it does."""
    validator = cast("Any", Draft202012Validator(cast("Any", schema)))
    return [_complaint(error) for error in validator.iter_errors(value)]


def schema_complaint(schema: Mapping[str, Any]) -> Complaint | None:
    """Return the most telling reason why ``schema`` is no JSON Schema (draft 2020-12), or None when it is one."""
    return _schema_complaint(json.dumps(schema))


@lru_cache(maxsize=1024)
def _schema_complaint(text: str) -> Complaint | None:
    validator = cast("Any", Draft202012Validator(cast("Any", Draft202012Validator.META_SCHEMA)))
    error = cast("Any", _exceptions).best_match(validator.iter_errors(json.loads(text)))
    return _complaint(error) if error is not None else None


def _complaint(error: Any) -> Complaint:
    return tuple(error.absolute_path), str(error.message)[:200], str(error.validator)
