"""Redaction: what must never be kept is taken out before anything is written, log, records and blobs alike.

Two things are: fields that a schema marks with ``x-redact: true``, and texts that look like a well-known kind of
secret. What was taken out is gone: later steps read ``[redacted]`` too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MARK = "[redacted]"
CUT = "…"
"""Stands where a text that is told was cut: what is before it may be the beginning of a secret."""
Schema = dict[str, Any]
_KINDS = (
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # AWS access key id
    r"\bsk-(?:ant-|proj-|live-)?[A-Za-z0-9_-]{20,}",  # Anthropic, OpenAI
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
    r"\bgh[pousr]_[A-Za-z0-9]{36,}\b",  # GitHub
    r"\bgithub_pat_[A-Za-z0-9_]{22,}\b",
    r"\bglpat-[A-Za-z0-9_-]{20,}",  # GitLab
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"\bwhsec_[A-Za-z0-9+/=]{24,}",  # Standard Webhooks
    r"\bAIza[0-9A-Za-z_-]{35}\b",  # Google
    r"\beyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,}",  # JSON Web Token
    r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----(?:[^-]|-(?!----)){0,10000}(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?",
)
"""Well-known kinds of secrets, as their providers document them. Each reads a hostile text in linear time."""
_SECRET = re.compile("|".join(_KINDS))
_SIGNS = (
    *("AKIA", "ASIA", "sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("xox", "whsec_", "AIza", "eyJ", "PRIVATE KEY"),
)
"""What every secret holds one of: looking for these takes a hundredth of the time."""
_SHORTEST = len("xoxb-0123456789")
"""Characters of the shortest secret: most texts, the names of fields above all, have fewer."""
_HOLD_NO_TEXT = frozenset({int, bool, float, type(None)})


def cut(text: str, most: int) -> str:
    """Return the text, cut to so many characters, with a mark where it was cut."""
    return text if len(text) <= most else text[:most] + CUT


def redacted_text(text: str) -> str:
    """Return the text without anything that looks like a well-known kind of secret."""
    if len(text) < _SHORTEST:
        return text
    for sign in _SIGNS:
        if sign in text:
            return _SECRET.sub(MARK, text)
    return text


def redacted(value: Any, schema: Mapping[str, Any] | None = None) -> Any:
    """Return a JSON value without secrets, and without the fields that ``schema`` marks."""
    if not schema:
        return _without_secrets(value)
    marked = dict(schema)
    return _without_secrets(_without_fields(value, [marked], marked))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):  # most of every event: its numbers, and names that are no secrets, cost no call
        fields = cast("dict[str, Any]", value)
        return {
            name if len(name) < _SHORTEST else redacted_text(name): inner
            if inner.__class__ in _HOLD_NO_TEXT
            else _without_secrets(inner)
            for name, inner in fields.items()
        }
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, list):
        return [_without_secrets(inner) for inner in cast("list[Any]", value)]
    return value


def _without_fields(value: Any, schemas: list[Schema], root: Schema) -> Any:
    """Take marked fields out of a value to which all of ``schemas`` may apply: each part of it is visited once."""
    parts = _parts(schemas, root)
    if any(part.get("x-redact") is True for part in parts):
        return MARK
    if isinstance(value, dict) and parts:
        fields = cast("dict[str, Any]", value)
        return {name: _without_fields(inner, _of_field(parts, name), root) for name, inner in fields.items()}
    if isinstance(value, list) and parts:
        items = _mappings(part.get("items") for part in parts)
        return [_without_fields(inner, items, root) for inner in cast("list[Any]", value)]
    return cast("Any", value)


def _parts(schemas: list[Schema], root: Schema) -> list[Schema]:
    """Return the schemas and all that they are made of. Of alternatives each counts: rather too much is gone."""
    found: dict[int, Schema] = {}
    queue = list(schemas)
    while queue:
        schema = queue.pop()
        if id(schema) not in found:
            found[id(schema)] = schema
            queue += _made_of(schema, root)
    return list(found.values())


def _made_of(schema: Schema, root: Schema) -> list[Schema]:
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    alternatives = (part for kind in ("allOf", "anyOf", "oneOf") for part in schema.get(kind, ()))
    return _mappings((root.get("$defs", {}).get(name), *alternatives, schema.get("then"), schema.get("else")))


def _of_field(parts: list[Schema], name: str) -> list[Schema]:
    return _mappings(part.get("properties", {}).get(name, part.get("additionalProperties")) for part in parts)


def _mappings(found: Iterable[Any]) -> list[Schema]:
    return [cast("Schema", one) for one in found if isinstance(one, dict)]
