"""Child runs: a sub-workflow with its own run, version, budget and log, whose end answers the parent's step.

The child's envelope is carved out of the parent's head in the transaction that creates it, and what it did not use goes
back when it ends. A paused child leaves its parent waiting; a resumed one still answers it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from shared import values
from shared.budget import rules
from shared.errors import Conflict, PermanentFailure, StepFailure, failure_named
from shared.ids import ulid_from
from shared.ledger.records import Amount, Failure, Park, Run, Step
from shared.runtime import protocol
from shared.runtime.ending import execution_input, request, wake
from shared.runtime.envelopes import envelope
from shared.runtime.host import plan_of
from shared.runtime.joins import verdict
from shared.runtime.journal import Change, Journal, Note, Snapshot
from shared.runtime.maps import items_of, sinks
from shared.runtime.notes import closing, shown
from shared.runtime.outputs import fits, output_of
from shared.runtime.protocol import Outcome
from shared.runtime.rebirth import is_to_go_on, resume_child
from shared.runtime.runs import NewRun, StartRequest
from shared.runtime.scopes import is_part, range_of, whole_of
from shared.runtime.settle import register, settle
from shared.runtime.steps import NotOpened, check_open, record_failure, result, skipped
from shared.runtime.task import Task, run_task

if TYPE_CHECKING:
    from shared.ledger.records import Ending
    from shared.manifest import Limits, StepPlan
    from shared.runtime.host import Host, Published

CHILD_PAUSE, LONGEST_CHILD_PAUSE = 2_000, 900_000
"""First and longest pause (ms) before looking again whether a child that must end has ended."""


def run_child(host: Host, task: Task) -> None:
    """Create and start the child once, register this delivery's token, and answer it when the child has ended.

    Raises StepFailure after recording it when the child cannot be created.
    """
    run_as_child(host, task, _SubWorkflow(host, task))


class Beginning(Protocol):
    """How one kind of step becomes a child run."""

    plan: StepPlan

    def keys(self) -> frozenset[str]:
        """Return the sort keys that the beginning depends on."""
        ...

    def begin(self, journal: Journal, seen: Snapshot) -> Step:
        """Create the child of a step that may run. Raises StepFailure."""
        ...


def run_as_child(host: Host, task: Task, beginning: Beginning) -> None:
    """Do for any kind of child what ``run_child`` does for a sub-workflow."""
    journal = host.journal(task)
    seen = journal.read(beginning.keys())
    step = seen.step(task.path)
    if step is None or is_to_go_on(step) or not (step.settled or step.child):
        step = _begin(host, task, beginning, journal, seen)
    if step.settled or step.child is None:
        settle(host, task, step)
        host.engine.succeed(task.token, result(step))
        return
    register(journal, Park(path=task.path, kind="child", token=task.token, entry=task.entry), [])
    child = Journal(host.store, host.clock, task.tenant, step.child).read(["RUN"])
    host.engine.start(child.run.machine, f"{child.run.id}.{child.head.epoch}", execution_input(child))
    if child.head.ended:
        answer_parent(host, task.tenant, step.child)


def _begin(host: Host, task: Task, beginning: Beginning, journal: Journal, seen: Snapshot) -> Step:
    known = seen.step(task.path) or protocol.new_step(beginning.plan, task.path, task.epoch)
    stop = protocol.stopped(seen, known, task)
    if stop:
        raise NotOpened(f"Child {task.path} is not begun: {stop.why}.")
    try:
        skip = _skipped(host, task, beginning.plan, journal, seen)
        if skip:
            return skip
        return resume_child(host, task, journal, seen) if is_to_go_on(known) else beginning.begin(journal, seen)
    except StepFailure as failure:
        record_failure(host, task, beginning.plan, task.path, failure)
        raise


def _skipped(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot) -> Step | None:
    """Skip a step that may not run, also one whose child has ended early; None = it may run, or has begun to.

    The child stays as it ended: what it has done is undone if the run unwinds. Raises StepFailure.
    """
    entry = verdict(plan, task.scope, seen, host.names(task, seen))
    step = skipped(host, plan, task.path, entry.reason, journal, seen) if entry.kind == "skip" else None
    return step if step and step.settled else None


class _SubWorkflow:
    """How a sub-workflow becomes a run of another workflow."""

    def __init__(self, host: Host, task: Task) -> None:
        self._host, self._task = host, task
        self.plan = plan_of(host.manifest(task), task.path)

    def keys(self) -> frozenset[str]:
        return self._host.keys(self._task, self.plan)

    def begin(self, journal: Journal, seen: Snapshot) -> Step:
        host, task, plan = self._host, self._task, self.plan
        published = host.definitions.published(plan.spec["workflow"], plan.spec.get("version"))
        given = _input(host, task, plan, published, seen)
        birth = Birth(task, plan, published, given, host.clock.now())
        return journal.transact(seen, birth.decide)[0]


def _input(host: Host, task: Task, plan: StepPlan, published: Published, seen: Snapshot) -> values.Value:
    given = host.names(task, seen, plan).render(dict(plan.spec.get("with") or {}))
    wrong = fits(given, published.manifest.input)
    if wrong:
        raise PermanentFailure(f"The input of {published.workflow} does not fit its schema at {wrong}")
    return values.store(given, host.blobs, task.tenant)


@dataclass(frozen=True, slots=True)
class Birth:
    """The one transaction on both heads by which a child comes to be; ``given`` is its input, ``now`` in ms."""

    task: Task
    plan: StepPlan
    published: Published
    given: values.Value
    now: int

    def decide(self, seen: Snapshot) -> Change[Step]:
        """Carve the envelope and create the child, unless that has been done. Raises BudgetExceeded."""
        task = self.task
        known = seen.step(task.path) or protocol.new_step(self.plan, task.path, task.epoch)
        if known.settled or known.child:
            return Change(known)
        check_open(seen)
        limits = self.limits(seen)
        hold = Amount(usd=limits.usd or 0, tokens=limits.tokens or 0, steps=limits.steps or 0)
        active = int((limits.active_time or 0) * 1000)
        refusals = tuple(rules.refusals(seen.head, hold, active, self.now))
        if refusals and seen.run.budget_mode != "audit":
            raise protocol.exceeded(refusals[0])
        child = child_id(task.run, task.path, known.attempt + 1, self.now)
        waiting = replace(
            known,
            status="waiting",
            attempt=known.attempt + 1,
            child=child,
            hold=hold,
            failure=None,
            started=known.started or self.now,
            opened=self.now,
        )
        data = {"child": child, "hold": shown(hold), **self.told()}
        note = Note("child_started", task.path, waiting.attempt, data)
        notes = (*protocol.would_refuse(task.path, waiting.attempt, refusals), note)
        writes = tuple(self.new(seen.run, child, limits).writes())
        return Change(waiting, (rules.carve(seen.head, hold, active), waiting), notes, writes)

    def limits(self, seen: Snapshot) -> Limits:
        """Return the child's limits."""
        return envelope(seen.head, self.plan.budget, self.published.manifest.budget, self.now)

    def told(self) -> dict[str, Any]:
        """Return what the parent's event tells of the child."""
        return {"workflow": self.published.workflow, "version": self.published.version}

    def new(self, parent: Run, child: str, limits: Limits) -> NewRun:
        """Return the child's run."""
        asked = StartRequest(parent.tenant, parent.initiator, "sub_workflow", {}, budget_mode=parent.budget_mode)
        return NewRun(child, self.published, asked, self.given, self.now, limits, f"{parent.id}|{self.task.path}")


