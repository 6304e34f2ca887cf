"""Rules about expressions: that they can be read, what they may use, and that types fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cel_expr_python import cel

from shared.definition.checker import type_name
from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import ExpressionFailure, Reference, references
from shared.definition.names import listed, nearest
from shared.definition.sites import ALWAYS, sites

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.definition.scopes import Scope
    from shared.definition.sites import Field, Site
    from shared.errors import Finding

_OPTIONAL = "List it under `required`, or ask with has(...) first."
_STEP_FIELDS = ("output", "status", "error")
_ONLY_THERE = {
    "secrets": "Use `secrets` in a tool's `with` only: everything else is kept and shown.",
    "call": "Use `call` in `compensate` and `reconcile` only.",
    "result": "Use `result` in `reconcile.found`, and in `compensate` of an agent's tool, only.",
    "event": "Use `event` in `event.match` of a wait only.",
    "inputs": "Use `inputs` in the step's own fields: it is known once the join is decided.",
    "item": "Use `item` inside a map only.",
    "index": "Use `index` inside a map only.",
    "loop": "Use `loop` inside a loop only.",
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
    for site in context.sites:
        for used in _references(site):
            told = _name_fault(context, site, used)
            if told:
                place = (site.expression, used.offset)
                yield context.loaded.finding_inside("expression_names", site.path, place, told)


@rule("expression_types")
def expression_types(context: Context) -> Iterator[Finding]:
    """Expressions fit the schemas of what they use, and conditions are true or false."""
    for site in context.sites:
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
    for site in context.sites:
        if "has(" in site.expression:
            continue  # the author thought of it
        for used in _references(site):
            name = _optional_name(context, site, used)
            if name:
                told = (f"`{name}` may be missing, and then the step fails", _OPTIONAL)
                place = (site.expression, used.offset)
                found = context.loaded.finding_inside("optional_field", site.path, place, told)
                yield replace(found, severity="warning")


def _optional_name(context: Context, site: Site, used: Reference) -> str:
    """Return the first field of a reference that its schema describes but does not require."""
    found, fields = context.outputs.base(site.field.scope, used)
    schema: Mapping[str, Any] = found or {}
    for name in fields:
        properties = schema.get("properties", {})
        if name not in properties or not isinstance(properties[name], dict):
            return ""
        if name not in schema.get("required", []):
            return name
        schema = properties[name]
    return ""


def _references(site: Site) -> tuple[Reference, ...]:
    try:
        return references(site.expression)
    except ExpressionFailure:
        return ()  # the type check tells where the syntax is wrong


def _name_fault(context: Context, site: Site, used: Reference) -> tuple[str, str] | None:
    """Return message and remedy when a name cannot be used there. Names unknown everywhere are left to the types."""
    field = site.field
    if used.root in _ONLY_THERE and used.root not in field.names | context.typing.frame_names(field):
        return f"`{used.root}` cannot be used here", _ONLY_THERE[used.root]
    if used.root in ALWAYS - field.names:
        return f"`{used.root}` cannot be used here", f"Names here: {listed(sorted(field.names))}."
    if used.root == "steps":
        return _step_fault(field, used.fields)
    return None


def _step_fault(where: Field, fields: tuple[str, ...]) -> tuple[str, str] | None:
    name, field = [*fields[:2], "", ""][:2]
    scope = next((scope for scope in where.scope.around() if scope.knows(name)), None)
    if not name:
        return "`steps` needs the name of a step", "Write `steps.<id>.output`."
    if scope is None:
        known = [known for one in where.scope.around() for known in one.relations.sources]
        return f"there is no step `{name}`", nearest(name, known)
    if field and field not in _STEP_FIELDS:
        return f"a step has no `{field}`", f"Write `steps.{name}.output.{field}`."
    return _order_fault(where, scope, name)


def _order_fault(where: Field, scope: Scope, name: str) -> tuple[str, str] | None:
    """Tell when the step called ``name`` in ``scope`` need not have settled when the field is evaluated."""
    own = _own(where, scope)
    if own is None:
        return None
    if name == own:
        around = scope is not where.here.scope or where.body is not None
        told = f"`{own}` has no output yet: this stands inside it" if around else f"`{own}` uses its own output"
        return None if where.itself else (told, "Use the output of another step.")
    if not scope.relations.waits_for(own, name):
        told = f"`steps.{name}` is not known here: `{own}` does not wait for it"
        return told, f"Add `{name}` to the `needs` of `{own}`."
    return None


def _own(where: Field, scope: Scope) -> str | None:
    """Return the step of ``scope`` that is, or holds, the one of the field; None in a body that has come to its end."""
    if scope is where.body:
        return None
    here = where.here
    while here.scope is not scope and here.scope.owner is not None:
        here = here.scope.owner
    return here.name


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
