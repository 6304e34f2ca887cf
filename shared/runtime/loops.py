"""Loops: the body again and again until a condition holds, at most so many times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.errors import PermanentFailure, StepFailure, failure_named
from shared.runtime import protocol
from shared.runtime.host import plan_of
from shared.runtime.joins import verdict
from shared.runtime.journal import Change, Note, Snapshot
from shared.runtime.maps import body_output
from shared.runtime.outputs import output_of
from shared.runtime.protocol import Outcome
from shared.runtime.scopes import is_own, is_part_of, range_of, stands_for
from shared.runtime.settle import settle, skip_unreached, unsettled
from shared.runtime.steps import NotOpened, check_open, record_failure, skipped

if TYPE_CHECKING:
    from shared.ledger.records import Step
    from shared.manifest import StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal
    from shared.runtime.task import Task


Next = Callable[["Host", "Task", "StepPlan", "Journal", "Snapshot"], "Step"]
"""Decides what a loop does next, from all records of the run."""


def turn_loop(host: Host, task: Task) -> dict[str, Any]:
    """Say whether the body runs (again), and in which scope. Called before the first iteration and after each.

    Which iteration is due follows from the records alone, so a redelivery gives the same answer. Raises StepFailure
    after recording it: an iteration failed, or ``until`` did not hold after the last one.
    """
    step = turn(host, task, _next)
    if step.settled:
        return {"again": "no", "scope": "", "status": step.status, "route": ""}
    return {"again": "yes", "scope": _scope(step), "status": step.status, "route": ""}


def _scope(step: Step) -> str:
    return f"{step.path}[{step.iteration}]/"


def turn(host: Host, task: Task, decide: Next) -> Step:
    """Take the loop to its next iteration or its end, as ``decide`` says. Raises StepFailure after recording it."""
    plan, journal = plan_of(host.manifest(task), task.path), host.journal(task)
    seen = journal.read_all()
    step = _turn(host, task, plan, journal, seen, decide)
    if step.settled and not stands_for(seen.run, task.path):
        settle(host, task, step)
    return step


def _turn(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot, decide: Next) -> Step:
    known = seen.step(task.path)
    if known and known.settled:
        return known
    stop = protocol.stopped(seen, known or protocol.new_step(plan, task.path, task.epoch), task)
    if stop:
        raise NotOpened(f"Loop {task.path} opens nothing: {stop.why}.")
    try:
        return decide(host, task, plan, journal, seen)
    except StepFailure as failure:
        if known and is_part_of(seen.run, task.path):
            return _end_part(host, task, known, seen, error=asdict(protocol.failure_of(failure)))
        record_failure(host, task, plan, task.path, failure)
        raise


def _next(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot) -> Step:
    known = seen.step(task.path)
    if known is None or known.iteration == 0:
        return begin_loop(host, task, plan, journal, seen, 1)
    body = replace(task, scope=_scope(known))
    item = seen.step(body.scope.removesuffix("/"))
    failure = known.failure or (item.failure if item else None)
    if failure:
        raise failure_named(failure.error_class, f"Iteration {known.iteration} failed: {failure.message}")
    seen = skip_unreached(host, body, seen)
    if unsettled(host.manifest(task), body.scope, seen):
        return known
    if host.names(body, seen).holds(plan.spec["until"]):
        return _finish(host, body, plan, known, seen)
    if is_part_of(seen.run, task.path) and known.iteration >= range_of(seen.run.part or "")[2]:
        return _end_part(host, task, known, seen, previous=_outputs(host, body, seen))
    if known.iteration >= plan.spec["max_iterations"]:
        raise PermanentFailure(f"`until` did not hold after {known.iteration} iterations: {plan.spec['until']}")
    return advance(journal, seen, replace(known, iteration=known.iteration + 1))


def begin_loop(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot, iteration: int) -> Step:
    """Enter the loop with its first iteration, or with its first part, which ends with ``iteration``."""
    entry = verdict(plan, task.scope, seen, host.names(task, seen))
    if entry.kind == "skip":
        return skipped(host, plan, task.path, entry.reason, journal, seen)
    fresh = protocol.new_step(plan, task.path, task.epoch)
    return advance(journal, seen, replace(fresh, attempt=1, iteration=iteration, started=host.clock.now()))


def advance(journal: Journal, seen: Snapshot, step: Step) -> Step:
    """Record that the loop has come to the iteration on ``step``, unless it is further or over."""

    def decide(again: Snapshot) -> Change[Step]:
        known = again.step(step.path)
        if known and (known.settled or known.failure or known.iteration >= step.iteration):
            return Change(known)
        check_open(again)
        note = Note("loop_iteration", step.path, None, {"iteration": step.iteration})
        return Change(step, (step,), (note,))

    return journal.transact(seen, decide)[0]


def _finish(host: Host, body: Task, plan: StepPlan, known: Step, seen: Snapshot) -> Step:
    output = {"iterations": known.iteration, "output": body_output(host, body, plan, seen)}
    if is_part_of(seen.run, known.path):
        return _end_part(host, body, known, seen, result=output)
    return settle_loop(host, body, known, output, seen)


def settle_loop(host: Host, task: Task, known: Step, output: Any, seen: Snapshot) -> Step:
    """Complete the loop with its output."""
    outcome, now = Outcome(output=values.store(output, host.blobs, task.tenant)), host.clock.now()
    journal = host.journal(task)
    return journal.transact(seen, lambda again: protocol.settle_entered(known, outcome, now, again))[0]


def _end_part(host: Host, task: Task, known: Step, seen: Snapshot, **told: Any) -> Step:
    """Complete a part of a loop: with the loop's ``result``, an ``error``, or what the next iteration sees."""
    return settle_loop(host, task, known, {"result": None, "error": None, "previous": None, **told}, seen)


def _outputs(host: Host, body: Task, seen: Snapshot) -> dict[str, Any]:
    """Return the outputs of all steps of an iteration, as ``loop.previous`` shows them."""
    steps = [step for step in seen.steps() if is_own(step.path, body.scope)]
    return {step.path.removeprefix(body.scope): output_of(step, host.blobs) for step in steps}
