"""Rules about tools: that they exist, and that arguments and results fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import ExpressionFailure, references, slots, sole_slot
from shared.definition.fit import misfits
from shared.definition.models import ToolStep
from shared.definition.names import listed, nearest
from shared.definition.sites import Field, Site
from shared.definition.syntax import parse
from shared.definition.validation import complaints
from shared.tools.registry import Tool, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.definition.yaml_tree import Path

_LATER = frozenset(
    {"http.request", "s3.get", "s3.put", "dynamodb.query", "sql.query", "sqs.send", "sns.publish", "events.put"}
    | {"email.send", "slack.post", "lambda.invoke", "mcp.call"}
)
_TYPES = {"BOOL": "boolean", "INT": "integer", "DOUBLE": "number", "STRING": "string", "NULL": "null"}


@rule("unknown_tool")
def unknown_tool(context: Context) -> Iterator[Told]:
    """Every tool exists."""
    for _, path, name, _ in _calls(context):
        if name in _LATER:
            yield (*path, "tool"), f"the built-in tool `{name}` is not available yet", "Write a tool of your own."
        elif name not in context.tools:
            remedy = nearest(name, context.tools) or f"Tools: {listed(sorted(context.tools))}."
            yield (*path, "tool"), f"there is no tool `{name}`", remedy


@rule("tool_signature")
def tool_signature(context: Context) -> Iterator[Told]:
    """Every tool that is used says the types of its arguments and result."""
    for _, path, name, _ in _calls(context):
        tool = context.tools.get(name)
        try:
            _ = (tool.parameters, tool.returns) if tool else None
        except ToolError as error:
            yield (*path, "tool"), str(error), "Correct the tool's module."


@rule("tool_arguments")
def tool_arguments(context: Context) -> Iterator[Told]:
    """Arguments are those of the tool, complete and of the right types."""
    for step, path, name, arguments in _calls(context):
        schema = _parameters(context.tools.get(name))
        if schema is None:
            continue
        known: dict[str, Any] = schema["properties"]
        for missing in (one for one in schema["required"] if one not in arguments):
            yield (*path, "with"), f"`{name}` needs the argument `{missing}`", f"Add `{missing}: ...`."
        for key, value in arguments.items():
            if key not in known:
                remedy = nearest(key, known) or f"Arguments: {listed(known)}."
                yield (*path, "with", key), f"`{name}` has no argument `{key}`", remedy
                continue
            wanted = {**known[key], "$defs": schema.get("$defs", {})}
            for told in _value_faults(context, Field(step, (*path, "with", key), value), wanted):
                yield (*path, "with", key), f"`{key}` of `{name}`: {told}", ""


@rule("tool_output")
def tool_output(context: Context) -> Iterator[Told]:
    """A tool's result fits the step's declared output, and so does what stands in for it."""
    for name, step in context.steps(ToolStep):
        returns, declared = _returns(context.tools.get(step.tool)), context.typing.schema(name)
        if returns is None or declared is None:
            continue
        for told in misfits(returns, declared):
            yield ("steps", name, "output"), f"the result of `{step.tool}` does not fit: {told}", ""
        found = _returns(context.tools.get(step.reconcile.tool)) if step.reconcile else None
        for told in misfits(found, declared) if found is not None else ():
            remedy = f"What the probe finds becomes the output of `{name}`: return the same fields."
            yield ("steps", name, "reconcile", "tool"), f"the probe's result does not fit: {told}", remedy


@rule("fallback_output")
def fallback_output(context: Context) -> Iterator[Told]:
    """The output of a fallback fits the schema of the step it stands in for."""
    for name, step in context.workflow.steps.items():
        declared = step.output is not None and step.fallback in context.workflow.steps
        wanted = context.typing.schema(name) if declared else None
        given = context.typing.schema(step.fallback) if wanted is not None and step.fallback else None
        if wanted is not None and given is not None:
            for told in misfits(given, wanted):
                remedy = "Give it an `output` that fits."
                yield ("steps", name, "fallback"), f"the output of `{step.fallback}` does not fit: {told}", remedy


def _calls(context: Context) -> Iterator[tuple[str, Path, str, Mapping[str, Any]]]:
    """Yield every use of a tool: the step, the path of the mapping that names the tool, the tool, its arguments."""
    for name, step in context.steps(ToolStep):
        yield name, ("steps", name), step.tool, step.arguments
        for field in ("compensate", "reconcile"):
            call = getattr(step, field)
            if call is not None:
                yield name, ("steps", name, field), call.tool, call.arguments


def _parameters(tool: Tool | None) -> Mapping[str, Any] | None:
    try:
        return tool.parameters if tool else None
    except ToolError:
        return None


def _returns(tool: Tool | None) -> Mapping[str, Any] | None:
    try:
        return tool.returns if tool else None
    except ToolError:
        return None


def _value_faults(context: Context, field: Field, wanted: dict[str, Any]) -> Iterator[str]:
    """Compare one argument, a constant or a template, with its schema."""
    try:
        alone = sole_slot(field.value)
        fixed = next(slots(field.value), None) is None
        given = _schema_of(context, field, alone.expression) if alone else _schema_of_template(field.value)
    except ExpressionFailure:
        return
    if fixed:
        yield from (message for _, message, _ in complaints(field.value, wanted))
    elif given is not None:
        yield from misfits(given, wanted)


def _schema_of_template(value: Any) -> Mapping[str, Any] | None:
    kind = "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
    return {"type": kind}


def _schema_of(context: Context, field: Field, expression: str) -> Mapping[str, Any] | None:
    """Return the schema of an expression's value: of the field that it merely names, else by its type."""
    found = _named(context, expression)
    if found is not None:
        return found
    names = frozenset({"input", "steps", "run", "trigger", "secrets", "call"})
    checked = context.typing.check(Site(Field(field.step, field.path, None, names), field.path, expression))
    if checked.type is None:
        return None
    shown = repr(checked.type)
    kind = _TYPES.get(shown) or ("array" if shown.startswith("LIST") else "object" if shown.startswith("MAP") else "")
    return {"type": "object" if checked.type.is_message() else kind} if kind or checked.type.is_message() else None


def _named(context: Context, expression: str) -> Mapping[str, Any] | None:
    """Return the schema of ``input.a.b`` or ``steps.x.output.a``; None when the expression computes something."""
    uses = references(expression)
    node = parse(expression)
    while node.kind == "select":
        node = node.children[0]
    if node.kind != "ident" or len(uses) != 1:
        return None
    root, fields = uses[0].root, uses[0].fields
    if root == "input":
        return _descend(context.typing.input_schema, fields)
    if root == "steps" and fields[1:2] == ("output",) and fields[0] in context.workflow.steps:
        schema = context.typing.schema(fields[0])
        return _descend(schema, fields[2:]) if schema is not None else None
    return None


def _descend(schema: Mapping[str, Any], fields: tuple[str, ...]) -> Mapping[str, Any] | None:
    found: Any = schema
    for name in fields:
        properties = cast("dict[str, Any]", found).get("properties") if isinstance(found, dict) else None
        found = cast("dict[str, Any]", properties).get(name) if isinstance(properties, dict) else None
    return {**cast("dict[str, Any]", found), "$defs": schema.get("$defs", {})} if isinstance(found, dict) else None
