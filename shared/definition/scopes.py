"""The graphs of a workflow: its own, and those inside maps and loops; and the places that steps have in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from shared.definition.models import Loop, Map, Step
from shared.definition.relations import Relations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.definition.models import Agent, AnyStep, SubWorkflow, ToolStep, Workflow
    from shared.definition.salvage import Ghost
    from shared.definition.yaml_tree import Path

S_co = TypeVar("S_co", bound=Step, covariant=True)


@dataclass(frozen=True, eq=False)
class Scope:
    """One graph. ``at`` is the path of the mapping that holds its ``steps``; ``owner`` is the map or loop around it.

    ``ghosts`` are the steps that could not be read: their names are known, and nothing else.
    """

    at: Path
    steps: Mapping[str, AnyStep]
    owner: Place[Map | Loop] | None = None
    ghosts: Mapping[str, Ghost] = field(default_factory=dict[str, "Ghost"])

    @property
    def outer(self) -> Scope | None:
        """The graph around this one."""
        return self.owner.scope if self.owner else None

    @property
    def level(self) -> int:
        """How many maps and loops are around it."""
        return self.outer.level + 1 if self.outer else 0

    @cached_property
    def relations(self) -> Relations:
        """Sources, ancestors, templates."""
        return Relations(self.steps, self.ghosts)

    def knows(self, name: str | None) -> bool:
        """Tell whether a step of this name stands in this graph itself."""
        return name in self.steps or name in self.ghosts

    def at_name(self, name: str) -> Place[AnyStep] | None:
        """Return the step of this name in this graph itself."""
        return Place(self, name, self.steps[name]) if name in self.steps else None

    def sinks(self) -> Iterator[Place[AnyStep]]:
        """Yield the steps that no other one needs: their outputs are the graph's."""
        for place in self.places():
            if not self.relations.dependents[place.name] and place.name not in self.relations.templates:
                yield place

    def around(self) -> Iterator[Scope]:
        """Yield this graph and those around it, from the inside out."""
        here: Scope | None = self
        while here is not None:
            yield here
            here = here.outer

    def places(self) -> Iterator[Place[AnyStep]]:
        """Yield the steps of this graph."""
        return (Place(self, name, step) for name, step in self.steps.items())


@dataclass(frozen=True, eq=False)
class Place(Generic[S_co]):
    """A step and where it stands."""

    scope: Scope
    name: str
    step: S_co

    @property
    def at(self) -> Path:
        """The path of the step in the file."""
        return (*self.scope.at, "steps", self.name)


def general(place: Place[Agent] | Place[Map] | Place[SubWorkflow] | Place[ToolStep]) -> Place[AnyStep]:
    """Return the place without what is known of its step's type."""
    return Place(place.scope, place.name, place.step)


def scopes(workflow: Workflow, ghosts: Mapping[Path, Ghost] | None = None) -> tuple[Scope, ...]:
    """Return every graph of a workflow, outer ones before those inside them."""
    by_graph: dict[Path, dict[str, Ghost]] = {}
    for path, ghost in (ghosts or {}).items():
        by_graph.setdefault(path[:-2], {})[str(path[-1])] = ghost
    found = [Scope((), workflow.steps, None, by_graph.get((), {}))]
    for scope in found:
        for place in scope.places():
            if isinstance(place.step, Map | Loop):
                owner = Place[Map | Loop](scope, place.name, place.step)
                found.append(Scope(place.at, place.step.steps, owner, by_graph.get(place.at, {})))
    return tuple(found)
