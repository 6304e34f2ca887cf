"""Rules about models, and about budgets that could never be kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import MAX_TURNS, Agent, Loop, Map, Router, ToolStep
from shared.definition.names import listed, nearest
from shared.manifest import MOST_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.models import AnyStep
    from shared.definition.scopes import Place
    from shared.errors import Finding


@rule("step_budget")
def step_budget(context: Context) -> Iterator[Told]:
    """A step's limit is not above the run's: it could never be used."""
    for place in context.places:
        for dimension in ("usd", "tokens", "steps"):
            own, whole = getattr(place.step.budget, dimension), getattr(context.workflow.budget, dimension)
            if own is not None and whole is not None and own > whole:
                told = f"the step's budget of {own} {dimension} is larger than the workflow's {whole}"
                yield (*place.at, "budget", dimension), told, "Lower the one or raise the other."


@rule("retry_budget")
def retry_budget(context: Context) -> Iterator[Told]:
    """The retries of a step fit into its budget of steps and into the run's: every attempt takes one."""
    for place in context.places:
        attempts = 1 + place.step.retry.max_retries if place.step.retry else 0
        for limit, whose in (
            (place.step.budget.steps, "the step's"),
            (context.workflow.budget.steps, "the workflow's"),
        ):
            if limit is not None and attempts > limit:
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
        for limit in (step.budget.tokens, context.workflow.budget.tokens):
            if limit is not None and step.max_tokens > limit:
                told = f"`max_tokens` {step.max_tokens} alone is more than the budget of {limit} tokens"
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
