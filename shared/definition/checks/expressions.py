"""Rules about expressions: that they can be read, what they may use, and that types fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cel_expr_python import cel

from shared.definition.checker import type_name
from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import ExpressionFailure, Reference, references
from shared.definition.names import nearest
from shared.definition.sites import readable, sites

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.definition.sites import Site
    from shared.errors import Finding

_LATER = frozenset({"item", "index", "loop"})
_OPTIONAL = "List it under `required`, or ask with has(...) first."
_STEP_FIELDS = ("output", "status", "error")
_ONLY_THERE = {
    "secrets": "Use `secrets` in a tool's `with` only: everything else is kept and shown.",
    "call": "Use `call` in `compensate` and `reconcile` only.",
    "result": "Use `result` in `reconcile.found` only.",
}


@rule("template_syntax")
def template_syntax(context: Context) -> Iterator[Told | Finding]:
    """Every ``${`` is closed."""
    for field in context.fields:
        try:
            list(sites(field))
        except ExpressionFailure as error:
            yield context.loaded.finding_inside("template_syntax", field.path, ("${", 0), (str(error), ""))


@rule("expression_names")
def expression_names(context: Context) -> Iterator[Finding]:
    """Expressions use names that exist there, and only steps that have settled by then."""
    for site in _sites(context):
        for used in _references(site):
            told = _name_fault(context, site, used)
            if told:
                place = (site.expression, used.offset)
                yield context.loaded.finding_inside("expression_names", site.path, place, told)


@rule("expression_types")
def expression_types(context: Context) -> Iterator[Finding]:
    """Expressions fit the schemas of what they use, and conditions are true or false."""
    for site in _sites(context):
        if any(_name_fault(context, site, used) for used in _references(site)):
            continue
        checked = context.typing.check(site)
        for problem in checked.problems:
            told = (f"`{_short(site.expression)}`: {problem.message}", problem.remedy)
            place = (site.expression, problem.offset)
            yield context.loaded.finding_inside("expression_types", site.path, place, told)
        if checked.type is not None and (told := _wrong_result(site, checked.type)):
            yield context.loaded.finding_inside("expression_types", site.path, (site.expression, 0), told)


@rule("optional_field")
def optional_field(context: Context) -> Iterator[Finding]:
    """Warns of fields that may be missing when the expression is evaluated: the step would fail."""
    for site in _sites(context):
        if "has(" in site.expression:
            continue  # the author thought of it
        for used in _references(site):
            name = _optional_name(context, used)
            if name:
                told = (f"`{name}` may be missing, and then the step fails", _OPTIONAL)
                place = (site.expression, used.offset)
                found = context.loaded.finding_inside("optional_field", site.path, place, told)
                yield replace(found, severity="warning")


def _optional_name(context: Context, used: Reference) -> str:
    """Return the first field of a reference that its schema describes but does not require."""
    schema, fields = _schema(context, used)
    for name in fields:
        properties = schema.get("properties", {})
        if name not in properties or not isinstance(properties[name], dict):
            return ""
        if name not in schema.get("required", []):
            return name
        schema = properties[name]
    return ""


def _schema(context: Context, used: Reference) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    if used.root == "input":
        return context.typing.input_schema, used.fields
    if used.root == "steps" and used.fields[1:2] == ("output",) and used.fields[0] in context.workflow.steps:
        return context.typing.schema(used.fields[0]) or {}, used.fields[2:]
    return {}, ()


def _sites(context: Context) -> Iterator[Site]:
    return (site for field in context.fields for site in readable(field))


def _references(site: Site) -> tuple[Reference, ...]:
    try:
        return references(site.expression)
    except ExpressionFailure:
        return ()  # the type check tells where the syntax is wrong


def _name_fault(context: Context, site: Site, used: Reference) -> tuple[str, str] | None:
    """Return message and remedy when a name cannot be used there. Names unknown everywhere are left to the types."""
    if used.root in _LATER:
        return f"`{used.root}` is not available yet", "Maps and loops come in a later version."
    if used.root in _ONLY_THERE and used.root not in site.field.names:
        return f"`{used.root}` cannot be used here", _ONLY_THERE[used.root]
    if used.root == "steps" and "steps" in site.field.names:
        return _step_fault(context, site, used.fields)
    return None


def _step_fault(context: Context, site: Site, fields: tuple[str, ...]) -> tuple[str, str] | None:
    steps, own = context.workflow.steps, site.field.step
    name, field = [*fields[:2], "", ""][:2]
    if not name:
        return "`steps` needs the name of a step", "Write `steps.<id>.output`."
    if name not in steps:
        return f"there is no step `{name}`", nearest(name, steps)
    if field and field not in _STEP_FIELDS:
        return f"a step has no `{field}`", f"Write `steps.{name}.output.{field}`."
    if name == own:
        return None if site.field.itself else (f"`{own}` uses its own output", "Use the output of another step.")
    if not context.relations.waits_for(own, name):
        told = f"`steps.{name}` is not known here: `{own}` does not wait for it"
        return told, f"Add `{name}` to the `needs` of `{own}`."
    return None


def _wrong_result(site: Site, found: cel.Type) -> tuple[str, str] | None:
    if site.field.wants == "bool" and found not in (cel.Type.BOOL, cel.Type.DYN):
        return f"a condition must be true or false, not {type_name(found.name())}", "Compare it with something."
    if site.field.wants == "number" and found not in (cel.Type.DOUBLE, cel.Type.INT, cel.Type.DYN):
        return f"a score must be a number, not {type_name(found.name())}", "Use a numeric field."
    if found in (cel.Type.BYTES, cel.Type.TIMESTAMP, cel.Type.DURATION, cel.Type.TYPE):
        return f"a {found.name().lower()} is not JSON", "Convert it with string(...)."
    return None


def _short(expression: str, longest: int = 60) -> str:
    text = " ".join(expression.split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
