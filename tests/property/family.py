"""A run and the child runs below it, as one thing to look at: paths of a child stand behind its step's and ``>``.

What runs a map or a loop, or a part of one, is no child in that sense: its paths are those of the run above.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from graphs import child

from shared.compiler import compile_manifest
from shared.runtime.host import Definitions, Published, plan_of
from shared.runtime.journal import Journal
from shared.runtime.scopes import is_apart, is_part, whole_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.compiler import Unit
    from shared.ledger.records import Event, Step
    from shared.manifest import Manifest
    from shared.runtime.host import Host
    from shared.runtime.journal import Snapshot

unit_of = lru_cache(maxsize=64)(lambda name: compile_manifest(child(name)))


class Generated(Definitions):
    """The workflow at hand, and all that it can run, made from their names."""

    def __init__(self, unit: Unit) -> None:
        self._root = unit

    def unit(self, workflow: str) -> Unit:
        """Return a workflow with its machine."""
        return self._root if workflow == self._root.manifest.workflow else unit_of(workflow)

    def manifest(self, workflow: str, version: int) -> Manifest:
        return self.published(workflow, version).manifest

    def published(self, workflow: str, version: int | None = None) -> Published:
        manifest = self.unit(workflow).manifest
        return Published(workflow, version or 1, manifest.hash, f"machine:{workflow}:1", manifest)


@dataclass(frozen=True)
class Member:
    """One run of the family: what stands before its paths, its journal, its records, its definition."""

    prefix: str
    journal: Journal
    records: Snapshot
    manifest: Manifest

    @property
    def head(self):
        return self.records.head

    def steps(self) -> Iterator[Step]:
        """Yield the records of steps; not those of parts, nor in its own run that of the whole map or loop."""
        return (step for step in self.records.steps() if step.type != "part" and step.path != self.whole)

    def events(self) -> list[Event]:
        """Return the log, without what a part says of the map or loop that it belongs to."""
        return [event for event in self.journal.events() if event.path != self.whole or not self.whole]

    @property
    def whole(self) -> str:
        """The map or loop that this run is a part of; empty for any other run."""
        part = self.records.run.part
        return whole_of(part) if part else ""

    @property
    def places(self) -> int:
        """How many steps of this run may be at work at once: parts of one map share the places of the whole.

        A map that is a run of its own has them all.
        """
        part = self.records.run.part
        split = plan_of(self.manifest, self.whole).split if part and is_part(part) else None
        return max(1, self.manifest.max_parallel // (split.at_once if split else 1))

    def here(self, path: str) -> str:
        """Return what the whole family calls a path of this run."""
        return f"{self.prefix}{path}"


def family(host: Host, journal: Journal, prefix: str = "") -> Iterator[Member]:
    """Yield a run and all runs below it, as they are now; of a step's runs the last one."""
    seen = journal.read_all()
    run = seen.run
    yield Member(prefix, journal, seen, host.definitions.manifest(run.workflow, run.version))
    for step in seen.steps():
        if step.child:
            below = Journal(host.store, host.clock, run.tenant, step.child)
            yield from family(host, below, prefix if is_apart(step) else f"{prefix}{step.path}>")


def settled(members: Iterator[Member]) -> frozenset[str]:
    """Return what has settled in a family: steps, and child runs that have ended."""
    found: set[str] = set()
    for member in members:
        found |= {member.here(step.path) for step in member.steps() if step.settled}
        found |= {member.prefix} if member.prefix and member.head.ended and not member.records.run.part else set()
    return frozenset(found)
