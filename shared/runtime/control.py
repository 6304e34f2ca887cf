"""Steps that make no call: transform, routers by rule or score; and the run's last state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.budget.tenant import give_back
from shared.errors import InvalidOutput, StepFailure, TransientFailure
from shared.redaction import redacted
from shared.runtime import protocol
from shared.runtime.children import answer_parent
from shared.runtime.host import plan_of
from shared.runtime.joins import verdict
from shared.runtime.journal import Change, Note
from shared.runtime.outputs import check_attested, fits
from shared.runtime.protocol import Outcome
from shared.runtime.scopes import whole_of
from shared.runtime.settle import settle, skip_unreached, unsettled
from shared.runtime.steps import NotOpened, record_failure, result, skipped

if TYPE_CHECKING:
    from shared.ledger.records import Step
    from shared.manifest import Manifest, StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.scope import Scope
    from shared.runtime.task import Task


def run_free(host: Host, task: Task) -> dict[str, Any]:
    """Take a step without call or cost through: enter, evaluate, close, settle. Returns what control flow needs."""
    plan = plan_of(host.manifest(task), task.path)
    journal = host.journal(task)
    seen = journal.read(host.keys(task, plan))
    known = seen.step(task.path)
    step = known if known and known.settled else _evaluate(host, task, plan, journal, seen)
    settle(host, task, step)
    return result(step)


def _evaluate(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot) -> Step:
    now, path = host.clock.now(), task.path
    fresh = protocol.new_step(plan, path, task.epoch)
    stop = protocol.stopped(seen, seen.step(path) or fresh, task)
    if stop:
        raise NotOpened(f"Step {path} opens nothing: {stop.why}.")
    try:
        outcome = _outcome(host, task, plan, seen)
    except StepFailure as failure:
        record_failure(host, task, plan, path, failure)
        raise
    if isinstance(outcome, str):
        return skipped(host, plan, path, outcome, journal, seen)
    step, _ = journal.transact(seen, lambda again: protocol.settle_free(task, fresh, outcome, now, again))
    if step is None:
        raise NotOpened(f"Step {path} does not settle any more: the run or the step has been stopped meanwhile.")
    return step


def _outcome(host: Host, task: Task, plan: StepPlan, seen: Snapshot) -> Outcome | str:
    """Return the step's outcome, or the reason for which it is skipped."""
    scope = host.names(task, seen, plan)
    entry = verdict(plan, task.scope, seen, scope)
    if entry.kind == "blocked":
        raise TransientFailure(f"Step {task.path} was started before {entry.reason} had settled.")
    if entry.kind == "skip":
        return entry.reason
    output, route = _decided(plan, scope)
    wrong = fits(output, plan.output)
    if wrong:
        raise InvalidOutput(f"The value of {task.path} does not fit its output schema at {wrong}")
    return Outcome(output=values.store(redacted(output, plan.output), host.blobs, task.tenant), route=route)


def _decided(plan: StepPlan, scope: Scope) -> tuple[dict[str, Any], str | None]:
    if plan.type == "transform":
        return scope.render(dict(plan.spec["set"])), None
    route = choose(plan, scope)
    return {"route": route, "strategy": plan.spec["strategy"]}, route


def choose(plan: StepPlan, scope: Scope) -> str:
    """Return the target of the first rule that holds, or of the highest threshold reached; else the default."""
    if plan.spec["strategy"] == "score":
        score = float(scope.evaluate(plan.spec["value"]))
        reached = [route for route in plan.spec["routes"] if score >= float(route["above"])]
        return max(reached, key=lambda route: float(route["above"]))["to"] if reached else plan.spec["default"]
    chosen = next((route["to"] for route in plan.spec["routes"] if scope.holds(route["when"])), None)
    return chosen or plan.spec["default"]


def finish(host: Host, task: Task) -> dict[str, Any]:
    """Write the run's end after its last state: record what was never reached, then the one terminal event.

    Raises NotOpened when the run is unwinding, TransientFailure when something has not settled, AttestationMismatch
    when a result was not written by us: the run then ends as stopped.
    """
    manifest, journal = host.manifest(task), host.journal(task)
    seen = journal.read_all()
    for step in seen.steps():
        check_attested(step)
    seen = seen if seen.run.part else skip_unreached(host, task, seen)
    ended, _ = journal.transact(seen, lambda again: _completed(host, task, manifest, again))
    if seen.run.parent:
        answer_parent(host, task.tenant, task.run)
    return {"status": ended}


def _completed(host: Host, task: Task, manifest: Manifest, seen: Snapshot) -> Change[str]:
    head = seen.head
    if head.ended:
        return Change(head.ended)
    if head.unwinding or head.epoch != task.epoch:
        raise NotOpened(f"The run is {head.unwinding or 'in a later epoch'}; it does not complete.")
    missing = _unsettled(manifest, seen)
    if missing or head.open or head.paused or head.waiting:
        raise TransientFailure(f"The run cannot complete: {', '.join(missing) or 'a step'} has not settled.")
    ended = replace(head, ended="completed", ended_at=host.clock.now())
    run, back = give_back(host.store, seen.run, ended)
    return Change("completed", (ended, *run), (Note("run_completed"),), back)


def _unsettled(manifest: Manifest, seen: Snapshot) -> list[str]:
    """Return the steps of the run's own graph that have not settled: of a part, the map or loop that it stands for."""
    if seen.run.part is None:
        return unsettled(manifest, "", seen)
    whole = seen.step(whole_of(seen.run.part))
    return [] if whole and whole.settled else [seen.run.part]
