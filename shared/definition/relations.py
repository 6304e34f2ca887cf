"""How the steps of a workflow relate: sources, ancestors, fallback templates. Unknown names are left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.definition.models import Workflow


@dataclass(frozen=True)
class Relations:
    """Relations of one workflow's steps, computed when first asked for."""

    workflow: Workflow

    @cached_property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """The known steps that each step needs."""
        steps = self.workflow.steps
        return {name: tuple(need.step for need in step.needs if need.step in steps) for name, step in steps.items()}

    @cached_property
    def dependents(self) -> dict[str, tuple[str, ...]]:
        """The steps that need each step."""
        found: dict[str, list[str]] = {name: [] for name in self.sources}
        for name, sources in self.sources.items():
            for source in dict.fromkeys(sources):
                found[source].append(name)
        return {name: tuple(targets) for name, targets in found.items()}

    @cached_property
    def users(self) -> dict[str, tuple[str, ...]]:
        """For each step named as a fallback, the steps that name it."""
        found: dict[str, tuple[str, ...]] = {}
        for name, step in self.workflow.steps.items():
            if step.fallback in self.workflow.steps:
                found[step.fallback] = (*found.get(step.fallback, ()), name)
        return found

    @cached_property
    def templates(self) -> frozenset[str]:
        """Steps used only as a fallback: named as one, needing nothing and needed by nobody."""
        return frozenset(
            name for name in self.users if not self.workflow.steps[name].needs and not self.dependents[name]
        )

    @cached_property
    def order(self) -> tuple[str, ...]:
        """A topological order, in the file's order where that is free; steps on or behind a cycle are missing."""
        waiting = {name: len(set(sources)) for name, sources in self.sources.items()}
        ready = [name for name, count in waiting.items() if count == 0]
        for name in ready:
            for target in self.dependents[name]:
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
        return tuple(ready)

    @cached_property
    def _bits(self) -> dict[str, int]:
        return {name: 1 << index for index, name in enumerate(self.sources)}

    @cached_property
    def _ancestors(self) -> dict[str, int]:
        """The ancestors of every step as a set of bits: a thousand steps in a row have half a million of them."""
        masks: dict[str, int] = {}
        for name in self.order:
            masks[name] = 0
            for source in self.sources[name]:
                masks[name] |= masks[source] | self._bits[source]
        for name in self.templates:
            masks[name] = -1
            for user in self.users[name]:
                masks[name] &= masks.get(user, 0)
        return masks

    def waits_for(self, name: str, other: str) -> bool:
        """Tell whether ``other`` has surely settled when ``name`` runs; for a template, when any user of it runs.

        Steps on or behind a cycle wait for nothing: the cycle itself is the fault to mend.
        """
        return bool(self._ancestors.get(name, 0) & self._bits.get(other, 0))

    def reachable(self, *, without: frozenset[str]) -> frozenset[str]:
        """Return the steps that can be reached from a root along edges that avoid ``without``."""
        found: set[str] = set()
        todo = [name for name, step in self.workflow.steps.items() if not step.needs and name not in self.templates]
        while todo:
            name = todo.pop()
            if name not in found and name not in without:
                found.add(name)
                todo += self.dependents[name]
        return frozenset(found)
