"""Secrets: named in a tool's arguments as they are, and never written into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import SECRET, ExpressionFailure, references
from shared.redaction import redacted_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.sites import Site


@rule("secret_use")
def secret_use(context: Context) -> Iterator[Told]:
    """A secret stands alone in its braces; its value is only known to the call itself."""
    for site in context.sites:
        if "secrets" in site.field.names and "secrets" in _roots(site) and not SECRET.fullmatch(site.expression):
            told = "nothing can be computed from a secret: its value is known only to the call itself"
            yield site.path, told, "Write `${ secrets.name }`, alone or inside text."


@rule("secret_literal")
def secret_literal(context: Context) -> Iterator[Told]:
    """No well-known kind of secret stands in the file: it would be published, kept and shown with it."""
    for field in context.fields:
        if any(redacted_text(text) != text for text in _texts(field.value)):
            remedy = "Revoke it, put another one by `signalbox tenants secrets put`, and name that in a tool's `with`."
            yield field.path, "this holds what looks like a key or token", remedy


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in cast("dict[str, Any]", value).items():
            yield from (key, *_texts(one))
    elif isinstance(value, list | tuple):
        for one in cast("list[Any]", value):
            yield from _texts(one)


def _roots(site: Site) -> set[str]:
    try:
        return {used.root for used in references(site.expression)}
    except ExpressionFailure:
        return set()
