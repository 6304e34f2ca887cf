"""Rules about sub-workflows: that they exist, do not start themselves, and get what they expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.arguments import input_faults
from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import SubWorkflow
from shared.definition.names import listed, nearest
from shared.definition.scopes import general
from shared.definition.sites import Field
from shared.definition.validation import schema_complaint

if TYPE_CHECKING:
    from collections.abc import Iterator


@rule("unknown_workflow")
def unknown_workflow(context: Context) -> Iterator[Told]:
    """Every workflow that a step starts exists."""
    own, known = context.workflow.workflow, context.workflows
    for place in context.steps(SubWorkflow):
        name = place.step.workflow
        if known is not None and name not in known and name != own:
            remedy = nearest(name, known) or f"Workflows: {listed(sorted(known))}."
            yield (*place.at, "workflow"), f"there is no workflow `{name}`", remedy


@rule("recursion")
def recursion(context: Context) -> Iterator[Told]:
    """No workflow starts itself, directly or through others: it would never end."""
    own = context.workflow.workflow
    for place in context.steps(SubWorkflow):
        way = _way(context, place.step.workflow, own)
        if way:
            shown = " → ".join([own, *way])
            yield (*place.at, "workflow"), f"`{own}` would start itself: {shown}", "Use a loop for what is repeated."


@rule("child_input")
def child_input(context: Context) -> Iterator[Told]:
    """What a sub-workflow is given fits the input that it declares."""
    for place in context.steps(SubWorkflow):
        known = (context.workflows or {}).get(place.step.workflow)
        if known is None or not known.input or schema_complaint(known.input) is not None:
            continue
        given = Field(general(place), (*place.at, "with"), place.step.arguments)
        yield from input_faults(context, given, dict(known.input), place.step.workflow)


def _way(context: Context, start: str, own: str) -> list[str]:
    """Return how starting ``start`` leads back to ``own``; nothing when it does not."""
    ways, seen = [[start]], {start}
    for way in ways:
        if way[-1] == own:
            return way
        known = (context.workflows or {}).get(way[-1])
        following = sorted(known.starts - seen) if known else []
        seen.update(following)
        ways += [[*way, name] for name in following]
    return []
