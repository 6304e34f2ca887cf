"""The types of a workflow's input and outputs, and the names that each expression may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from cel_expr_python import cel

from shared.definition.checker import Checked, Names, check_expression
from shared.definition.expressions import ExpressionFailure, references, sole_slot
from shared.definition.models import Agent, ToolStep, Transform
from shared.definition.sites import Field
from shared.definition.types import ANY_OBJECT, DYN, STRING, Shape, TypeSpace
from shared.definition.validation import schema_complaint
from shared.tools.registry import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.definition.models import AnyStep, Workflow
    from shared.definition.relations import Relations
    from shared.definition.sites import Site
    from shared.tools.registry import Tool

_RUN = {"id": STRING, "workflow": STRING, "version": Shape("int64"), "tenant": STRING}
_KINDS = [(cel.Type.BOOL, "bool"), (cel.Type.INT, "int64"), (cel.Type.DOUBLE, "double"), (cel.Type.STRING, "string")]


@dataclass(frozen=True)
class Typing:
    """Types of one workflow, built when first asked for and kept."""

    workflow: Workflow
    relations: Relations
    tools: Mapping[str, Tool]
    space: TypeSpace = field(default_factory=TypeSpace)
    _outputs: dict[str, Shape] = field(default_factory=dict[str, Shape])
    _scopes: dict[frozenset[str], Shape] = field(default_factory=dict[frozenset[str], Shape])

    def check(self, site: Site) -> Checked:
        """Check one expression in the scope of its field. Steps that do not exist must have been reported before."""
        return check_expression(site.expression, self._names(site.expression, site.field))

    def output(self, name: str) -> Shape:
        """Return the type of a step's output."""
        if name not in self._outputs:
            self._outputs[name] = DYN  # a cycle of transforms ends here; its own rule reports it
            self._outputs[name] = self._output(name, self.workflow.steps[name])
        return self._outputs[name]

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON Schema of a step's output, where there is one."""
        step = self.workflow.steps[name]
        if step.output is not None:
            return _usable(step.output)
        if isinstance(step, Agent):
            return {"type": "string"}
        return self._returns(step.tool) if isinstance(step, ToolStep) else None

    def _returns(self, name: str) -> Mapping[str, Any] | None:
        try:
            return self.tools[name].returns if name in self.tools else None
        except ToolError:
            return None  # a rule of its own reports it

    @cached_property
    def input(self) -> Shape:
        """The type of the run's input."""
        return self.space.of_schema(self.input_schema)

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the run's input."""
        return _usable(self.workflow.input)

    @cached_property
    def _fixed(self) -> dict[str, Shape]:
        secrets = Shape("map", STRING)
        call = self.space.message({"idempotency_key": STRING, "arguments": ANY_OBJECT})
        return {"run": self.space.message(_RUN), "trigger": ANY_OBJECT, "secrets": secrets, "call": call}

    def _names(self, expression: str, where: Field) -> Names:
        shapes = {"input": self.input, **self._fixed, "result": self._result(where), "steps": self._steps(expression)}
        return Names(self.space, {name: shapes[name] for name in sorted(where.names)})

    def _result(self, where: Field) -> Shape:
        step = self.workflow.steps[where.step]
        probe = step.reconcile if isinstance(step, ToolStep) and "result" in where.names else None
        schema = self._returns(probe.tool) if probe else None
        return self.space.of_schema(schema) if schema is not None else DYN

    def _steps(self, expression: str) -> Shape:
        """Return a message with the steps that the expression names, and only those."""
        named = frozenset(used.fields[0] for used in _references(expression) if used.root == "steps" and used.fields)
        known = frozenset(named & self.workflow.steps.keys())
        if known not in self._scopes:
            shapes = {"status": STRING, "error": ANY_OBJECT}
            steps = {name: self.space.message({"output": self.output(name), **shapes}) for name in sorted(known)}
            self._scopes[known] = self.space.message(steps)
        return self._scopes[known]

    def _output(self, name: str, step: AnyStep) -> Shape:
        schema = self.schema(name)
        if schema is not None:
            return self.space.of_schema(schema)
        if isinstance(step, Transform):
            where = Field(name, ("steps", name, "set"), None)
            return self.space.message({key: self._value(value, where) for key, value in step.assign.items()})
        return DYN if isinstance(step, ToolStep) else ANY_OBJECT

    def _value(self, value: Any, where: Field) -> Shape:
        """Return the type of one value of a transform."""
        if isinstance(value, str):
            try:
                alone = sole_slot(value)
                names = self._names(alone.expression, where) if alone else None
            except ExpressionFailure:
                return DYN
            return self._shape(check_expression(alone.expression, names).type) if alone and names else STRING
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
        return _of_signature(repr(found))


def _usable(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema, or one that says nothing when it is none: a rule of its own reports that."""
    return schema if schema_complaint(schema) is None else {}


def _of_signature(shown: str) -> Shape:
    if shown.startswith("LIST"):
        return Shape("list", DYN)
    return ANY_OBJECT if shown.startswith("MAP") else DYN


def _references(expression: str) -> tuple[Any, ...]:
    try:
        return references(expression)
    except ExpressionFailure:
        return ()
