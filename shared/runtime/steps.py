"""One delivery of a step that calls a model or a tool: enter, open, call, close, settle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.errors import ApprovalMismatch, InvalidOutput, SignalboxError, StepFailure, TransientFailure, UnknownOutcome
from shared.redaction import redacted
from shared.runtime import protocol
from shared.runtime.calls import agent_call, check_time, llm_router_call, tool_call, turn_call, usage_of
from shared.runtime.conversation import with_turns
from shared.runtime.envelopes import find_more
from shared.runtime.host import plan_at
from shared.runtime.joins import READY, verdict
from shared.runtime.journal import Change, Note
from shared.runtime.memo import Memo
from shared.runtime.outputs import fits, route_in
from shared.runtime.probing import probe, probe_step
from shared.runtime.protocol import Done, Held, Opened, Outcome, Refused
from shared.runtime.scopes import COMPENSATE, FALLBACK, frame_keys, split_turn
from shared.runtime.settle import settle

if TYPE_CHECKING:
    from shared.ledger.records import Step
    from shared.manifest import StepPlan
    from shared.runtime.calls import Prepared
    from shared.runtime.host import Host, StepHost
    from shared.runtime.joins import Verdict
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.protocol import Ask, Opening
    from shared.runtime.task import Task

SUFFIX = {"run": "", "fallback": FALLBACK, "compensate": COMPENSATE}
"""What follows a step's path in that of the attempt, by operation."""
_KEYS: Memo[frozenset[str]] = Memo()
_CALLS = {"agent": agent_call, "turn": turn_call, "tool": tool_call, "router": llm_router_call}


class NotOpened(SignalboxError):
    """This delivery may not call: another process holds the step, or nothing opens any more. The cascade decides."""


def check_open(seen: Snapshot) -> None:
    """Refuse to begin anything while the run ends. Raises NotOpened; asked inside decisions, which may come late."""
    if seen.head.ended or seen.head.unwinding:
        raise NotOpened(f"The run is {seen.head.ended or seen.head.unwinding}: nothing begins any more.")


def run_step(host: StepHost, task: Task) -> dict[str, Any]:
    """Take the step of ``task`` as far as it goes, or ask what became of its call. Returns what control flow needs.

    Raises the attempt's StepFailure after it was recorded: the engine then asks the cascade.
    """
    if task.op == "probe":
        return probe_step(host, task)
    path = task.path + SUFFIX[task.op]
    plan = plan_at(host, task, path)
    journal = host.journal(task)
    seen = journal.read(_KEYS.of(plan, path, lambda: _keys(host, task, plan, path)))
    seen = with_turns(host.store, journal, plan, path, seen)
    known = seen.step(path)
    if known and known.status == "unknown" and plan.spec.get("reconcile"):
        known = _probed(host, task, plan, known, journal)
    step = known if known and known.settled else _attempt(host, task, plan, path, journal, seen)
    if task.op == "fallback":
        step = journal.read([f"STEP#{task.path}"]).step(task.path) or step
    settle(host, task, step)
    return result(step)


def _keys(host: Host, task: Task, plan: StepPlan, path: str) -> frozenset[str]:
    """Return the sort keys of what an attempt needs to know: also of what the step stands beside."""
    beside = {task.path, task.path.removesuffix(FALLBACK), path, split_turn(task.path)[0]}
    return host.keys(task, plan).union(f"STEP#{one}" for one in beside)


def result(step: Step) -> dict[str, Any]:
    """Return what control flow needs to know of a settled step."""
    return {"status": step.status, "route": step.route or ""}


def enter(host: StepHost, task: Task, plan: StepPlan, path: str, seen: Snapshot) -> Verdict:
    """Decide whether the step may run. A compensation or a fallback may: who started it has decided that."""
    if path != task.path:
        return READY
    found = verdict(plan, task.scope, seen, host.names(task, seen))
    if found.kind == "blocked":
        raise TransientFailure(f"Step {path} was started before {found.reason} had settled; it waits and tries again.")
    return found


def _attempt(host: StepHost, task: Task, plan: StepPlan, path: str, journal: Journal, seen: Snapshot) -> Step:
    try:
        entry = enter(host, task, plan, path, seen)
        _check_known(path, seen.step(path))
        if entry.kind == "skip":
            return skipped(host, plan, path, entry.reason, journal, seen)
        if plan.type == "transform":
            return _transformed(host, task, plan, path, journal, seen)
        prepared = _CALLS[plan.type](host, task, plan, path, seen)
        check_time(prepared.ask)
        if host.breakers:
            host.breakers.check(prepared.ask)
    except StepFailure as failure:
        record_failure(host, task, plan, path, failure)
        raise
    opening, seen = _open(host, prepared.ask, journal, seen)
    if isinstance(opening, Done):
        return opening.step
    if isinstance(opening, Opened):
        return _call(host, prepared, opening, journal, seen)
    raise _not_opened(path, opening)


def _check_known(path: str, step: Step | None) -> None:
    """Refuse a call that may have happened in an earlier epoch, and was given up there. Raises UnknownOutcome."""
    if step and step.given_up:
        raise UnknownOutcome(f"Whether the call of {path} happened was given up. Say what became of it.")


