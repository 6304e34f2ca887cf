"""Rules about time: nothing is given more than what it is taken from can hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.definition.checks.limits import calls, limits_of, rounds
from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import LONGEST_PARKED, Agent, Gate, Loop, Map, SubWorkflow, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.models import AnyStep
    from shared.definition.scopes import Place, Scope
    from shared.definition.yaml_tree import Path
    from shared.errors import Finding

LONGEST_STEP = 840.0
"""Seconds that one attempt may take: a Lambda function ends after 15 minutes, and one is kept for closing."""
_EITHER = "Shorten the one or raise the other."
Chain = tuple[float, tuple[str, ...]]
"""Seconds, and the steps that take them one after the other."""
Weigh = Callable[["Place[AnyStep]"], float]
"""Returns the seconds of one step that count."""


@rule("timeout_budget")
def timeout_budget(context: Context) -> Iterator[Told]:
    """One attempt fits into the active time of the step and of what it stands in."""
    for place in context.places:
        if isinstance(place.step, Gate | Wait | SubWorkflow | Map | Loop):
            continue  # time in which a run waits for others is not active, and a body's steps are looked at one by one
        for limit, whose in limits_of(context, place, "active_time"):
            late = [one for one in _given(place) if one[1] > limit]
            for path, seconds in late:
                told = f"a time-out of {seconds:g} s does not fit into {whose} `active_time` of {limit:g} s"
                yield path, told, _EITHER
            if late:
                break


@rule("timeout_platform")
def timeout_platform(context: Context) -> Iterator[Told]:
    """No attempt outlives what AWS allows."""
    for place in context.places:
        parks = isinstance(place.step, Gate | SubWorkflow | Wait | Map | Loop)
        limit = LONGEST_PARKED if parks else LONGEST_STEP
        for path, seconds in _given(place):
            if seconds > limit:
                told = f"{seconds:g} s is longer than {limit:g} s, the most that AWS allows here"
                yield path, told, "Shorten it." if parks else "Shorten it, or split the step."


@rule("deadline")
def deadline(context: Context) -> Iterator[Told]:
    """Whatever is given a time ends before that of what it stands in: a map or a loop, the run."""
    for place in context.places:
        for path, seconds in _given(place):
            for limit, whose in _ends_around(context, place):
                if seconds > limit:
                    yield path, f"{seconds:g} s do not fit into {whose} of {limit:g} s", _EITHER
                    break


def _ends_around(context: Context, place: Place[AnyStep]) -> Iterator[tuple[float, str]]:
    """Yield the times (s) after which what a step stands in is ended, each with whose it is."""
    for scope in place.scope.around():
        if scope.owner and "timeout" in scope.owner.step.model_fields_set:
            yield scope.owner.step.timeout, f"the `timeout` of `{scope.owner.name}`"
    if context.workflow.deadline is not None:
        yield context.workflow.deadline, "the workflow's `deadline`"


@rule("active_time_total")
def active_time_total(context: Context) -> Iterator[Finding]:
    """Warns when the time-outs of steps that run one after the other exceed the active time of what they stand in."""
    for scope in context.scopes:
        budget = scope.owner.step.budget if scope.owner else context.workflow.budget
        path = (*scope.at, "budget", "active_time")
        yield from _total(context, "active_time_total", path, budget.active_time, _of_scope(context, scope, _active))


@rule("deadline_total")
def deadline_total(context: Context) -> Iterator[Finding]:
    """Warns when steps that run one after the other, with all that they wait for, exceed what ends all of them."""
    for scope in context.scopes:
        owner = scope.owner.step if scope.owner else None
        given = owner is not None and "timeout" in owner.model_fields_set
        limit = owner.timeout if owner and given else None if owner else context.workflow.deadline
        path = (*scope.at, "timeout" if owner else "deadline")
        yield from _total(context, "deadline_total", path, limit, _of_scope(context, scope, _elapsed))


def _given(place: Place[AnyStep]) -> Iterator[tuple[Path, float]]:
    """Yield every time that a step is given, with its field; what holds others has none unless it is written."""
    step = place.step
    if isinstance(step, Wait):
        if isinstance(step.duration, float):
            yield (*place.at, "for"), step.duration
        if step.event is not None:
            yield (*place.at, "event", "timeout"), step.event.timeout
    elif not isinstance(step, SubWorkflow | Map | Loop) or "timeout" in step.model_fields_set:
        yield (*place.at, "timeout"), step.timeout
        yield from _given_to_tools(place)


def _given_to_tools(place: Place[AnyStep]) -> Iterator[tuple[Path, float]]:
    tools = place.step.tools if isinstance(place.step, Agent) else ()
    yield from (((*place.at, "tools", index, "timeout"), tool.timeout) for index, tool in enumerate(tools))


def _active(place: Place[AnyStep]) -> float:
    if not calls(place.step):
        return 0.0
    return rounds(place.step) * (place.step.timeout + max((took for _, took in _given_to_tools(place)), default=0.0))


def _elapsed(place: Place[AnyStep]) -> float:
    counts = isinstance(place.step, Gate | Wait | SubWorkflow) or calls(place.step)
    if not counts:
        return 0.0
    return _active(place) or sum(seconds for _, seconds in _given(place))


def _total(context: Context, name: str, path: Path, limit: float | None, found: Chain) -> Iterator[Finding]:
    longest, chain = found
    alone = len(chain) == 1 and chain[0].isidentifier()  # one attempt of one step has rules of its own
    if limit is not None and longest > limit and not alone:
        shown = " → ".join(chain if len(chain) <= _MOST_SHOWN else (*chain[:_MOST_SHOWN], "..."))
        told = f"`{path[-1]}` is {limit:g} s, and one after the other these may take {longest:g} s: {shown}"
        remedy = "Shorten their time-outs, or raise it: a run that exceeds it does not complete."
        yield replace(context.loaded.finding(name, path, told, remedy), severity="warning")


_MOST_SHOWN = 8


def _longest(context: Context, scope: Scope, weigh: Weigh) -> Chain:
    """Return the chain of steps of a graph that may take longest, one attempt each."""
    best: dict[str, Chain] = {}
    for name in scope.relations.order:
        before = max((best[source] for source in scope.relations.sources[name]), default=(0.0, ()))
        place = scope.at_name(name)
        seconds, inside = _of_place(context, place, weigh) if place else (0.0, ())
        best[name] = before[0] + seconds, (*before[1], *(inside if seconds else ()))
    return max(best.values(), default=(0.0, ()))


def _of_place(context: Context, place: Place[AnyStep], weigh: Weigh) -> Chain:
    step = place.step
    if not isinstance(step, Map | Loop):
        return weigh(place), (place.name,)
    seconds, chain = _of_scope(context, context.bodies[place.at], weigh)
    return min(seconds, step.timeout if weigh is _elapsed else step.budget.active_time or math.inf), chain


def _of_scope(context: Context, scope: Scope, weigh: Weigh) -> Chain:
    """Return what may take longest of a graph, as often as it runs."""
    seconds, chain = _longest(context, scope, weigh)
    rounds = _rounds(scope.owner.step) if scope.owner else 1
    return (seconds, chain) if rounds == 1 else (seconds * rounds, (f"{rounds} x ({' → '.join(chain)})",))


def _rounds(step: Map | Loop) -> int:
    """Return how often a body runs one after the other at least; one when the file does not tell a map's items."""
    if isinstance(step, Loop):
        return step.max_iterations
    if not isinstance(step.over, list) or not step.max_concurrency:
        return 1
    return math.ceil(len(step.over) / step.max_concurrency)
