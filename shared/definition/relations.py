"""How the steps of a workflow relate: sources, ancestors, fallback templates. Unknown names are left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.definition.models import AnyStep
    from shared.definition.salvage import Ghost


@dataclass(frozen=True)
class Relations:
    """Relations of the steps of one graph, computed when first asked for. ``ghosts`` are steps that have faults."""

    steps: Mapping[str, AnyStep]
    ghosts: Mapping[str, Ghost]

    @cached_property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """The known steps that each step needs."""
        needs = {name: tuple(need.step for need in step.needs) for name, step in self.steps.items()}
        needs |= {name: ghost.needs for name, ghost in self.ghosts.items()}
        return {name: tuple(source for source in sources if source in needs) for name, sources in needs.items()}

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
        for name, step in (*self.steps.items(), *self.ghosts.items()):
            if step.fallback is not None and step.fallback in self.sources:
                found[step.fallback] = (*found.get(step.fallback, ()), name)
        return found

    @cached_property
    def templates(self) -> frozenset[str]:
        """Steps used only as a fallback: named as one, needing nothing and needed by nobody."""
        return frozenset(name for name in self.users if not self._needs_any(name) and not self.dependents[name])

    def _needs_any(self, name: str) -> bool:
        return bool(self.steps[name].needs if name in self.steps else self.ghosts[name].needs)

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

        Steps on or behind a cycle wait for nothing: the cycle itself is the fault to mend. What cannot be told
        because a step has faults counts as waiting.
        """
        return other in self.ghosts or name in self.ghosts or bool(self._ancestry(name) & self._bits.get(other, 0))

    def _ancestry(self, name: str) -> int:
        return self._ancestors.get(name, 0)

    def reachable(self, *, without: frozenset[str]) -> frozenset[str]:
        """Return the steps that can be reached from a root along edges that avoid ``without``."""
        found: set[str] = set()
        todo = [name for name in self.sources if not self._needs_any(name) and name not in self.templates]
        while todo:
            name = todo.pop()
            if name not in found and name not in without:
                found.add(name)
                todo += self.dependents[name]
        return frozenset(found)
