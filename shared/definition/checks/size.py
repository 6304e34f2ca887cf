"""Rules about size: what no run could carry, and what no check could finish in time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import Agent, Router
from shared.definition.yaml_tree import MAX_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.yaml_tree import Path

MOST_LEVELS = 8
MOST_EXPRESSIONS = 5_000
LARGEST_VALUE = 64 * 1024
"""Bytes of one schema or one written value: a manifest must fit into a database item of 400 KB with all the others."""
LARGEST_PROMPTS = 256 * 1024
"""Bytes of all prompts together, for the same reason."""


@rule("size")
def size(context: Context) -> Iterator[Told]:
    """The file is small enough to be checked. Found alone: nothing else is looked at then."""
    deepest = max(context.scopes, key=lambda scope: scope.level)
    if deepest.level > MOST_LEVELS:
        told = f"{deepest.level} maps and loops stand in each other; at most {MOST_LEVELS} are possible"
        yield deepest.at, told, "Move the inner ones into a workflow of their own and start it with a sub_workflow."
    if len(context.places) > MAX_STEPS:
        told = f"{len(context.places):,} steps are more than the {MAX_STEPS:,} that a workflow may have"
        yield ("steps",), told, "Split it into several workflows, or use a map."
    if _conditions(context) + context.loaded.source.count("${") > MOST_EXPRESSIONS:
        told = f"there are more than {MOST_EXPRESSIONS:,} expressions"
        yield ("steps",), told, "Split the workflow, or compute common values once in a transform."


@rule("payload")
def payload(context: Context) -> Iterator[Told]:
    """Values written into the file, schemas and prompts can be stored and carried."""
    for path, value in _values(context):
        found = len(json.dumps(value, ensure_ascii=False).encode())
        if found > LARGEST_VALUE:
            told = f"this has {found:,} bytes; at most {LARGEST_VALUE:,} are possible"
            yield path, told, "Let a tool read it at run time, or pass a reference to it."
    total = 0
    for path, text in _prompts(context):
        before, total = total, total + len(text.encode())
        if before <= LARGEST_PROMPTS < total:
            told = f"up to here prompts have {total:,} bytes; at most {LARGEST_PROMPTS:,} are possible"
            yield path, told, "Shorten them, or split the workflow."


def _conditions(context: Context) -> int:
    return sum(1 for field in context.fields if field.wants)


def _values(context: Context) -> Iterator[tuple[Path, Any]]:
    yield ("input",), context.workflow.input
    for place in context.places:
        if place.step.output is not None:
            yield (*place.at, "output"), place.step.output
    for field in context.fields:
        if not field.wants and field.path[-1] not in ("prompt", "system"):
            yield field.path, field.value


def _prompts(context: Context) -> Iterator[tuple[Path, str]]:
    for kind in (Agent, Router):
        for place in context.steps(kind):
            for name in ("system", "prompt"):
                text = getattr(place.step, name, None)
                if isinstance(text, str):
                    yield (*place.at, name), text
