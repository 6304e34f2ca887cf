"""The JSON Schemas of a workflow's input and of what its steps put out, and of the parts that expressions name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from shared.definition.expressions import ExpressionFailure, references, sole_slot
from shared.definition.models import Loop, Map, ToolStep
from shared.definition.syntax import parse
from shared.definition.validation import schema_complaint
from shared.tools.registry import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.definition.expressions import Reference
    from shared.definition.models import AnyStep, Workflow
    from shared.definition.scopes import Place, Scope
    from shared.definition.yaml_tree import Path
    from shared.tools.registry import Tool

Schema = dict[str, Any]
STATUSES = (
    *("blocked", "ready", "running", "retrying", "waiting", "paused", "completed", "failed", "skipped", "timed_out"),
    *("cancelled", "unknown", "compensated"),
)
_ITEM_STATUSES = ("completed", "failed", "skipped", "cancelled")


def _closed(properties: dict[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_FIXED: Mapping[str, Mapping[str, Any]] = {
    "agent": {"type": "string"},
    "wait": _closed({"waited": {"enum": ["for", "until", "event"]}, "event": {}}),
    "sub_workflow": _closed({"run": {"type": "string"}, "status": {"type": "string"}, "outputs": {"type": "object"}}),
}
"""Outputs that depend on the type of the step alone, when it declares none."""


@dataclass(frozen=True)
class Outputs:
    """Schemas of one workflow; ``bodies`` are its graphs by the path of the map or loop that holds them."""

    workflow: Workflow
    bodies: Mapping[Path, Scope]
    tools: Mapping[str, Tool]
    _bodies: dict[Path, Mapping[str, Any]] = field(default_factory=dict[Any, Any])

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the run's input."""
        return usable(self.workflow.input)

    def step(self, scope: Scope, used: Reference) -> Place[AnyStep] | None:
        """Return the step that ``steps.<id>`` means in a graph: one of it, or of those around it."""
        if used.root != "steps" or not used.fields:
            return None
        return next((place for one in scope.around() if (place := one.at_name(used.fields[0]))), None)

    def schema(self, place: Place[AnyStep]) -> Mapping[str, Any] | None:
        """Return the JSON Schema of a step's output, where there is one."""
        step = place.step
        if step.output is not None:
            return usable(step.output)
        if isinstance(step, Map | Loop):
            if place.at not in self._bodies:
                self._bodies[place.at] = {}  # a body that uses the output of its own owner ends here
                self._bodies[place.at] = self._of_body(place, step)
            return self._bodies[place.at]
        return self.returns(step.tool) if isinstance(step, ToolStep) else _FIXED.get(step.type)

    def returns(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of a tool's result."""
        try:
            return self.tools[name].returns if name in self.tools else None
        except ToolError:
            return None  # a rule of its own reports it

    def of_reference(self, scope: Scope, used: Reference) -> Mapping[str, Any] | None:
        """Return the schema of what a reference reads, without what stands around it; None where nothing is known."""
        base, fields = self.base(scope, used)
        return descend(base, fields) if base is not None else None

    def of_expression(self, scope: Scope, expression: str) -> Mapping[str, Any] | None:
        """Return the schema of an expression that merely names a value; None when it computes something.

        Raises ExpressionFailure for wrong syntax.
        """
        uses = references(expression)
        node = parse(expression)
        while node.kind == "select":
            node = node.children[0]
        return self.of_reference(scope, uses[0]) if node.kind == "ident" and len(uses) == 1 else None

    def base(self, scope: Scope, used: Reference) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
        """Return the schema that a reference begins with, and the fields that it goes down from there."""
        if used.root == "input":
            return self.input_schema, used.fields
        place = self.step(scope, used)
        if place is not None and used.fields[1:2] == ("output",):
            return self.schema(place), used.fields[2:]
        if place is not None and used.fields[1:2] == ("status",):
            return {"enum": list(STATUSES)}, used.fields[2:]
        return self._item(scope, used.root), used.fields

    def _item(self, scope: Scope, root: str) -> Mapping[str, Any] | None:
        for one in scope.around():
            if one.owner is not None and isinstance(one.owner.step, Map) and root in ("item", one.owner.step.name):
                whole = self._of_template(one.owner.scope, one.owner.step.over)
                items = whole.get("items") if whole else None
                return {**cast("Schema", items), "$defs": (whole or {}).get("$defs", {})} if _is_object(items) else None
        return None

    def _of_body(self, place: Place[AnyStep], step: Map | Loop) -> Mapping[str, Any]:
        output = self._collected(self.bodies[place.at], step)
        if isinstance(step, Loop):
            return _closed({"iterations": {"type": "integer"}, "output": output})
        item = {"index": {"type": "integer"}, "status": {"enum": list(_ITEM_STATUSES)}, "output": {}, "error": {}}
        count = {"type": "integer"}
        return _closed({"items": {"type": "array", "items": _closed(item)}, "completed": count, "failed": count})

    def _collected(self, body: Scope, step: Map | Loop) -> Mapping[str, Any]:
        if step.collect is not None:
            return self._of_template(body, step.collect) or {}
        lasts = {last.name: self.schema(last) or {} for last in body.sinks()}
        return {"type": "object", "properties": {name: _detached(schema) for name, schema in lasts.items()}}

    def _of_template(self, scope: Scope, template: Any) -> Mapping[str, Any] | None:
        try:
            slot = sole_slot(template)
            return self.of_expression(scope, slot.expression) if slot else None
        except ExpressionFailure:
            return None


def usable(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema, or one that says nothing when it is none: a rule of its own reports that."""
    return schema if schema_complaint(schema) is None else {}


def descend(schema: Mapping[str, Any], fields: tuple[str, ...]) -> Mapping[str, Any] | None:
    """Return the schema of a field below ``schema``; None where the schema does not describe it."""
    found: Any = schema
    for name in fields:
        properties = cast("Schema", found).get("properties") if isinstance(found, dict) else None
        found = cast("Schema", properties).get(name) if isinstance(properties, dict) else None
    return {**cast("Schema", found), "$defs": schema.get("$defs", {})} if _is_object(found) else None


def _detached(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema if it can stand inside another one: references would lead nowhere there."""
    return {} if "$defs" in schema or "$ref" in str(schema) else schema


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
