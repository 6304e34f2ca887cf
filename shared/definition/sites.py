"""Every field of a workflow that holds expressions, with what may stand there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from shared.definition.expressions import ExpressionFailure, slots
from shared.definition.models import Agent, Loop, Map, Router, ToolStep, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.models import AgentTool, AnyStep
    from shared.definition.scopes import Place, Scope
    from shared.definition.triggers import Kind, Trigger
    from shared.definition.yaml_tree import Path

ALWAYS = frozenset({"input", "steps", "run", "trigger"})
_TEMPLATES = {
    "agent": (("system", "system"), ("prompt", "prompt")),
    "transform": (("set", "assign"),),
    "human_gate": (("subject", "subject"), ("show", "show")),
    "map": (("over", "over"),),
    "sub_workflow": (("with", "arguments"),),
}
"""The fields of each type that hold templates and nothing else: their names in the file and in the model."""
MERGED = ALWAYS | {"inputs"}
"""What a step sees once its join is decided: also the merged outputs of what it needs."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a step that holds a bare expression or a template.

    ``names`` may be used there, besides what the maps and loops around it bring; ``itself`` tells whether the step's
    own output is known there (for ``compensate``). ``wants`` is the type that a bare expression must have. ``body`` is
    the graph inside a map or a loop whose steps are all known there (for ``collect`` and ``until``). ``trigger`` is the
    kind of trigger that it is the ``input`` of: there, the name ``trigger`` is what has happened, and there is no
    ``place``; ``body`` is the workflow's own graph.
    """

    place: Place[AnyStep] | None
    path: Path
    value: Any
    names: frozenset[str] = MERGED
    itself: bool = False
    wants: Literal["", "bool", "number"] = ""
    body: Scope | None = None
    trigger: Kind | None = None

    @property
    def scope(self) -> Scope:
        """The graph whose names are in scope."""
        return self.body or self.here.scope

    @property
    def here(self) -> Place[AnyStep]:
        """The step whose field it is. Nothing of one is asked for a trigger's."""
        if self.place is None:
            raise LookupError(f"{self.path} is no field of a step")
        return self.place


@dataclass(frozen=True, slots=True)
class Site:
    """One expression: the field it stands in, the path of its string, and whether it is the whole string."""

    field: Field
    path: Path
    expression: str


def fields(scopes: tuple[Scope, ...]) -> Iterator[Field]:
    """Yield every field of every step that may hold expressions."""
    bodies = {scope.at: scope for scope in scopes}
    for scope in scopes:
        for place in scope.places():
            yield from (field for field in _of_step(place, bodies.get(place.at)) if field.value is not None)


def of_triggers(triggers: tuple[Trigger, ...], scope: Scope) -> Iterator[Field]:
    """Yield the ``input`` of every trigger: of the run that it starts, nothing is known there yet."""
    for index, entry in enumerate(triggers):
        for kind, start in entry.kinds():
            if start.input is not None:
                path = ("triggers", index, kind, "input")
                yield Field(None, path, start.input, frozenset({"trigger"}), body=scope, trigger=kind)


def sites(field: Field) -> Iterator[Site]:
    """Yield the expressions of one field. Raises ExpressionFailure for an unclosed ``${``."""
    if field.wants:
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


def _of_step(place: Place[AnyStep], body: Scope | None) -> Iterator[Field]:
    yield Field(place, (*place.at, "when"), place.step.when, wants="bool")
    for index, need in enumerate(place.step.needs):
        if need.when is not None:
            yield Field(place, (*place.at, "needs", index, "when"), need.when, ALWAYS, wants="bool")
    yield from _of_type(place, place.step, body)


def _of_type(place: Place[AnyStep], step: AnyStep, body: Scope | None) -> Iterator[Field]:
    yield from (Field(place, (*place.at, name), getattr(step, given)) for name, given in _TEMPLATES.get(step.type, ()))
    if isinstance(step, ToolStep):
        yield Field(place, (*place.at, "with"), step.arguments, MERGED | {"secrets"})
        yield from _of_call(place, place.at, step)
    elif isinstance(step, Agent):
        for index, tool in enumerate(step.tools):
            yield from _of_call(place, (*place.at, "tools", index), tool)
    elif isinstance(step, Router):
        yield from _of_router(place, step)
    elif isinstance(step, Wait):
        yield from _of_wait(place, step)
    elif isinstance(step, Loop):
        yield Field(place, (*place.at, "until"), step.until, ALWAYS, wants="bool", body=body)
    if isinstance(step, Map | Loop):
        yield Field(place, (*place.at, "collect"), step.collect, ALWAYS, body=body)


def _of_router(place: Place[AnyStep], step: Router) -> Iterator[Field]:
    yield Field(place, (*place.at, "prompt"), step.prompt)
    yield Field(place, (*place.at, "value"), step.value, wants="number")
    for index, route in enumerate(step.routes):
        yield Field(place, (*place.at, "routes", index, "when"), route.when, wants="bool")


def _of_wait(place: Place[AnyStep], step: Wait) -> Iterator[Field]:
    yield Field(place, (*place.at, "for"), step.duration)
    yield Field(place, (*place.at, "until"), step.until)
    if step.event is not None:
        yield Field(place, (*place.at, "event", "match"), step.event.match, frozenset({"event"}), wants="bool")


def _of_call(place: Place[AnyStep], at: Path, call: ToolStep | AgentTool) -> Iterator[Field]:
    """Yield the fields of what undoes a call and of what looks for it; one of an agent is no step that has a name."""
    itself = isinstance(call, ToolStep)
    if call.compensate is not None:
        names = ALWAYS | ({"secrets", "call"} if itself else {"secrets", "call", "result"})
        yield Field(place, (*at, "compensate", "with"), call.compensate.arguments, names, itself=itself)
    if call.reconcile is not None:
        names = frozenset({"call"})
        yield Field(place, (*at, "reconcile", "with"), call.reconcile.arguments, names | {"secrets"})
        yield Field(place, (*at, "reconcile", "found"), call.reconcile.found, names | {"result"}, wants="bool")
