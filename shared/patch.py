"""JSON Merge Patch (RFC 7396): changes to a JSON value as one JSON value. ``null`` removes a field."""

from __future__ import annotations

from typing import Any, cast

from shared import values


def merge(target: Any, patch: Any) -> Any:
    """Return ``target`` with ``patch`` merged in, as RFC 7396, section 2, says; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    merged: dict[str, Any] = dict(cast("dict[str, Any]", target)) if isinstance(target, dict) else {}
    for name, value in cast("dict[str, Any]", patch).items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def difference(before: Any, after: Any) -> Any:
    """Return the patch that makes ``before``, an object, into ``after``, another one. Empty when they are equal."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            patch[name] = value
        elif isinstance(value, dict) and isinstance(before[name], dict):
            inner = difference(before[name], value)
            patch |= {name: inner} if inner else {}
        elif not same(before[name], value):
            patch[name] = value
    return patch


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; in Python, ``True == 1`` as well."""
    return values.canonical(one) == values.canonical(other)
