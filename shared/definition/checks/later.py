"""Refuses what a file may say but this version's runtime does not do yet: nothing is silently ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import ExpressionFailure, references

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.sites import Site


@rule("names_not_yet")
def names_not_yet(context: Context) -> Iterator[Told]:
    """Names that a later version will resolve."""
    for site in context.sites:
        if "secrets" in site.field.names and "secrets" in _roots(site):
            yield site.path, "`secrets` are not available yet", "Read the value from `call.settings` in the tool."


def _roots(site: Site) -> set[str]:
    try:
        return {used.root for used in references(site.expression)}
    except ExpressionFailure:
        return set()
