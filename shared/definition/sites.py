"""Every place of a workflow that holds an expression, with what may stand there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from shared.definition.expressions import ExpressionFailure, slots
from shared.definition.models import Agent, Router, ToolStep, Transform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.models import AnyStep, Workflow
    from shared.definition.yaml_tree import Path

ALWAYS = frozenset({"input", "steps", "run", "trigger"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a step that holds a bare expression or a template.

    ``names`` may be used there; ``itself`` tells whether the step's own output is known there (for ``compensate``).
    ``wants`` is the type that a bare expression must have.
    """

    step: str
    path: Path
    value: Any
    names: frozenset[str] = ALWAYS
    itself: bool = False
    wants: Literal["", "bool", "number"] = ""


@dataclass(frozen=True, slots=True)
class Site:
    """One expression: the field it stands in, the path of its string, and whether it is the whole string."""

    field: Field
    path: Path
    expression: str


def fields(workflow: Workflow) -> Iterator[Field]:
    """Yield every field of every step that may hold expressions."""
    for name, step in workflow.steps.items():
        at: Path = ("steps", name)
        yield Field(name, (*at, "when"), step.when, wants="bool")
        for index, need in enumerate(step.needs):
            yield Field(name, (*at, "needs", index, "when"), need.when, wants="bool")
        yield from _of_type(name, at, step)


def sites(field: Field) -> Iterator[Site]:
    """Yield the expressions of one field. Raises ExpressionFailure for an unclosed ``${``."""
    if field.wants:
        if field.value is not None:
            yield Site(field, field.path, field.value)
        return
    for path, slot in slots(field.value, field.path):
        yield Site(field, path, slot.expression)


def readable(field: Field) -> tuple[Site, ...]:
    """Return the expressions of a field; none when its template cannot be read (a rule of its own says so)."""
    try:
        return tuple(sites(field))
    except ExpressionFailure:
        return ()


def _of_type(name: str, at: Path, step: AnyStep) -> Iterator[Field]:
    if isinstance(step, Agent):
        yield Field(name, (*at, "system"), step.system)
        yield Field(name, (*at, "prompt"), step.prompt)
    elif isinstance(step, ToolStep):
        yield from _of_tool(name, at, step)
    elif isinstance(step, Transform):
        yield Field(name, (*at, "set"), step.assign)
    elif isinstance(step, Router):
        yield Field(name, (*at, "prompt"), step.prompt)
        yield Field(name, (*at, "value"), step.value, wants="number")
        for index, route in enumerate(step.routes):
            yield Field(name, (*at, "routes", index, "when"), route.when, wants="bool")
    else:
        yield Field(name, (*at, "subject"), step.subject)
        yield Field(name, (*at, "show"), step.show)


def _of_tool(name: str, at: Path, step: ToolStep) -> Iterator[Field]:
    yield Field(name, (*at, "with"), step.arguments, ALWAYS | {"secrets"})
    if step.compensate is not None:
        names = ALWAYS | {"secrets", "call"}
        yield Field(name, (*at, "compensate", "with"), step.compensate.arguments, names, itself=True)
    if step.reconcile is not None:
        names = frozenset({"call"})
        yield Field(name, (*at, "reconcile", "with"), step.reconcile.arguments, names)
        yield Field(name, (*at, "reconcile", "found"), step.reconcile.found, names | {"result"}, wants="bool")
