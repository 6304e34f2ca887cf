"""Rules about conditions and routes that can never come true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.expressions import ExpressionFailure, Reference
from shared.definition.models import Router
from shared.definition.syntax import parse
from shared.definition.truth import never

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.definition.scopes import Place, Scope
    from shared.definition.syntax import Node
    from shared.definition.truth import Domain
    from shared.errors import Finding


@rule("never_true")
def never_true(context: Context) -> Iterator[Finding]:
    """Every condition can be true."""
    for site in context.sites:
        node = _parsed(site.expression) if site.field.wants == "bool" else None
        if node is not None and never([(node, True)], _domain(context, site.field.scope)):
            told = ("this can never be true", "Compare with what the value can be, or remove the condition.")
            yield context.loaded.finding_inside("never_true", site.path, (site.expression, 0), told)


@rule("dead_route")
def dead_route(context: Context) -> Iterator[Told]:
    """Every route of a router can be taken: no earlier one always comes first."""
    for place in context.steps(Router):
        yield from _of_rules(context, place) if place.step.strategy == "rules" else _of_score(context, place)


def _of_rules(context: Context, place: Place[Router]) -> Iterator[Told]:
    domain = _domain(context, place.scope)
    nodes = [_parsed(route.when) if route.when else None for route in place.step.routes]
    for index, node in enumerate(nodes):
        if node is None or never([(node, True)], domain):
            continue
        earlier = [(one, False) for one in nodes[:index] if one is not None]
        if earlier and never([*earlier, (node, True)], domain):
            told = "this route can never be chosen: whenever its rule holds, an earlier one does"
            yield (*place.at, "routes", index), told, "Put it before that rule, or narrow the earlier one."


def _of_score(context: Context, place: Place[Router]) -> Iterator[Told]:
    """Compare thresholds with the bounds that the schema of ``value`` sets."""
    schema = _schema_of_value(context, place) or {}
    low, high = schema.get("minimum"), schema.get("maximum")
    for index, route in enumerate(place.step.routes):
        if route.above is None:
            continue
        if isinstance(high, int | float) and route.above >= high:
            told = f"this route can never be chosen: the score is at most {high:g}"
            yield (*place.at, "routes", index, "above"), told, "Lower the threshold."
        if isinstance(low, int | float) and route.above < low and index + 1 < len(place.step.routes):
            told = f"this route can never be chosen: the score is at least {low:g}, so an earlier one always is"
            yield (*place.at, "routes", index + 1), told, "Raise the earlier threshold."


def _schema_of_value(context: Context, place: Place[Router]) -> Mapping[str, Any] | None:
    try:
        return context.outputs.of_expression(place.scope, place.step.value) if place.step.value else None
    except ExpressionFailure:
        return None


def _parsed(expression: str) -> Node | None:
    try:
        return parse(expression)
    except RuntimeError:
        return None  # the type check tells where the syntax is wrong


def _domain(context: Context, scope: Scope) -> Domain:
    def schema(node: Node) -> Mapping[str, Any] | None:
        used = _reference(node)
        return context.outputs.of_reference(scope, used) if used else None

    return schema


def _reference(node: Node) -> Reference | None:
    """Return ``a.b.c`` as a reference; None for anything that computes."""
    fields: list[str] = []
    while node.kind == "select" and node.children:
        fields.append(node.name)
        node = node.children[0]
    return Reference(node.name, tuple(reversed(fields)), 0) if node.kind == "ident" else None