def child_id(parent: str, path: str, attempt: int, now: int) -> str:
    """Return the child's run id: the same for every delivery of one attempt, a ULID like any other."""
    return ulid_from(now, hashlib.sha256(f"{parent}|{path}|{attempt}".encode()).digest()[:10])


def living(step: Step) -> bool:
    """Tell whether the step waits for a child that has not ended, and whose end will give back its envelope."""
    return step.child is not None and step.status == "waiting"


def answer_parent(host: Host, tenant: str, child: str) -> bool:
    """Close the parent's step by how the child ended and answer its token. Repeating it is harmless.

    Returns whether anybody still waited for the answer.
    """
    below = Journal(host.store, host.clock, tenant, child)
    ended = below.read_all()
    if not ended.run.parent or not ended.head.ended:
        return False
    parent, path = ended.run.parent.split("|", 1)
    journal = Journal(host.store, host.clock, tenant, parent)
    whole = [f"STEP#{range_of(path)[0]}"] if is_part(path) else []
    seen = journal.read(["RUN", f"STEP#{path}", f"PARK#{path}", *whole])
    failed = _failed_part(host, ended)
    end = ChildEnd(child, _outcome(host, ended), ended.head.active_left or 0, host.clock.now(), failed)

    def decide(again: Snapshot) -> Change[Step | None]:
        now = below.read([]).head  # after the parent was read: it may go on in a later epoch by now
        over = now.ended and now.epoch == ended.head.epoch
        return decide_end(again, path, end) if over else Change(None)

    step, after = journal.transact(seen, decide)
    if after.head.unwinding:
        wake(host, journal)
    if step is None:
        return False
    task = run_task(after.run, after.head.epoch, path)
    if step.settled:
        settle(host, task, step)
    park = journal.read([f"PARK#{path}"]).park(path)
    if park is None:
        return False
    if step.settled and not failed:
        return host.engine.succeed(park.token, result(step))
    # Of a part whose item failed, the cascade sees to it that the others stop.
    return host.engine.fail(park.token, "Signalbox.ChildFailed", f"run {child} has {ended.head.ended}")


