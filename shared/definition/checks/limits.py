"""Rules about models, and about budgets that could never be kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import MAX_TURNS, Agent, Loop, Map, Router, ToolStep
from shared.definition.names import listed, nearest
from shared.definition.scopes import general
from shared.manifest import MOST_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.models import AnyStep
    from shared.definition.scopes import Place
    from shared.errors import Finding


@rule("step_budget")
def step_budget(context: Context) -> Iterator[Told]:
    """A step's limit is not above that of what it stands in: it could never be used."""
    for place in context.places:
        for dimension in ("usd", "tokens", "steps", "active_time"):
            own = getattr(place.step.budget, dimension)
            for limit, whose in limits_around(context, place, dimension):
                if own is not None and own > limit:
                    told = f"the step's budget of {own} {dimension} is larger than {whose} {limit}"
                    yield (*place.at, "budget", dimension), told, "Lower the one or raise the other."
                    break


@rule("retry_budget")
def retry_budget(context: Context) -> Iterator[Told]:
    """The retries of a step fit into its budget of steps and into those around it: every attempt takes one."""
    for place in context.places:
        attempts = 1 + place.step.retry.max_retries if place.step.retry else 0
        for limit, whose in limits_of(context, place, "steps"):
            if attempts > limit:
                told = f"{attempts} attempts, retries included, do not fit into {whose} budget of {limit} steps"
                yield (*place.at, "retry", "max_retries"), told, "Lower the one or raise the other."
                break


@rule("retry_total")
def retry_total(context: Context) -> Iterator[Finding]:
    """Warns when all retries together could use up the run's budget of steps, and it would pause."""
    limit = context.workflow.budget.steps
    total = sum(_attempts(place) for place in context.places)
    if limit is not None and total > limit:
        told = f"in the worst case the run takes {total:,} attempts, and its budget is {limit:,} steps"
        remedy = "Raise `budget.steps`, or lower `max_retries` or `max_iterations`."
        yield replace(context.loaded.finding("retry_total", ("budget", "steps"), told, remedy), severity="warning")


@rule("budget_tokens")
def budget_tokens(context: Context) -> Iterator[Told]:
    """The longest reply of an agent fits into its token budgets; otherwise it is refused before it begins."""
    for place in context.steps(Agent):
        step = place.step
        for limit, whose in limits_of(context, general(place), "tokens"):
            if step.max_tokens > limit:
                told = f"`max_tokens` {step.max_tokens} alone is more than {whose} budget of {limit} tokens"
                yield (*place.at, "max_tokens"), told, "Lower the one or raise the other."
                break


@rule("unknown_model")
def unknown_model(context: Context) -> Iterator[Told]:
    """Every model has a known price; without one no budget could be kept."""
    for kind in (Agent, Router):
        for place in context.steps(kind):
            for index, model in enumerate(place.step.model):
                if model not in context.models:
                    remedy = nearest(model, context.models) or f"Known: {listed(sorted(context.models))}."
                    yield (*place.at, "model", index), f"unknown model `{model}`", remedy


def limits_of(context: Context, place: Place[AnyStep], dimension: str) -> Iterator[tuple[Any, str]]:
    """Yield the limits of a dimension that a step uses up, each with whose it is, from the inside out."""
    own = getattr(place.step.budget, dimension)
    yield from [] if own is None else [(own, "the step's")]
    yield from limits_around(context, place, dimension)


def limits_around(context: Context, place: Place[AnyStep], dimension: str) -> Iterator[tuple[Any, str]]:
    """Yield the limits of what a step stands in: of the maps and loops around it, then of the workflow."""
    owners = [scope.owner for scope in place.scope.around() if scope.owner]
    found = [(owner.step.budget, f"the {owner.step.type} `{owner.name}`'s") for owner in owners]
    for budget, whose in (*found, (context.workflow.budget, "the workflow's")):
        if getattr(budget, dimension) is not None:
            yield getattr(budget, dimension), whose


def calls(step: AnyStep) -> bool:
    """Tell whether a step calls something outside, so that its attempts count."""
    return isinstance(step, Agent | ToolStep) or (isinstance(step, Router) and step.strategy == "llm")


def _attempts(place: Place[AnyStep]) -> int:
    """Return the attempts of one step in a run, as far as the file tells: each iteration and each written item."""
    if not calls(place.step):
        return 0
    times = 1
    for scope in place.scope.around():
        owner = scope.owner.step if scope.owner else None
        if isinstance(owner, Loop):
            times *= owner.max_iterations
        elif isinstance(owner, Map) and isinstance(owner.over, list):
            times *= len(owner.over)
    each = 1 + (place.step.retry.max_retries if place.step.retry else 0)
    proposed = MOST_CALLS if isinstance(place.step, Agent) and place.step.tools else 0
    return times * rounds(place.step) * (each + proposed)


def rounds(step: AnyStep) -> int:
    """Return how often an agent's model is asked at most; everything else is done once."""
    return (step.max_turns or MAX_TURNS) if isinstance(step, Agent) and step.tools else 1
