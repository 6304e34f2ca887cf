"""Rules about time: nothing is given more than what it is taken from can hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.definition.checks.limits import calls, rounds
from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import LONGEST_PARKED, Agent, Gate, Loop, Map, SubWorkflow, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shared.definition.models import AnyStep
    from shared.definition.scopes import Place, Scope
    from shared.definition.yaml_tree import Path
    from shared.errors import Finding

LONGEST_STEP = 840.0
"""Seconds that one attempt may take: a Lambda function ends after 15 minutes, and one is kept for closing."""
Chain = tuple[float, tuple[str, ...]]
"""Seconds, and the steps that take them one after the other."""


@rule("timeout_budget")
def timeout_budget(context: Context) -> Iterator[Told]:
    """One attempt fits into the active time of the step and of the run."""
    whole = context.workflow.budget.active_time
    for place in context.places:
        if isinstance(place.step, Gate | Wait | SubWorkflow | Map | Loop):
            continue  # time in which a run waits for others is not active, and a body's steps are looked at one by one
        for limit, whose in ((place.step.budget.active_time, "the step's"), (whole, "the workflow's")):
            late = [one for one in _given(place) if limit is not None and one[1] > limit]
            for path, seconds in late:
                told = f"a time-out of {seconds:g} s does not fit into {whose} `active_time` of {limit:g} s"
                yield path, told, "Shorten the one or raise the other."
            if late:
                break


@rule("timeout_platform")
def timeout_platform(context: Context) -> Iterator[Told]:
    """No attempt outlives what AWS allows."""
    for place in context.places:
        parks = isinstance(place.step, Gate | SubWorkflow | Wait)
        limit = LONGEST_PARKED if parks else LONGEST_STEP
        for path, seconds in _given(place):
            if seconds > limit:
                told = f"{seconds:g} s is longer than {limit:g} s, the most that AWS allows here"
                yield path, told, "Shorten it." if parks else "Shorten it, or split the step."


@rule("deadline")
def deadline(context: Context) -> Iterator[Told]:
    """Whatever is given a time ends before the run's deadline."""
    limit = context.workflow.deadline
    for place in context.places:
        for path, seconds in _given(place):
            if limit is not None and seconds > limit:
                told = f"{seconds:g} s do not fit into the workflow's `deadline` of {limit:g} s"
                yield path, told, "Shorten the one or raise the other."


@rule("active_time_total")
def active_time_total(context: Context) -> Iterator[Finding]:
    """Warns when the time-outs of steps that run one after the other exceed the active time of the run."""
    yield from _total(context, "active_time_total", ("budget", "active_time"), _active)


@rule("deadline_total")
def deadline_total(context: Context) -> Iterator[Finding]:
    """Warns when steps that run one after the other, with all that they wait for, exceed the deadline."""
    yield from _total(context, "deadline_total", ("deadline",), _elapsed)


def _given(place: Place[AnyStep]) -> Iterator[tuple[Path, float]]:
    """Yield every time that a step is given, with its field; bodies have none of their own."""
    step = place.step
    if isinstance(step, Wait):
        if isinstance(step.duration, float):
            yield (*place.at, "for"), step.duration
        if step.event is not None:
            yield (*place.at, "event", "timeout"), step.event.timeout
    elif isinstance(step, SubWorkflow):
        yield from [((*place.at, "timeout"), step.timeout)] if "timeout" in step.model_fields_set else []
    elif not isinstance(step, Map | Loop):
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


def _total(context: Context, name: str, path: Path, weigh: Callable[[Place[AnyStep]], float]) -> Iterator[Finding]:
    budget = context.workflow.budget.active_time
    limit = budget if path[0] == "budget" else context.workflow.deadline
    longest, chain = _longest(context, context.scopes[0], weigh)
    if limit is not None and longest > limit and len(chain) > 1:
        shown = " → ".join(chain if len(chain) <= _MOST_SHOWN else (*chain[:_MOST_SHOWN], "..."))
        told = f"`{path[-1]}` is {limit:g} s, and one after the other these may take {longest:g} s: {shown}"
        remedy = "Shorten their time-outs, or raise it: a run that exceeds it does not complete."
        yield replace(context.loaded.finding(name, path, told, remedy), severity="warning")


_MOST_SHOWN = 8


def _longest(context: Context, scope: Scope, weigh: Callable[[Place[AnyStep]], float]) -> Chain:
    """Return the chain of steps of a graph that may take longest, one attempt each."""
    best: dict[str, Chain] = {}
    for name in scope.relations.order:
        before = max((best[source] for source in scope.relations.sources[name]), default=(0.0, ()))
        place = scope.at_name(name)
        seconds, inside = _of_place(context, place, weigh) if place else (0.0, ())
        best[name] = before[0] + seconds, (*before[1], *(inside if seconds else ()))
    return max(best.values(), default=(0.0, ()))


def _of_place(context: Context, place: Place[AnyStep], weigh: Callable[[Place[AnyStep]], float]) -> Chain:
    step = place.step
    if not isinstance(step, Map | Loop):
        return weigh(place), (place.name,)
    seconds, chain = _longest(context, context.bodies[place.at], weigh)
    rounds = step.max_iterations if isinstance(step, Loop) else _rounds(step)
    return seconds * rounds, (f"{rounds} x ({' → '.join(chain)})",)


def _rounds(step: Map) -> int:
    """Return how often a map's body runs one after the other at least; one when the file does not tell the items."""
    if not isinstance(step.over, list) or not step.max_concurrency:
        return 1
    return math.ceil(len(step.over) / step.max_concurrency)