def _probed(host: StepHost, task: Task, plan: StepPlan, doubtful: Step, journal: Journal) -> Step:
    """Have the far side say what became of the step's call. Raises NotOpened unless that settles it."""
    step = probe(host, task, plan, doubtful, journal)
    if step is None or not step.settled:
        raise NotOpened(f"Step {doubtful.path}: {step.failure.message if step and step.failure else 'it is gone'}")
    return step


def _open(host: Host, ask: Ask, journal: Journal, seen: Snapshot) -> tuple[Opening, Snapshot]:
    """Open the attempt. Where the run is only audited, what does not fit is noted, and the attempt opens."""
    if ask.plan.slot and host.engine.slots and not ask.path.endswith(COMPENSATE):
        ask = replace(ask, slot=True)
    if seen.run.budget_mode != "audit":
        return _open_sharing(host, ask, journal, seen)
    opening, seen = _open_sharing(host, replace(ask, mode="try"), journal, seen)
    if isinstance(opening, Refused):
        return _open_sharing(host, replace(ask, mode="audit"), journal, seen)
    return opening, seen


def _open_sharing(host: Host, ask: Ask, journal: Journal, seen: Snapshot) -> tuple[Opening, Snapshot]:
    """Open the attempt. A run that is short shares with its parts, or with what it is a part of, while it can."""
    while True:
        opening, seen = journal.transact(seen, lambda again: protocol.open_attempt(ask, again))
        if not isinstance(opening, Refused) or not find_more(host, journal, seen, opening.refusal):
            return opening, seen
        # What is only tried writes nothing: it would be refused for ever by what had been read before.
        seen = journal.read({*seen.asked, *seen.records})


def _transformed(host: StepHost, task: Task, plan: StepPlan, path: str, journal: Journal, seen: Snapshot) -> Step:
    """Let a transform stand in: it makes no call and costs nothing."""
    output = host.names(task, seen, plan).render(dict(plan.spec["set"]))
    wrong = fits(output, plan.output)
    if wrong:
        raise InvalidOutput(f"The value of {path} does not fit its output schema at {wrong}")
    stored = values.store(redacted(output, plan.output), host.blobs, task.tenant)
    outcome, now = Outcome(output=stored, route=route_in(plan, output)), host.clock.now()
    fresh = protocol.new_step(plan, path, task.epoch)
    step, _ = journal.transact(seen, lambda again: protocol.settle_free(task, fresh, outcome, now, again))
    if step is None:
        raise NotOpened(f"Step {path} does not stand in any more: the run or the item has ended meanwhile.")
    return step


def skipped(host: Host, plan: StepPlan, path: str, reason: str, journal: Journal, seen: Snapshot) -> Step:
    """Record the skip of the step at hand. Raises NotOpened when the run is ending."""
    now = host.clock.now()
    step, _ = journal.transact(seen, lambda again: protocol.skip(plan, path, reason, now, again))
    if step is None:
        raise NotOpened(f"Step {path} is not skipped any more: the run is ending.")
    return step


def _not_opened(path: str, opening: Opening) -> SignalboxError:
    if isinstance(opening, Refused):
        return protocol.exceeded(opening.refusal)
    if isinstance(opening, Held):
        return NotOpened(f"Step {path} is held by another process until {opening.until} ms.")
    return NotOpened(f"Step {path} opens nothing: {getattr(opening, 'why', '')}.")


def _call(host: StepHost, prepared: Prepared, opened: Opened, journal: Journal, seen: Snapshot) -> Step:
    failed: StepFailure | None = None
    try:
        outcome = prepared.perform(opened)
    except StepFailure as failure:
        failed = failure
        outcome = Outcome(used=usage_of(failure), failure=protocol.failure_of(failure))
    now = host.clock.now()
    closed, _ = journal.transact(seen, lambda again: protocol.close_attempt(opened.step, outcome, now, again))
    if host.breakers:
        host.breakers.note(prepared.ask, failed)
    if closed is None:
        raise NotOpened(f"The result of {opened.step.path} came after its attempt was given up; nothing changed.")
    if failed:
        raise failed
    return closed


def record_failure(host: Host, task: Task, plan: StepPlan, path: str, failure: StepFailure) -> None:
    """Record a failure that came before anything was opened, so that the cascade can decide from the record."""

    def decide(seen: Snapshot) -> Change[None]:
        step = seen.step(path) or protocol.new_step(plan, path, task.epoch)
        over = step.settled or step.open or step.closed_by == task.attempt
        if over or protocol.stopped(seen, step, task):
            return Change(None)
        outcome = Outcome(failure=protocol.unopened(step, protocol.failure_of(failure)))
        held = (step.held or host.clock.now()) if failure.held else None
        failed = replace(protocol.finished(step, outcome, host.clock.now(), 0), closed_by=task.attempt, held=held)
        failed = replace(failed, proposed=failure.proposed if isinstance(failure, ApprovalMismatch) else None)
        error = {"class": failure.error_class, "message": str(failure)[:500]}
        return Change(None, (failed,), (Note("step_failed", path, None, {"error": error}),))

    journal = host.journal(task)
    journal.transact(journal.read([f"STEP#{path}", f"STEP#{task.path}", *frame_keys(task.scope)]), decide)
