"""How a rule is written: a generator over a ``Context`` that yields findings, registered by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from shared.definition.inference import Typing
from shared.definition.outputs import Outputs
from shared.definition.scopes import Place, Scope, scopes
from shared.definition.sites import Field, Site, fields, of_triggers, readable
from shared.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from shared.definition.loader import Loaded
    from shared.definition.models import AnyStep, Step, Workflow
    from shared.definition.neighbours import Neighbour
    from shared.definition.yaml_tree import Path
    from shared.tools.registry import Tool

S = TypeVar("S", bound="Step")
Told = tuple["Path", str, str]
"""What a rule yields: the path of the field, the message, the remedy."""


@dataclass(frozen=True)
class Context:
    """What rules look at. ``tools`` and ``models`` are those that steps may name, ``workflows`` the other workflows.

    None in ``workflows``, or in ``servers`` (of MCP), means that they are not known. ``today`` (in UTC) tells which
    times are over.
    """

    loaded: Loaded
    tools: Mapping[str, Tool]
    models: frozenset[str]
    today: date
    workflows: Mapping[str, Neighbour] | None = None
    servers: frozenset[str] | None = None

    @property
    def workflow(self) -> Workflow:
        """The workflow itself."""
        return self.loaded.workflow

    @cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """Every graph: the workflow's own, and those inside maps and loops."""
        return scopes(self.workflow, self.loaded.ghosts)

    @cached_property
    def bodies(self) -> Mapping[Path, Scope]:
        """The graphs inside maps and loops by the path of their owner."""
        return {scope.at: scope for scope in self.scopes}

    @cached_property
    def places(self) -> tuple[Place[AnyStep], ...]:
        """Every step of every graph."""
        return tuple(place for scope in self.scopes for place in scope.places())

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Every field that may hold expressions."""
        return (*fields(self.scopes), *of_triggers(self.workflow.triggers, self.scopes[0]))

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """Every expression that can be found."""
        return tuple(site for field in self.fields for site in readable(field))

    @cached_property
    def outputs(self) -> Outputs:
        """The schemas of inputs and outputs."""
        return Outputs(self.workflow, self.bodies, self.tools)

    @cached_property
    def typing(self) -> Typing:
        """The types of inputs and outputs."""
        return Typing(self.outputs, self.bodies)

    def steps(self, kind: type[S]) -> Iterator[Place[S]]:
        """Yield the steps of one type, wherever they stand."""
        for place in self.places:
            if isinstance(place.step, kind):
                yield Place(place.scope, place.name, place.step)


Rule = Callable[[Context], Iterator[Finding]]
RULES: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Callable[[Context], Iterator[Told | Finding]]], Rule]:
    """Register a rule under ``name``. It yields (path, message, remedy), or a whole finding."""

    def register(function: Callable[[Context], Iterator[Told | Finding]]) -> Rule:
        def run(context: Context) -> Iterator[Finding]:
            for told in function(context):
                yield told if isinstance(told, Finding) else context.loaded.finding(name, *told)

        RULES[name] = run
        return run

    return register
