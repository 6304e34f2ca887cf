"""Rules about time, models and budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import Agent, Gate, Router
from shared.definition.names import listed, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_STEP = 840.0
"""Seconds that one attempt may take: a Lambda function ends after 15 minutes, and one is kept for closing."""
LONGEST_GATE = 364 * 86_400.0
"""Seconds that a gate may stay open: a Step Functions execution ends after a year."""


@rule("timeout_budget")
def timeout_budget(context: Context) -> Iterator[Told]:
    """One attempt fits into the active time of the step and of the run."""
    whole = context.workflow.budget.active_time
    for name, step in context.workflow.steps.items():
        if isinstance(step, Gate):
            continue  # time in which a run waits for a person is not active
        own = step.budget.active_time
        for limit, whose in ((own, "the step's"), (whole, "the workflow's")):
            if limit is not None and step.timeout > limit:
                told = f"a time-out of {step.timeout:g} s does not fit into {whose} `active_time` of {limit:g} s"
                yield ("steps", name, "timeout"), told, "Shorten the one or raise the other."
                break


@rule("timeout_platform")
def timeout_platform(context: Context) -> Iterator[Told]:
    """No attempt outlives what AWS allows."""
    for name, step in context.workflow.steps.items():
        limit = LONGEST_GATE if isinstance(step, Gate) else LONGEST_STEP
        if step.timeout > limit:
            told = f"a time-out of {step.timeout:g} s is longer than {limit:g} s, the most that AWS allows here"
            yield ("steps", name, "timeout"), told, "Shorten it, or split the step."


@rule("step_budget")
def step_budget(context: Context) -> Iterator[Told]:
    """A step's limit is not above the run's: it could never be used."""
    for name, step in context.workflow.steps.items():
        for dimension in ("usd", "tokens", "steps"):
            own, whole = getattr(step.budget, dimension), getattr(context.workflow.budget, dimension)
            if own is not None and whole is not None and own > whole:
                told = f"the step's budget of {own} {dimension} is larger than the workflow's {whole}"
                yield ("steps", name, "budget", dimension), told, "Lower the one or raise the other."


@rule("budget_tokens")
def budget_tokens(context: Context) -> Iterator[Told]:
    """The longest reply of an agent fits into its token budgets; otherwise it is refused before it begins."""
    for name, step in context.steps(Agent):
        for limit in (step.budget.tokens, context.workflow.budget.tokens):
            if limit is not None and step.max_tokens > limit:
                told = f"`max_tokens` {step.max_tokens} alone is more than the budget of {limit} tokens"
                yield ("steps", name, "max_tokens"), told, "Lower the one or raise the other."
                break


@rule("unknown_model")
def unknown_model(context: Context) -> Iterator[Told]:
    """Every model has a known price; without one no budget could be kept."""
    for kind in (Agent, Router):
        for name, step in context.steps(kind):
            for index, model in enumerate(step.model):
                if model not in context.models:
                    remedy = nearest(model, context.models) or f"Known: {listed(sorted(context.models))}."
                    yield ("steps", name, "model", index), f"unknown model `{model}`", remedy
