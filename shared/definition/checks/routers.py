"""Rules about routers: each strategy's fields, a default, targets that need the router."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import Router

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.models import Route

_ROUTE_FIELD = {"rules": "when", "llm": "description", "score": "above"}
_ROUTER_FIELDS = {"rules": (), "llm": ("model", "prompt"), "score": ("value",)}


@rule("router_default")
def router_default(context: Context) -> Iterator[Told]:
    """A router always has somewhere to go."""
    for place in context.steps(Router):
        name, step = place.name, place.step
        if step.default is None:
            told = f"the router `{name}` has no `default`"
            yield place.at, told, "Name the step that runs when no route fits."


@rule("router_target")
def router_target(context: Context) -> Iterator[Told]:
    """What a router chooses waits for the router."""
    for place in context.steps(Router):
        name, step = place.name, place.step
        targets = [(("routes", index, "to"), route.to) for index, route in enumerate(step.routes)]
        for path, target in [*targets, (("default",), step.default)]:
            chosen = place.scope.steps.get(target or "")
            if chosen is not None and name not in {need.step for need in chosen.needs}:
                remedy = f"Add `{name}` to the `needs` of `{target}`."
                yield (*place.at, *path), f"`{target}` does not need the router `{name}`", remedy


@rule("router_strategy")
def router_strategy(context: Context) -> Iterator[Told]:
    """Fields fit the strategy: rules have ``when``, llm ``description``, ``model`` and ``prompt``, score ``above``."""
    for place in context.steps(Router):
        step = place.step
        for index, route in enumerate(step.routes):
            yield from _route((*place.at, "routes", index), step.strategy, route)
        for field in ("model", "prompt", "value"):
            given, wanted = bool(getattr(step, field)), field in _ROUTER_FIELDS[step.strategy]
            if wanted and not given:
                yield place.at, f"strategy `{step.strategy}` needs `{field}`", f"Add `{field}: ...`."
            elif given and not wanted:
                yield (*place.at, field), f"`{field}` means nothing for strategy `{step.strategy}`", "Remove it."


@rule("router_order")
def router_order(context: Context) -> Iterator[Told]:
    """Thresholds fall: the first route whose threshold is passed wins, so a lower one before hides a higher one."""
    for place in context.steps(Router):
        step = place.step
        limits = [route.above for route in step.routes]
        for index, (before, after) in enumerate(pairwise(limits), 1):
            if before is not None and after is not None and after >= before:
                told = f"this route can never be chosen: `above: {before:g}` stands before it"
                yield (*place.at, "routes", index), told, "Order the routes from the highest threshold down."


def _route(path: tuple[str | int, ...], strategy: str, route: Route) -> Iterator[Told]:
    for field in ("when", "description", "above"):
        given, wanted = getattr(route, field) is not None, field == _ROUTE_FIELD[strategy]
        if wanted and not given:
            yield path, f"a route of strategy `{strategy}` needs `{field}`", f"Add `{field}: ...`."
        elif given and not wanted and field != "description":
            yield (*path, field), f"`{field}` means nothing for strategy `{strategy}`", "Remove it."
