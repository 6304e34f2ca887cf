"""Refuses what a file may say but this version's runtime does not do yet: nothing is silently ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import ExpressionFailure, references
from shared.definition.models import Agent, Gate
from shared.definition.sites import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.sites import Field, Site


@rule("not_yet")
def not_yet(context: Context) -> Iterator[Told]:
    """Values that a later version will honour."""
    for name, step in context.workflow.steps.items():
        at = ("steps", name)
        if step.merge != "by_step":
            yield (*at, "merge"), f"`merge: {step.merge}` is not available yet", "Use `steps.<id>.output` directly."
        if isinstance(step, Agent) and not step.portable and len(step.model) > 1:
            yield (*at, "portable"), "`portable: false` with a chain is not available yet", "Name one model."
        if isinstance(step, Gate) and set(step.channels) != {"email", "console"}:
            yield (*at, "channels"), "a choice of channels is not available yet", "Use `[email, console]`."


@rule("names_not_yet")
def names_not_yet(context: Context) -> Iterator[Told]:
    """Names that a later version will resolve."""
    for field in context.fields:
        for site in readable(field):
            roots = _roots(site)
            if "secrets" in roots and "secrets" in field.names:
                yield site.path, "`secrets` are not available yet", "Read the value from `call.settings` in the tool."
            if "call" in roots and _compensates(field):
                yield site.path, "`call` is not available in `compensate` yet", "Use the step's own output."


def _compensates(field: Field) -> bool:
    return field.itself and "call" in field.names


def _roots(site: Site) -> set[str]:
    try:
        return {used.root for used in references(site.expression)}
    except ExpressionFailure:
        return set()
