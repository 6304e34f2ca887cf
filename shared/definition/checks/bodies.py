"""Rules about maps, loops and waits: that they end, and that their fields mean something."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from cel_expr_python import cel

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import ExpressionFailure, slots, sole_slot
from shared.definition.models import Loop, Map, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_ITERATIONS = 10_000
_KINDS = ("for", "until", "event")
_NOT_HERE = {
    "map": {"retry": "retry the steps inside it"},
    "loop": {"retry": "retry the steps inside it"},
    "wait": {
        "retry": "waiting calls nothing that could fail",
        "timeout": "write `event: {timeout: ...}`",
        "budget": "waiting costs nothing",
    },
}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


@rule("loop_bound")
def loop_bound(context: Context) -> Iterator[Told]:
    """No loop is as good as endless."""
    for place in context.steps(Loop):
        if place.step.max_iterations > MOST_ITERATIONS:
            told = f"{place.step.max_iterations:,} iterations are as good as no bound"
            yield (*place.at, "max_iterations"), told, f"At most {MOST_ITERATIONS:,}: say what can make sense."


@rule("no_such_policy")
def no_such_policy(context: Context) -> Iterator[Told]:
    """Maps, loops and waits call nothing themselves: what happens inside has its own retries, and waiting is free."""
    for place in context.places:
        for field, instead in _NOT_HERE.get(place.step.type, {}).items():
            if field in place.step.model_fields_set:
                told = f"`{field}` means nothing for a {place.step.type}"
                yield (*place.at, field), told, f"Remove it; {instead}."


@rule("event_apart")
def event_apart(context: Context) -> Iterator[Told]:
    """No wait for an event stands where the workflow's own run does not get: events are reported to that one."""
    for place in context.steps(Wait):
        owners = [scope.owner for scope in place.scope.around() if scope.owner and scope.owner.step.apart]
        if place.step.event and owners:
            owner, step = owners[0].name, owners[0].step
            given = " and ".join(f"`{name}`" for name in ("timeout", "budget") if name in step.model_fields_set)
            told = f"the {step.type} `{owner}` has a run of its own for its {given}, and no event gets there"
            remedy = f"Move the wait out of it, or remove {given} from `{owner}` and limit the steps inside."
            yield (*place.at, "event"), told, remedy


@rule("map_over")
def map_over(context: Context) -> Iterator[Told]:
    """A map goes over a list."""
    for place in context.steps(Map):
        over, path = place.step.over, (*place.at, "over")
        if isinstance(over, list):
            continue
        if not _is_alone(over):
            yield path, "a map goes over a list, and this is text", 'Write `over: "${ ... }"` with a list inside.'
            continue
        found = context.typing.over(place)
        if found is not None and found != cel.Type.DYN and not repr(found).startswith("LIST"):
            kind = "an object" if found.is_message() else f"a {found.name().lower()}"
            yield path, f"a map goes over a list, and this is {kind}", "Name a list, or write `[ ... ]` around it."


@rule("map_quorum")
def map_quorum(context: Context) -> Iterator[Told]:
    """A map asks for no more completed items than there are."""
    for place in context.steps(Map):
        over, quorum = place.step.over, place.step.on_failure
        if isinstance(quorum, int) and isinstance(over, list) and quorum > len(over):
            told = f"a quorum of {quorum} cannot be reached with {len(over)} items"
            yield (*place.at, "on_failure"), told, "Lower it."


@rule("wait_kind")
def wait_kind(context: Context) -> Iterator[Told]:
    """A wait waits for one thing."""
    for place in context.steps(Wait):
        given = [name for name in _KINDS if name in _wanted(place.step)]
        if len(given) > 1:
            told = f"a wait waits for one thing, and this one for {' and '.join(given)}"
            yield (*place.at, given[1]), told, "Write two steps that follow each other, or race with `join: any`."
        elif not given:
            yield place.at, "this wait does not say for what", "Add one of `for`, `until`, `event`."


@rule("wait_until")
def wait_until(context: Context) -> Iterator[Told]:
    """A written moment is one, with its time zone."""
    for place in context.steps(Wait):
        until = place.step.until
        if until is not None and not _has_slots(until) and not _is_moment(until):
            told = f"`{until[:40]}` is no moment"
            yield (*place.at, "until"), told, "Write it as RFC 3339 with a zone, such as 2027-01-31T09:00:00Z."


def _wanted(step: Wait) -> set[str]:
    values = {"for": step.duration, "until": step.until, "event": step.event}
    return {name for name, value in values.items() if value is not None}


def _is_alone(text: str) -> bool:
    try:
        return sole_slot(text) is not None
    except ExpressionFailure:
        return True  # a rule of its own reports it


def _has_slots(text: str) -> bool:
    try:
        return next(slots(text), None) is not None
    except ExpressionFailure:
        return True


def _is_moment(text: str) -> bool:
    if _MOMENT.fullmatch(text) is None:
        return False
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
