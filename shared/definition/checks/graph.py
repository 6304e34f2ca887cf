"""Rules about the graph: names that must exist, cycles, steps that can never run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.models import Gate, Router
from shared.definition.names import listed, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.models import AnyStep
    from shared.definition.yaml_tree import Path


@rule("unknown_step")
def unknown_step(context: Context) -> Iterator[Told]:
    """Every name in ``needs``, ``fallback``, ``approves``, ``routes`` and ``default`` is a step."""
    steps = context.workflow.steps
    for name, step in steps.items():
        for path, target in _named(name, step):
            if target not in steps:
                remedy = nearest(target, steps) or f"Steps: {listed(steps)}."
                yield path, f"there is no step `{target}`", remedy


@rule("duplicate_need")
def duplicate_need(context: Context) -> Iterator[Told]:
    """A step needs another once, and never itself."""
    for name, step in context.workflow.steps.items():
        seen: set[str] = set()
        for index, need in enumerate(step.needs):
            path = ("steps", name, "needs", index)
            if need.step in seen:
                yield path, f"`{need.step}` is needed twice", "Join the conditions with `||` in one entry."
            seen.add(need.step)


@rule("cycle")
def cycle(context: Context) -> Iterator[Told]:
    """No step waits for itself."""
    stuck = set(context.workflow.steps) - set(context.relations.order)
    while stuck:
        ring = _ring(context, min(stuck, key=list(context.workflow.steps).index), stuck)
        shown = " → ".join([*ring, ring[0]])
        yield ("steps", ring[0], "needs"), f"these steps wait for each other: {shown}", "Remove one of the `needs`."
        stuck = _beyond(context, stuck, set(ring))


@rule("unreachable")
def unreachable(context: Context) -> Iterator[Told]:
    """Every step can run: at least one of its edges can become active."""
    dead: set[str] = set()
    for name in context.relations.order:
        sources = context.relations.sources[name]
        if sources and all(source in dead or _never_chosen(context, source, name) for source in sources):
            dead.add(name)
            remedy = f"Name it in the routes of {listed(sources)}, or let it need another step."
            yield ("steps", name), f"`{name}` can never run: no active edge leads to it", remedy


@rule("template")
def template(context: Context) -> Iterator[Told]:
    """A fallback is a plain step that runs only in another one's place."""
    for name, step in context.workflow.steps.items():
        stand_in = context.workflow.steps.get(step.fallback or "")
        path = ("steps", name, "fallback")
        if step.fallback == name:
            yield path, f"`{name}` cannot stand in for itself", "Name another step."
        elif stand_in is not None and stand_in.fallback is not None:
            yield path, f"the fallback `{step.fallback}` has a fallback of its own", "One level is available."
        elif stand_in is not None and stand_in.type in ("router", "human_gate"):
            yield path, f"a {stand_in.type} cannot be a fallback", "Use an agent, a tool or a transform."
        elif stand_in is not None and step.fallback not in context.relations.templates:
            remedy = "Give the stand-in no `needs` and let no step need it."
            yield path, f"`{step.fallback}` also runs as a step of its own", remedy


@rule("quorum")
def quorum(context: Context) -> Iterator[Told]:
    """A join asks for no more edges than there are."""
    for name, step in context.workflow.steps.items():
        if isinstance(step.join, int) and step.join > len(step.needs):
            told = f"a quorum of {step.join} cannot be reached with {len(step.needs)} needed steps"
            yield ("steps", name, "join"), told, "Lower it."


def _named(name: str, step: AnyStep) -> Iterator[tuple[Path, str]]:
    at: Path = ("steps", name)
    yield from (((*at, "needs", index), need.step) for index, need in enumerate(step.needs))
    if step.fallback is not None:
        yield (*at, "fallback"), step.fallback
    if isinstance(step, Gate) and step.approves is not None:
        yield (*at, "approves"), step.approves
    if isinstance(step, Router):
        yield from (((*at, "routes", index, "to"), route.to) for index, route in enumerate(step.routes))
        if step.default is not None:
            yield (*at, "default"), step.default


def _ring(context: Context, start: str, stuck: set[str]) -> list[str]:
    """Follow needs inside ``stuck`` until a step comes again; return the steps of that ring, each before its needer."""
    seen: list[str] = []
    name = start
    while name not in seen:
        seen.append(name)
        name = next(source for source in context.relations.sources[name] if source in stuck)
    ring = list(reversed(seen[seen.index(name) :]))
    first = min(range(len(ring)), key=lambda index: list(context.workflow.steps).index(ring[index]))
    return ring[first:] + ring[:first]


def _beyond(context: Context, stuck: set[str], ring: set[str]) -> set[str]:
    """Return what is stuck for another reason than waiting, directly or not, for ``ring``."""
    caught, grown = ring, True
    while grown:
        more = {name for name in stuck - caught if caught & set(context.relations.sources[name])}
        caught, grown = caught | more, bool(more)
    rest = stuck - caught
    return {name for name in rest if any(source in rest for source in context.relations.sources[name])}


def _never_chosen(context: Context, source: str, target: str) -> bool:
    """Tell whether ``source`` is a router that never chooses ``target``, or a step that never runs by itself."""
    step = context.workflow.steps[source]
    if source in context.relations.templates:
        return True
    return isinstance(step, Router) and target not in {step.default, *(route.to for route in step.routes)}
