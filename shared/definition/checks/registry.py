"""How a rule is written: a generator over a ``Context`` that yields findings, registered by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from shared.definition.inference import Typing
from shared.definition.relations import Relations
from shared.definition.sites import Field, fields
from shared.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.definition.loader import Loaded
    from shared.definition.models import Step, Workflow
    from shared.definition.yaml_tree import Path
    from shared.tools.registry import Tool

S = TypeVar("S", bound="Step")
Told = tuple["Path", str, str]
"""What a rule yields: the path of the field, the message, the remedy."""


@dataclass(frozen=True)
class Context:
    """What rules look at. ``tools`` and ``models`` are those that steps may name."""

    loaded: Loaded
    tools: Mapping[str, Tool]
    models: frozenset[str]

    @property
    def workflow(self) -> Workflow:
        """The workflow itself."""
        return self.loaded.workflow

    @cached_property
    def relations(self) -> Relations:
        """Sources, ancestors, templates."""
        return Relations(self.workflow)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Every field that may hold expressions."""
        return tuple(fields(self.workflow))

    @cached_property
    def typing(self) -> Typing:
        """The types of inputs and outputs."""
        return Typing(self.workflow, self.relations, self.tools)

    def steps(self, kind: type[S]) -> Iterator[tuple[str, S]]:
        """Yield the steps of one type with their names."""
        for name, step in self.workflow.steps.items():
            if isinstance(step, kind):
                yield name, step


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
