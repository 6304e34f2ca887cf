"""Redaction: what must never be kept is taken out before anything is written, log, records and blobs alike.

Three things are: fields that a schema marks with ``x-redact: true``, texts that look like a well-known kind of secret,
and the values of the secrets that a call was given (``Known``). What was taken out is gone: later steps read
``[redacted]`` too.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, quote_plus

from shared.errors import StepFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
SHORTEST = 4
"""Characters of a secret's value: a shorter one could not be taken out of a result without everything else."""
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


class Known(NamedTuple):
    """Arguments as the tool gets them, and the values in them that must not be seen anywhere else."""

    arguments: Any
    values: tuple[str, ...] = ()

    def call(self, invoke: Callable[[Any], Any]) -> Any:
        """Make the call. What it returns, or says when it fails, does not hold the values any more."""
        if not self.values:
            return invoke(self.arguments)
        try:
            return _without(invoke(self.arguments), self._forms())
        except StepFailure as failure:
            failure.args = (_hidden_cut(str(failure), self._forms()),)
            raise failure.with_traceback(None) from None  # what it came from may say more, and is logged

    def _forms(self) -> list[str]:
        """Return the values as they may come back, longest first."""
        return sorted({form for value in self.values for form in _forms(value)}, key=len, reverse=True)


def _forms(value: str) -> Iterator[str]:
    """Yield a value as it was, as a line, as a host's name, and each as URLs, JSON and Python write it."""
    for text in (value, " ".join(value.split()), value.strip(), value.lower()):
        if len(text) >= SHORTEST:
            yield from (text, repr(text)[1:-1])
            yield from (way(text, safe="", errors="surrogatepass") for way in (quote, quote_plus))
            yield quote(text, errors="surrogatepass")
            for written in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
                yield from (written, written.replace("/", "\\/"))


def _without(value: Any, forms: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _hidden(value, forms)
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {_hidden(key, forms): _without(one, forms) for key, one in given.items()}
    return [_without(one, forms) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _hidden(text: str, forms: Sequence[str]) -> str:
    for form in forms:
        text = text.replace(form, MARK)
    return text


def _hidden_cut(text: str, forms: Sequence[str]) -> str:
    """Hide also the beginning of a value that is left where a text was cut."""
    *parts, last = _hidden(text, forms).split(CUT)
    return CUT.join((*(_ended(part, forms) for part in parts), last))


def _ended(part: str, forms: Sequence[str]) -> str:
    sizes = ((form, size) for form in forms for size in range(SHORTEST, min(len(form), len(part) + 1)))
    longest = max((size for form, size in sizes if part.endswith(form[:size])), default=0)
    return f"{part[:-longest]}{MARK}" if longest else part