def _failed_part(host: Host, ended: Snapshot) -> Failure | None:
    """Return the failure with which a part of a map ends the whole map: its first one, where one is enough."""
    if not ended.run.part or not is_part(ended.run.part):
        return None
    plan = plan_of(host.definitions.manifest(ended.run.workflow, ended.run.version), range_of(ended.run.part)[0])
    if plan.type != "map" or plan.spec["on_failure"] != "fail_fast":
        return None
    if ended.head.ended != "completed":
        return Failure("permanent", f"Run {ended.run.id} has {ended.head.ended}: {ended.head.reason or ''}")
    items = items_of(_part_output(host, ended))
    return next((Failure(**item["error"]) for item in items if item["status"] == "failed"), None)


def _part_output(host: Host, ended: Snapshot) -> Any:
    return output_of(ended.step(whole_of(ended.run.part or "")), host.blobs)


def _part_outcome(host: Host, ended: Snapshot) -> Outcome:
    """Return what a part's map or loop came to. A range of one never fails: its output says what has."""
    whole = ended.step(whole_of(ended.run.part or ""))
    if whole and whole.failure and not is_part(ended.run.part or ""):
        return Outcome(failure=whole.failure)
    return Outcome(output=values.store(_part_output(host, ended), host.blobs, ended.run.tenant))


def _outcome(host: Host, ended: Snapshot) -> Outcome:
    spent = sum((step.spent for step in ended.steps()), Amount()) - (ended.run.charged or Amount())
    if ended.head.ended != "completed":
        kind = "timeout" if ended.head.ended == "timed_out" else "permanent"
        failure = failure_named(kind, f"Run {ended.run.id} has {ended.head.ended}: {ended.head.reason or ''}")
        return Outcome(used=spent, failure=protocol.failure_of(failure))
    try:
        return replace(_result(host, ended), used=spent)
    except StepFailure as failure:  # what it has returned was not written by us
        return Outcome(used=spent, failure=protocol.failure_of(failure))


def _result(host: Host, ended: Snapshot) -> Outcome:
    if ended.run.part:
        return _part_outcome(host, ended)
    outputs = sinks(host, run_task(ended.run, ended.head.epoch), ended)
    output = {"run": ended.run.id, "status": ended.head.ended, "outputs": outputs}
    return Outcome(output=values.store(output, host.blobs, ended.run.tenant))


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a child ended, when (ms), and the active time (ms) that it left of its envelope.

    ``failed`` = the failure by which a part ends the map that it belongs to.
    """

    child: str
    outcome: Outcome
    active_left: int
    now: int
    failed: Failure | None = None


def decide_end(seen: Snapshot, path: str, end: ChildEnd) -> Change[Step | None]:
    """Close the parent's step and give back what the child did not use. None = the step waits for another child."""
    step, outcome, now = seen.step(path), end.outcome, end.now
    if step is None or step.child != end.child:
        return Change(None)
    if not living(step) or seen.head.ended:
        return Change(step)
    used = outcome.used or Amount()
    seq = seen.head.seq + 1  # also of one that has failed: what it did is undone in its place
    closed = protocol.finished(step, outcome, now, seq)
    closed = replace(closed, settled_seq=seq, hold=Amount(), spent=step.spent + used)
    whole = seen.step(range_of(path)[0]) if is_part(path) else None
    if whole and whole.failure and closed.failure:
        closed = replace(closed, status="cancelled", settled=True)  # it ended because the whole has failed
    note = closing(step, closed, used, now)
    others = (replace(whole, failure=end.failed),) if whole and end.failed and not whole.failure else ()
    return Change(closed, (rules.give_back(seen.head, step.hold, used, end.active_left), closed, *others), (note,))


def stop_child(host: Host, parent: Snapshot, step: Step, ending: Ending, reason: str, unwind_machine: str) -> bool:
    """Ask the child of a parent's step to end. Returns whether it has ended; it answers its parent then."""
    child = step.child or ""
    journal = Journal(host.store, host.clock, parent.run.tenant, child)
    try:
        request(host, journal, ending, reason, unwind_machine, late=lambda: is_late(host, parent, step))
    except Conflict:
        answer_parent(host, parent.run.tenant, child)
        return True
    return False


def patience(since: int, now: int, longest: float = LONGEST_CHILD_PAUSE) -> float:
    """Return the pause (ms) before looking at a child again: a quarter of the time for which its end is due.

    It may last for days; the history of the execution has an end.
    """
    return min(max(CHILD_PAUSE, (now - since) / 4), longest)


def is_late(host: Host, parent: Snapshot, step: Step) -> bool:
    """Tell whether a parent, or its step, has gone on since it was read: the step's child may go on with it.

    Asked after the child was read: a child's epoch begins in one transaction with its parent's step.
    """
    now = Journal(host.store, host.clock, parent.run.tenant, parent.run.id).read([step.sk])
    again = now.step(step.path)
    return now.head.epoch != parent.head.epoch or (again is not None and again.attempt != step.attempt)
