"""Parts: the child executions that a large map or a long loop is split into.

A part is a run of the same version which runs one range of items or iterations (``each[300-599]``) with a head and a
log of its own. What its body names outside is frozen in the run's ``context`` when the part is created, and its output
says what became of every item: whether that is good enough is for the whole to judge. Its envelope is a share of what
its parent has left, and takes more while there is more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from shared import values
from shared.errors import PermanentFailure, failure_named
from shared.ledger.records import Failure, Step
from shared.manifest import part_plan
from shared.runtime import protocol
from shared.runtime.apart import HALF, ApartBirth, context_of
from shared.runtime.children import Birth, run_as_child
from shared.runtime.host import plan_of
from shared.runtime.journal import Change, Note
from shared.runtime.loops import advance, begin_loop, settle_loop, turn
from shared.runtime.maps import enter, numbers, part_paths
from shared.runtime.outputs import output_of
from shared.runtime.scope import keys_inside
from shared.runtime.scopes import part_path, range_of
from shared.runtime.steps import NotOpened

if TYPE_CHECKING:
    from shared.manifest import StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.task import Task


def split_map(host: Host, task: Task) -> dict[str, Any]:
    """Freeze the items of a map that may be long. Returns ``how`` it runs: ``items`` here, or ``parts`` by name."""
    step = enter(host, task, split=True)
    if step.settled or not step.parts:
        return {"how": "items", "items": [] if step.settled else numbers(host, step), "parts": []}
    return {"how": "parts", "items": [], "parts": [path.removeprefix(task.scope) for path in part_paths(host, step)]}


def turn_segment(host: Host, task: Task) -> dict[str, Any]:
    """Say whether another part of a long loop runs, and which one. Raises StepFailure after recording it."""
    step = turn(host, task, _next_segment)
    if step.settled:
        return {"again": "no", "part": ""}
    return {"again": "yes", "part": _segment(step, plan_of(host.manifest(task), task.path)).removeprefix(task.scope)}


def _segment(step: Step, plan: StepPlan) -> str:
    """Return the path of the loop's current part: that which ends with the iteration on the loop's record."""
    assert plan.split is not None  # noqa: S101 - for the type checker
    first = (step.iteration - 1) // plan.split.size * plan.split.size + 1
    return part_path(step.path, first, step.iteration)


def _next_segment(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot) -> Step:
    known = seen.step(task.path)
    assert plan.split is not None  # noqa: S101 - for the type checker
    most, size = int(plan.spec["max_iterations"]), plan.split.size
    if known is None or known.iteration == 0:
        return begin_loop(host, task, plan, journal, seen, min(size, most))
    if known.failure:
        raise failure_named(known.failure.error_class, known.failure.message)
    part = seen.step(_segment(known, plan))
    if part is None or not (part.settled or part.failure):
        return known
    told = _told(host, part)
    if told["error"]:
        raise failure_named(told["error"]["error_class"], told["error"]["message"])
    if told["result"]:
        return settle_loop(host, task, known, told["result"], seen)
    if known.iteration >= most:
        raise PermanentFailure(f"`until` did not hold after {known.iteration} iterations: {plan.spec['until']}")
    return advance(journal, seen, replace(known, iteration=min(known.iteration + size, most)))


def _told(host: Host, part: Step) -> dict[str, Any]:
    """Return what a part of a loop says of itself; one that ended early says why."""
    told = output_of(part, host.blobs) if part.status == "completed" else None
    if isinstance(told, dict) and "error" in told:
        return cast("dict[str, Any]", told)
    failure = part.failure or Failure("permanent", f"Part {part.path} has {part.status}.")
    return {"error": {"error_class": failure.error_class, "message": failure.message}}


def run_part(host: Host, task: Task) -> None:
    """Create and start the child execution of one part, register the token, and answer it when the part has ended."""
    run_as_child(host, task, _Part(host, task))


class _Part:
    """How a part of a map or a loop becomes a run."""

    def __init__(self, host: Host, task: Task) -> None:
        self._host, self._task = host, task
        self._whole, self._first, self._last = range_of(task.path)
        self._container = plan_of(host.manifest(task), self._whole)
        self.plan = part_plan(task.step)

    def keys(self) -> frozenset[str]:
        """Return the sort keys that the part's beginning depends on: the whole, and what the body names outside."""
        around = keys_inside(self._host.manifest(self._task), self._container, self._task.scope)
        return self._host.keys(self._task, self.plan) | around | {f"STEP#{self._before}"}

    @property
    def _before(self) -> str:
        """The path of a loop's part before this one."""
        size = self._container.split.size if self._container.split else 1
        return part_path(self._whole, self._first - size, self._first - 1)

    def begin(self, journal: Journal, seen: Snapshot) -> Step:
        """Create the part, unless the whole is over. Raises NotOpened."""
        whole = seen.step(self._whole)
        if whole is None:
            raise NotOpened(f"Part {self._task.path} is not begun: {self._whole} was not entered.")
        if whole.failure or whole.settled:
            return journal.transact(seen, lambda again: cancel_part(again, self._task, self._host.clock.now()))[0]
        run = self._host.definitions.published(self._task.workflow, self._task.version)
        context = values.store(self._context(seen), self._host.blobs, self._task.tenant)
        now, records, shares = self._host.clock.now(), (self._record(whole),), max(whole.parts, HALF)
        birth = _PartBirth(self._task, self.plan, run, seen.run.input, now, context, records, shares)
        return journal.transact(seen, birth.decide)[0]

    def _context(self, seen: Snapshot) -> dict[str, Any]:
        """Return what the body's expressions see of what stands around the map or loop, and of the part before."""
        before = seen.step(self._before) if self._container.type == "loop" else None
        told = output_of(before, self._host.blobs)
        around = context_of(self._host, self._task, self._container, seen)
        return {**around, "previous": told["previous"] if told else None}

    def _record(self, whole: Step) -> Step:
        """Return the map's or loop's own record inside the part: entered, with its range of items or iterations."""
        fresh = replace(
            protocol.new_step(self._container, self._whole, 1),
            attempt=1,
            started=self._host.clock.now(),
            first=self._first,
        )
        if self._container.type == "loop":
            return replace(fresh, iteration=self._first)
        items = values.load(whole.arguments, self._host.blobs)[self._first : self._last + 1]
        return replace(fresh, arguments=values.store(items, self._host.blobs, self._task.tenant))


def cancel_part(seen: Snapshot, task: Task, now: int) -> Change[Step]:
    """Settle a part that has not begun, because its whole is over."""
    known = seen.step(task.path) or protocol.new_step(part_plan(task.step), task.path, task.epoch)
    if known.settled or known.child:
        return Change(known)
    over = replace(known, status="cancelled", settled=True, ended=now)
    return Change(over, (over,), (Note("step_cancelled", over.path),))


@dataclass(frozen=True, slots=True)
class _PartBirth(ApartBirth):
    """The beginning of a part."""

    def decide(self, seen: Snapshot) -> Change[Step]:
        """Create the part, unless the whole has ended meanwhile."""
        whole = seen.step(self.records[0].path)
        if whole and (whole.failure or whole.settled):
            return cancel_part(seen, self.task, self.now)
        return Birth.decide(self, seen)
