"""Maps and loops in child executions: as a whole, for a time-out or a budget, and how any child of theirs is born.

A map or loop that declares ``timeout`` or ``budget`` has a run of its own: of the same version, begun at that step,
with a head and a log. To its parent it is what a sub-workflow is: a step that waits for a child, which its time-out
ends. The child's envelope is a share of what the parent has left, and takes more while there is more, but together
never more than the budget. What its expressions name outside is frozen in the run's ``context``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.runtime import protocol
from shared.runtime.children import Birth, run_as_child
from shared.runtime.envelopes import share, within
from shared.runtime.host import plan_of
from shared.runtime.maps import items_over
from shared.runtime.runs import NewRun, StartRequest
from shared.runtime.scope import inside_names, keys_inside

if TYPE_CHECKING:
    from shared.ledger.records import Run, Step
    from shared.manifest import Limits, StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.task import Task

HALF = 2
"""A run that goes on alone beside its parent begins with half of what that has left."""


def run_apart(host: Host, task: Task) -> None:
    """Create and start a map's or a loop's own run once, register the token, and answer it when the run has ended.

    Raises StepFailure after recording it when there is no list to go over.
    """
    run_as_child(host, task, _Whole(host, task))


class _Whole:
    """How a map or a loop becomes a run."""

    def __init__(self, host: Host, task: Task) -> None:
        self._host, self._task = host, task
        self.plan = plan_of(host.manifest(task), task.path)

    def keys(self) -> frozenset[str]:
        """Return the sort keys that the beginning depends on."""
        return keys_inside(self._host.manifest(self._task), self.plan, self._task.scope)

    def begin(self, journal: Journal, seen: Snapshot) -> Step:
        """Create the run. Raises StepFailure."""
        host, task, plan = self._host, self._task, self.plan
        published = host.definitions.published(task.workflow, task.version)
        context = values.store(context_of(host, task, plan, seen), host.blobs, task.tenant)
        now, records = host.clock.now(), self._records(seen)
        birth = ApartBirth(task, plan, published, seen.run.input, now, context, records, HALF)
        return journal.transact(seen, birth.decide)[0]

    def _records(self, seen: Snapshot) -> tuple[Step, ...]:
        """Return the map's record as its own run finds it: with its items, which only the parent can work out."""
        if self.plan.type == "loop":
            return ()
        items = items_over(self._host, self._task, self.plan, seen)
        stored = values.store(items, self._host.blobs, self._task.tenant)
        return (replace(protocol.new_step(self.plan, self._task.path, 1), status="ready", arguments=stored),)


def context_of(host: Host, task: Task, container: StepPlan, seen: Snapshot) -> dict[str, Any]:
    """Return what expressions in a map's or a loop's child execution see of what stands around it."""
    names, wanted = host.names(task, seen).names, inside_names(container)
    return {
        "names": {name: value for name, value in names.items() if name not in {"steps", "input"}},
        "steps": {name: shown for name, shown in names["steps"].items() if name in wanted},
    }


@dataclass(frozen=True, slots=True)
class ApartBirth(Birth):
    """The beginning of a run of the same version at a map or a loop.

    Its envelope is one of ``shares`` of what its parent has left, within the step's own budget. ``records`` are those
    that it begins with.
    """

    context: values.Value
    records: tuple[Step, ...]
    shares: int

    def limits(self, seen: Snapshot) -> Limits:
        """Return its share of what is left."""
        return within(share(seen.head, self.shares, self.now), self.plan.budget)

    def told(self) -> dict[str, Any]:
        """Return what the parent's event tells of it."""
        return {"part": self.task.step}

    def new(self, parent: Run, child: str, limits: Limits) -> NewRun:
        """Return its run. Its initiator and trigger are those of the whole, and so is its machine."""
        asked = StartRequest(parent.tenant, parent.initiator, parent.trigger, {}, budget_mode=parent.budget_mode)
        asked = replace(asked, trigger_id=parent.trigger_id, occurrence=parent.occurrence)
        pinned = replace(self.published, machine=parent.machine)
        above = f"{parent.id}|{self.task.path}"
        run = NewRun(child, pinned, asked, self.given, self.now, limits, above)
        return replace(run, part=self.task.path, context=self.context, records=self.records)
