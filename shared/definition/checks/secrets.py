"""Secrets: named in a tool's arguments as they are, since nobody may compute anything from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import SECRET, ExpressionFailure, references

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


def _roots(site: Site) -> set[str]:
    try:
        return {used.root for used in references(site.expression)}
    except ExpressionFailure:
        return set()
