"""The types of a workflow's input and outputs, and the names that each expression may use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from cel_expr_python import cel

from shared.definition.checker import Checked, Names, check_expression, check_text
from shared.definition.environments import Environments
from shared.definition.expressions import ExpressionFailure, references, sole_slot
from shared.definition.growth import is_growing
from shared.definition.models import Agent, Loop, Map, SubWorkflow, ToolStep, Transform, Wait
from shared.definition.scopes import Place, general
from shared.definition.sites import MERGED, Field, Site
from shared.definition.syntax import MAX_LENGTH, readable
from shared.definition.types import ANY_OBJECT, DYN, STRING, Shape, TypeSpace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.definition.expressions import Reference
    from shared.definition.models import AnyStep
    from shared.definition.outputs import Outputs
    from shared.definition.scopes import Scope
    from shared.definition.triggers import Kind
    from shared.definition.yaml_tree import Path

_RUN = {"id": STRING, "workflow": STRING, "version": Shape("int64"), "tenant": STRING}
_STEP = {"status": STRING, "error": ANY_OBJECT}
_STARTED = {"kind": STRING, "id": STRING, "occurrence": STRING}
_TEXTS = Shape("map", STRING)
_HAPPENED: dict[Kind, dict[str, Shape]] = {
    "webhook": {**_STARTED, "body": DYN, "headers": _TEXTS},
    "schedule": {**_STARTED, "time": STRING},
    "event": {**_STARTED, "detail": ANY_OBJECT, "source": STRING, "type": STRING, "time": STRING},
    "queue": {**_STARTED, "body": DYN, "attributes": _TEXTS},
}
"""What ``trigger`` is in the ``input`` of a trigger, by its kind. Steps only see what has started their run."""
_KINDS = [(cel.Type.BOOL, "bool"), (cel.Type.INT, "int64"), (cel.Type.DOUBLE, "double"), (cel.Type.STRING, "string")]
_WHOLE_STEP = re.compile(r"\bhas\(\s*steps\b")
_COUNT = Shape("int64")


@dataclass(frozen=True)
class Typing:
    """Types of one workflow, built when first asked for and kept. ``outputs`` knows the schemas."""

    outputs: Outputs
    bodies: Mapping[Path, Scope]
    space: TypeSpace = field(default_factory=TypeSpace)
    _outputs: dict[Path, Shape] = field(default_factory=dict[Any, Shape])
    _frames: dict[Path, dict[str, Shape]] = field(default_factory=dict[Any, dict[str, Shape]])
    _checked: dict[tuple[Any, ...], Checked] = field(default_factory=dict[Any, Checked])

    def check(self, site: Site) -> Checked:
        """Check one expression in the scope of its field. Steps that do not exist must have been reported before."""
        return self._check(site.expression, site.field)

    def _check(self, expression: str, where: Field) -> Checked:
        used = _references(expression)
        shapes = self._names(used, where)
        steps = {one: self._field(one, where) for one in used if one.root == "steps"}
        key = (expression, tuple(shapes.items()), tuple(steps.values()))
        if key not in self._checked:
            self._checked[key] = self._quickly(expression, shapes, steps) or self._thoroughly(expression, where, shapes)
        return self._checked[key]

    def _quickly(
        self, expression: str, shapes: dict[str, Shape], steps: Mapping[Reference, Shape | None]
    ) -> Checked | None:
        """Check in an environment that others use, too; None when that does not do, or something is wrong."""
        known = [(one, shape) for one, shape in steps.items() if shape is not None]
        if len(known) < len(steps) or _WHOLE_STEP.search(expression) or is_growing(expression):
            return None
        text = self.environments.rewritten(expression, known)
        if text is None or len(text) > MAX_LENGTH:
            return None
        found = check_text(readable(text), self.environments.get(shapes), Names(self.space, shapes))
        return found if found.type is not None else None

    def _thoroughly(self, expression: str, where: Field, shapes: dict[str, Shape]) -> Checked:
        """Check with every name as the author knows it, for a message that can be understood."""
        whole = {**shapes, "steps": self._steps(expression, where)} if "steps" in where.names else shapes
        return check_expression(expression, Names(self.space, dict(sorted(whole.items()))))

    @cached_property
    def environments(self) -> Environments:
        """The environments of the CEL library."""
        return Environments(self.space)

    def output(self, place: Place[AnyStep]) -> Shape:
        """Return the type of a step's output."""
        if place.at not in self._outputs:
            self._outputs[place.at] = DYN  # a cycle of transforms ends here; its own rule reports it
            self._outputs[place.at] = self._output(place, place.step)
        return self._outputs[place.at]

    @cached_property
    def input(self) -> Shape:
        """The type of the run's input."""
        return self.space.of_schema(self.outputs.input_schema)

    @cached_property
    def _fixed(self) -> dict[str, Shape]:
        call = self.space.message({"idempotency_key": STRING, "arguments": ANY_OBJECT})
        trigger = self.space.message({**_STARTED, "initiator": STRING})
        fixed = {"run": self.space.message(_RUN), "trigger": trigger, "secrets": _TEXTS, "call": call}
        return {**fixed, "input": self.input, "event": DYN}

    def frame_names(self, where: Field) -> frozenset[str]:
        """Return the names that the maps and loops around a field bring."""
        return frozenset(self.frames(where.scope)) if "steps" in where.names else frozenset()

    def frames(self, scope: Scope) -> dict[str, Shape]:
        """Return what the maps and loops around a graph put into scope, inner ones first."""
        if scope.at not in self._frames:
            outer = self.frames(scope.outer) if scope.outer else {}
            self._frames[scope.at] = {**outer, **dict.fromkeys(_frame_of(scope), DYN)}
            self._frames[scope.at] = {**outer, **self._frame(scope)}
        return self._frames[scope.at]

    def _frame(self, scope: Scope) -> dict[str, Shape]:
        if scope.owner is None:
            return {}
        if isinstance(scope.owner.step, Map):
            owner = Place(scope.owner.scope, scope.owner.name, scope.owner.step)
            item = self.element(owner)
            return {"item": item, "index": _COUNT, owner.step.name: item}
        previous = self.space.message({place.name: self.output(place) for place in scope.places()})
        return {"loop": self.space.message({"iteration": _COUNT, "previous": previous})}

    def element(self, place: Place[Map]) -> Shape:
        """Return the type of a map's items."""
        over, where = place.step.over, Field(general(place), (*place.at, "over"), None)
        if isinstance(over, list):
            return STRING if all(isinstance(one, str) and "${" not in one for one in over) else DYN
        slot = _alone(over)
        return self._shape(self._check(f"({slot})[0]", where).type) if slot else DYN

    def over(self, place: Place[Map]) -> cel.Type | None:
        """Return the type of what a map goes over; None when that cannot be told."""
        slot = _alone(place.step.over)
        where = Field(general(place), (*place.at, "over"), None)
        return self._check(slot, where).type if slot else None

    def _names(self, used: tuple[Reference, ...], where: Field) -> dict[str, Shape]:
        """Return every name in scope but ``steps``; what differs from step to step only when it is used."""
        roots = {one.root for one in used}
        given = {**self._fixed, **(self.frames(where.scope) if "steps" in where.names else {})}
        shapes = {name: given.get(name, DYN) for name in sorted((where.names - {"steps"}) | self.frame_names(where))}
        if where.trigger:
            shapes["trigger"] = self.space.message(_HAPPENED[where.trigger])
        if "inputs" in roots & where.names:
            shapes["inputs"] = self._inputs(where)
        if "result" in roots & where.names:
            shapes["result"] = self._result(where)
        return shapes

    def _field(self, used: Reference, where: Field) -> Shape | None:
        """Return the type of ``steps.<id>.<field>``; None when it names no field of a step."""
        field_name = used.fields[1] if used.fields[1:] else ""
        if field_name != "output":
            return _STEP.get(field_name)
        place = self.outputs.step(where.scope, used)
        return self.output(place) if place else DYN

    def _result(self, where: Field) -> Shape:
        name = _asked(where)
        schema = self.outputs.returns(name) if name else None
        return self.space.of_schema(schema) if schema is not None else DYN

    def _inputs(self, where: Field) -> Shape:
        step, relations = where.here.step, where.here.scope.relations
        if step.merge == "list":
            return Shape("list", DYN)
        if step.merge != "by_step":
            return DYN
        sources = {name: where.here.scope.at_name(name) for name in relations.sources[where.here.name]}
        return self.space.message({name: self.output(place) if place else DYN for name, place in sources.items()})

    def _steps(self, expression: str, where: Field) -> Shape:
        """Return a message with the steps that the expression names, and only those."""
        named = {used.fields[0]: used for used in _references(expression) if used.root == "steps" and used.fields}
        found = {name: self.outputs.step(where.scope, used) for name, used in sorted(named.items())}
        outputs = {name: self.output(place) if place else DYN for name, place in found.items()}
        return self.space.message({name: self.space.message({"output": out, **_STEP}) for name, out in outputs.items()})

    def _output(self, place: Place[AnyStep], step: AnyStep) -> Shape:
        if isinstance(step, Map | Loop | Wait | SubWorkflow) and step.output is None:
            return self._of_container(place, step)
        schema = self.outputs.schema(place)
        if schema is not None:
            return self.space.of_schema(schema)
        if isinstance(step, Transform):
            where = Field(place, (*place.at, "set"), None)
            return self.space.message({key: self._value(value, where) for key, value in step.assign.items()})
        return DYN if isinstance(step, ToolStep) else ANY_OBJECT

    def _of_container(self, place: Place[AnyStep], step: Map | Loop | Wait | SubWorkflow) -> Shape:
        match step:
            case Map():
                item = {"index": _COUNT, "status": STRING, "output": self._collected(place, step), "error": ANY_OBJECT}
                items = Shape("list", self.space.message(item))
                return self.space.message({"items": items, "completed": _COUNT, "failed": _COUNT})
            case Loop():
                return self.space.message({"iterations": _COUNT, "output": self._collected(place, step)})
            case Wait():
                return self.space.message({"waited": STRING, "event": DYN})
            case SubWorkflow():
                return self.space.message({"run": STRING, "status": STRING, "outputs": ANY_OBJECT})

    def _collected(self, place: Place[AnyStep], step: Map | Loop) -> Shape:
        body = self.bodies[place.at]
        if step.collect is not None:
            return self._value(step.collect, Field(place, (*place.at, "collect"), None, MERGED, body=body))
        return self.space.message({last.name: self.output(last) for last in body.sinks()})

    def _value(self, value: Any, where: Field) -> Shape:
        """Return the type of one value of a transform."""
        if isinstance(value, str):
            try:
                alone = sole_slot(value)
            except ExpressionFailure:
                return DYN
            return self._shape(self._check(alone.expression, where).type) if alone else STRING
        if isinstance(value, bool | int | float):
            return Shape("bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "double")
        if isinstance(value, dict):
            known = cast("dict[str, Any]", value)
            return self.space.message({key: self._value(inner, where) for key, inner in known.items()})
        return Shape("list", DYN) if isinstance(value, list) else DYN

    def _shape(self, found: cel.Type | None) -> Shape:
        """Return the type of an expression's result as a shape."""
        if found is None:
            return DYN
        if found.is_message() and found.name() in self.space.fields:
            return Shape("message", message=found.name())
        for kind, name in _KINDS:
            if found == kind:
                return Shape(name)  # pyright: ignore[reportArgumentType] - the names are those of Kind
        return self._of_signature(repr(found))

    def _of_signature(self, shown: str) -> Shape:
        if shown.startswith("LIST<") and (inner := shown[5:-1]) in self.space.fields:
            return Shape("list", Shape("message", message=inner))
        if shown.startswith("LIST"):
            return Shape("list", _SCALARS.get(shown[5:-1], DYN))
        return ANY_OBJECT if shown.startswith("MAP") else DYN


_SCALARS = {"BOOL": Shape("bool"), "INT": _COUNT, "DOUBLE": Shape("double"), "STRING": STRING}


def _asked(where: Field) -> str | None:
    """Return the tool whose result a field calls ``result``: a probe or, to undo it, the call of an agent itself."""
    step, below = where.here.step, where.path[len(where.here.at) :]
    if isinstance(step, Agent) and isinstance(below[1], int):
        tool = step.tools[below[1]]
        return tool.name if below[2] == "compensate" else tool.reconcile and tool.reconcile.tool
    return step.reconcile.tool if isinstance(step, ToolStep) and step.reconcile else None


def _frame_of(scope: Scope) -> tuple[str, ...]:
    if scope.owner is None:
        return ()
    return ("item", "index", scope.owner.step.name) if isinstance(scope.owner.step, Map) else ("loop",)


def _alone(text: Any) -> str | None:
    try:
        slot = sole_slot(text)
    except ExpressionFailure:
        return None
    return slot.expression if slot else None


def _references(expression: str) -> tuple[Reference, ...]:
    try:
        return references(expression)
    except ExpressionFailure:
        return ()
