"""Rules about the graph: names that must exist, cycles, steps that can never run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import Agent, Gate, Map, Router
from shared.definition.names import listed, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.definition.models import AnyStep
    from shared.definition.scopes import Place, Scope
    from shared.definition.yaml_tree import Path

_RESERVED = frozenset(
    {"input", "inputs", "steps", "index", "loop", "run", "trigger", "secrets", "call", "result", "event"}
)
"""What expressions call something else."""


@rule("unknown_step")
def unknown_step(context: Context) -> Iterator[Told]:
    """Every name in ``needs``, ``fallback``, ``approves``, ``routes`` and ``default`` is a step of the same graph."""
    elsewhere = {name for scope in context.scopes for name in scope.steps}
    for place in context.places:
        steps = place.scope.relations.sources
        for path, target in _named(place):
            if target in elsewhere and target not in steps:
                told = f"`{target}` is not a step of the same graph"
                yield path, told, "Steps name each other only within one graph: move one of them."
            elif target not in steps:
                remedy = nearest(target, steps) or f"Steps: {listed(steps)}."
                yield path, f"there is no step `{target}`", remedy


@rule("name_clash")
def name_clash(context: Context) -> Iterator[Told]:
    """A step inside a map or a loop has another name than those around it, and so has what a map calls its items."""
    for place in context.places:
        if any(scope.knows(place.name) for scope in list(place.scope.around())[1:]):
            told = f"`{place.name}` is also the name of a step around this one"
            yield place.at, told, "Give it another name: `steps.<id>` must mean one of them."
        if isinstance(place.step, Map) and place.step.name != "item" and _is_taken(place, place.step.name):
            told = f"`{place.step.name}` already means something else here"
            yield (*place.at, "as"), told, "Choose another name for the items."


@rule("duplicate_need")
def duplicate_need(context: Context) -> Iterator[Told]:
    """A step needs another once, and never itself."""
    for place in context.places:
        seen: set[str] = set()
        for index, need in enumerate(place.step.needs):
            path = (*place.at, "needs", index)
            if need.step in seen:
                yield path, f"`{need.step}` is needed twice", "Join the conditions with `||` in one entry."
            seen.add(need.step)


@rule("cycle")
def cycle(context: Context) -> Iterator[Told]:
    """No step waits for itself."""
    for scope in context.scopes:
        rank = {name: index for index, name in enumerate(scope.relations.sources)}
        stuck = rank.keys() - set(scope.relations.order)
        while stuck:
            ring = _ring(scope, rank, stuck)
            shown = " → ".join([*ring, ring[0]])
            path = (*scope.at, "steps", ring[0], "needs")
            yield path, f"these steps wait for each other: {shown}", "Remove one of the `needs`."
            stuck = _beyond(scope, stuck, set(ring))


@rule("unreachable")
def unreachable(context: Context) -> Iterator[Told]:
    """Every step can run: at least one of its edges can become active."""
    for scope in context.scopes:
        dead: set[str] = set()
        for name in scope.relations.order:
            sources = scope.relations.sources[name]
            if sources and all(source in dead or _never_chosen(scope, source, name) for source in sources):
                dead.add(name)
                remedy = f"Name it in the routes of {listed(sources)}, or let it need another step."
                yield (*scope.at, "steps", name), f"`{name}` can never run: no active edge leads to it", remedy


@rule("template")
def template(context: Context) -> Iterator[Told]:
    """A fallback is a plain step that runs only in another one's place."""
    for place in context.places:
        told = _template_fault(place)
        if told:
            yield ((*place.at, "fallback"), *told)


@rule("quorum")
def quorum(context: Context) -> Iterator[Told]:
    """A join asks for no more edges than there are."""
    for place in context.places:
        step = place.step
        if isinstance(step.join, int) and step.join > len(step.needs):
            told = f"a quorum of {step.join} cannot be reached with {len(step.needs)} needed steps"
            yield (*place.at, "join"), told, "Lower it."


def _template_fault(place: Place[AnyStep]) -> tuple[str, str] | None:
    name = place.step.fallback
    stand_in = place.scope.steps.get(name or "")
    if name is not None and name == place.name:
        return f"`{name}` cannot stand in for itself", "Name another step."
    if stand_in is None or name is None:
        return None
    if stand_in.fallback is not None:
        return f"the fallback `{name}` has a fallback of its own", "One level is available."
    takes_turns = isinstance(stand_in, Agent) and bool(stand_in.tools)
    if takes_turns or stand_in.type not in ("agent", "tool", "transform"):
        what = "an agent with tools" if takes_turns else f"a {stand_in.type}"
        return f"{what} cannot be a fallback", "Use an agent without tools, a tool or a transform."
    if name not in place.scope.relations.templates:
        return f"`{name}` also runs as a step of its own", "Give the stand-in no `needs` and let no step need it."
    return None


def _is_taken(place: Place[AnyStep], name: str) -> bool:
    around = [scope.owner.step for scope in place.scope.around() if scope.owner]
    return name in _RESERVED or name in {step.name for step in around if isinstance(step, Map)}


def _named(place: Place[AnyStep]) -> Iterator[tuple[Path, str]]:
    at, step = place.at, place.step
    yield from (((*at, "needs", index), need.step) for index, need in enumerate(step.needs))
    if step.fallback is not None:
        yield (*at, "fallback"), step.fallback
    if isinstance(step, Gate) and step.approves is not None:
        yield (*at, "approves"), step.approves
    if isinstance(step, Router):
        yield from (((*at, "routes", index, "to"), route.to) for index, route in enumerate(step.routes))
        if step.default is not None:
            yield (*at, "default"), step.default


def _ring(scope: Scope, rank: Mapping[str, int], stuck: set[str]) -> list[str]:
    """Follow needs inside ``stuck`` until a step comes again; return the steps of that ring, each before its needer."""
    seen: dict[str, int] = {}
    name = min(stuck, key=rank.__getitem__)
    while name not in seen:
        seen[name] = len(seen)
        name = next(source for source in scope.relations.sources[name] if source in stuck)
    ring = list(reversed(list(seen)[seen[name] :]))
    first = min(range(len(ring)), key=lambda index: rank[ring[index]])
    return ring[first:] + ring[:first]


def _beyond(scope: Scope, stuck: set[str], ring: set[str]) -> set[str]:
    """Return what is stuck for another reason than waiting, directly or not, for ``ring``."""
    caught, todo = set(ring), list(ring)
    while todo:
        more = [name for name in scope.relations.dependents[todo.pop()] if name in stuck and name not in caught]
        caught.update(more)
        todo += more
    rest = stuck - caught
    return {name for name in rest if any(source in rest for source in scope.relations.sources[name])}


def _never_chosen(scope: Scope, source: str, target: str) -> bool:
    """Tell whether ``source`` is a router that never chooses ``target``, or a step that never runs by itself."""
    step = scope.steps.get(source)
    if source in scope.relations.templates:
        return True
    return isinstance(step, Router) and target not in {step.default, *(route.to for route in step.routes)}
