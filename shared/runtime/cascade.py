"""The cascade: one decision after an attempt failed, from the step's record and never from a message's text.

(1) retry what may be retried while retries remain; (2) the fallback step; (3) ``on_error``: continue, pause or fail.
Where the handler could not write its error class (it was killed, or ran out of time), the engine's error name tells
time-out from crash. The cascade first raises the fence, so a zombie's late result changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.ledger.records import Failure, Gate, Head, Step
from shared.runtime import protocol
from shared.runtime.host import FALLBACK, plan_of
from shared.runtime.journal import Change, Note, Snapshot
from shared.runtime.settle import keys_for, settle
from shared.runtime.unwinding import begin, start_unwinding

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.manifest import Retry, StepPlan
    from shared.runtime.host import Host
    from shared.runtime.task import Task

TIMEOUTS = frozenset({"States.Timeout", "States.HeartbeatTimeout", "Sandbox.Timedout"})
"""Error names by which the engine says that time ran out."""

Action = dict[str, Any]


def act(kind: str, milliseconds: float = 0) -> Action:
    """Return what the state machine is told: the action, and whole seconds to wait before it (rounded up)."""
    return {"action": kind, "seconds": -(-int(milliseconds) // 1000)}


def cascade(host: Host, task: Task, unwind_machine: str) -> Action:
    """Decide what follows the failure of the task's step and do what must precede it. Returns the action."""
    manifest, journal = host.manifest(task), host.journal(task)
    path = task.path
    plan = plan_of(manifest, path)
    stand_in = manifest.steps[plan.fallback] if plan.fallback else None
    visit = Visit(task, plan, host.clock.now(), host.clock.jitter, stand_in)
    seen = journal.read({*keys_for(plan, task.scope), f"STEP#{path}{FALLBACK}", f"GATE#{path}"})
    action, after = journal.transact(seen, lambda again: decide(again, visit))
    step = after.step(path)
    if step and step.settled:
        settle(host, task, step)
    if after.head.unwinding:
        start_unwinding(host, after, unwind_machine)
    return action


GATE_PAUSE, LONGEST_GATE_PAUSE = 5_000, 900_000
"""First and longest pause (ms) before a gate whose handler failed is announced again; it can be decided meanwhile."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit of the cascade: whose failure, by which plan, when (ms), and where randomness comes from."""

    task: Task
    plan: StepPlan
    now: int
    jitter: Callable[[float], float]
    stand_in: StepPlan | None = None

    @property
    def id(self) -> str:
        """Engine retries of the same state entry are the same visit."""
        return self.task.entry.rsplit("|", 1)[0]

    @property
    def engine_failure(self) -> Failure:
        """What the engine's error name tells when the handler could not write a class."""
        if self.task.error in TIMEOUTS:
            return Failure("timeout", "The attempt's time was over.", uncertain=True)
        message = f"The process ended without an answer ({self.task.error or 'no error name'})."
        return Failure("transient", message, uncertain=True)


@dataclass(frozen=True, slots=True)
class Case:
    """The records at hand and the events gathered so far; ``beside`` is a fallback that was given up."""

    head: Head
    step: Step
    notes: tuple[Note, ...] = ()
    beside: tuple[Step, ...] = ()

    def noted(self, note: Note) -> Case:
        """Return the case with one more event."""
        return replace(self, notes=(*self.notes, note))


def decide(seen: Snapshot, visit: Visit) -> Change[Action]:
    """Decide from the records of the step; a repeated visit repeats its answer."""
    path = visit.task.path
    step = seen.step(path) or protocol.new_step(visit.plan, path, visit.task.epoch)
    case, gate = Case(seen.head, step), seen.gate(path)
    standing = _standing(seen.head, step, visit)
    if standing is None and gate and gate.status == "open":
        return _open_gate(case, gate, visit)
    beside = seen.step(f"{path}{FALLBACK}")
    if standing is None and beside and beside.open:
        return _fallback_died(seen, case, beside, visit)
    return standing or _after_failure(seen, case, visit)


def _fallback_died(seen: Snapshot, case: Case, beside: Step, visit: Visit) -> Change[Action]:
    """Give up a fallback whose process is dead or out of time; then it has failed like any other."""
    if visit.stand_in and visit.stand_in.risk != "read" and visit.now < beside.lease:
        return Change(act("recheck", beside.lease - visit.now))
    head, freed, lost = protocol.abandon(case.head, beside, visit.now, visit.task.error)
    failed = replace(freed, status="failed", failure=visit.engine_failure, ended=visit.now)
    return _after_failure(seen, replace(case, head=head, beside=(failed,)).noted(lost), visit)


def _standing(head: Head, step: Step, visit: Visit) -> Change[Action] | None:
    """Return the answer that stands already: given before, or the run is over, the step settled, parked or held."""
    if step.cascade == visit.id and step.action:
        return Change(step.action)
    if head.epoch != visit.task.epoch or head.ended or head.unwinding:
        return Change(act("fail"))
    if step.settled:
        return Change(_go_on(step, visit.plan))
    if step.status in protocol.PARKED and step.action == act("park"):
        return Change(act("park"))
    if step.open and visit.plan.risk != "read" and visit.now < step.lease:
        return Change(act("recheck", step.lease - visit.now))
    return None


def _go_on(step: Step, plan: StepPlan) -> Action:
    """Return how a settled step goes on: by entering it again, which repeats its outcome and route.

    A step that failed under ``continue`` has none to repeat.
    """
    failed = step.status in {"failed", "timed_out"} and plan.type != "router"
    return act("continue" if failed else "retry")


def _after_failure(seen: Snapshot, case: Case, visit: Visit) -> Change[Action]:
    case = _given_up(case, visit) if case.step.open else case
    failure = case.step.failure or visit.engine_failure
    case = replace(case, step=replace(case.step, failure=failure))
    if case.step.status == "unknown" or failure.error_class == "unknown_outcome" or _in_doubt(case.step, visit.plan):
        return _pause(case, visit, "unknown_outcome")
    if failure.error_class == "budget":
        return _pause(case, visit, "budget_exceeded")
    if _may_retry(visit.plan, case.step, failure):
        return _retry(case, visit, failure)
    if visit.plan.fallback and seen.step(f"{case.step.path}{FALLBACK}") is None:
        return _remember(case.noted(Note("step_fallback", case.step.path)), visit, act("fallback"))
    return _on_error(case, visit, failure)


def _in_doubt(step: Step, plan: StepPlan) -> bool:
    """Tell whether only a person can say what became of the call: it may have happened, and nothing undoes it."""
    return plan.risk == "irreversible" and protocol.uncertain(step)


def _given_up(case: Case, visit: Visit) -> Case:
    """Take the step from a process that is dead or out of time: charge its hold, raise the fence."""
    head, step, lost = protocol.abandon(case.head, case.step, visit.now, visit.task.error)
    return Case(head, replace(step, failure=visit.engine_failure)).noted(lost)


def _open_gate(case: Case, gate: Gate, visit: Visit) -> Change[Action]:
    """Decide for a gate that nobody has decided: expired, or its handler died before the mail was out."""
    # The token's own time-out is the expiry, however late its handler had started.
    if visit.now < gate.expires and visit.task.error != "States.Timeout":
        wait = min(GATE_PAUSE * 2.0**case.step.retries, LONGEST_GATE_PAUSE)
        again = replace(case.step, retries=case.step.retries + 1)
        return _remember(replace(case, step=again), visit, act("retry", min(wait, gate.expires - visit.now)))
    rule = visit.plan.spec["on_expiry"]
    status = "approved" if rule == "approve" else "expired"
    closed = replace(gate, status=status, decided=visit.now, by="expiry", tenant_pending=None)
    case = replace(case, head=replace(case.head, waiting=case.head.waiting - 1))
    case = case.noted(Note("gate_decided", gate.path, None, {"decision": status, "by": "expiry"}))
    change = _after_expiry(case, visit, rule, closed)
    return replace(change, records=(*change.records, closed))


def _after_expiry(case: Case, visit: Visit, rule: str, gate: Gate) -> Change[Action]:
    if rule == "approve":
        outcome = protocol.Outcome(output=protocol.decision_value(gate), by="expiry")
        seq = case.head.seq + len(case.notes) + 1
        step = protocol.finished(case.step, outcome, visit.now, seq)
        return _remember(replace(case, step=step).noted(Note("step_completed", step.path)), visit, act("retry"))
    failure = Failure("rejected", f"Nobody decided within {visit.plan.timeout:g} s.")
    case = replace(case, step=replace(case.step, status="failed", failure=failure, ended=visit.now))
    if rule == "pause":
        return _pause(case, visit, "step_error")
    return _fail_run(case, visit, failure) if rule == "fail" else _on_error(case, visit, failure)


def _may_retry(plan: StepPlan, step: Step, failure: Failure) -> bool:
    if plan.risk == "irreversible" and step.call is not None:
        return False
    return failure.error_class in plan.retry.on and step.retries < plan.retry.max_retries


def delay(policy: Retry, retries: int, failure: Failure, jitter: Callable[[float], float]) -> float:
    """Return the milliseconds before retry number ``retries`` (from 0), never less than the far side asked for."""
    growth = 2.0**retries if policy.backoff == "exponential" else retries + 1.0
    seconds = min(policy.base_delay * growth, policy.max_delay) + (jitter(policy.base_delay) if policy.jitter else 0.0)
    return max(seconds * 1000, float(failure.retry_after or 0))


def _retry(case: Case, visit: Visit, failure: Failure) -> Change[Action]:
    wait = delay(visit.plan.retry, case.step.retries, failure, visit.jitter)
    step = replace(case.step, status="retrying", retries=case.step.retries + 1)
    data = {"class": failure.error_class, "delay_ms": int(wait), "retry": step.retries}
    case = replace(case, step=step).noted(Note("step_retrying", step.path, step.attempt, data))
    return _remember(case, visit, act("retry", wait))


def _on_error(case: Case, visit: Visit, failure: Failure) -> Change[Action]:
    rule = visit.plan.on_error
    if rule == "pause":
        return _pause(case, visit, "step_error")
    data = {"class": failure.error_class, "message": failure.message[:500], "on_error": rule}
    status = "timed_out" if failure.error_class == "timeout" else "failed"
    step = replace(case.step, status=status, ended=visit.now)
    case = replace(case, step=step).noted(Note("step_gave_up", step.path, step.attempt, data))
    return _settle_failed(case, visit) if rule == "continue" else _fail_run(case, visit, failure)


def _settle_failed(case: Case, visit: Visit) -> Change[Action]:
    step = replace(case.step, settled=True, settled_seq=case.head.seq + 1)
    return _remember(replace(case, step=step), visit, _go_on(step, visit.plan))


def _fail_run(case: Case, visit: Visit, failure: Failure) -> Change[Action]:
    reason = f"step {case.step.path}: {failure.error_class}: {failure.message}"
    head, note = begin(case.head, "failed", reason)
    return _remember(replace(case, head=head).noted(note), visit, act("fail"))


def _pause(case: Case, visit: Visit, reason: str) -> Change[Action]:
    head, step = protocol.park(case.head, case.step, reason)
    case = replace(case, head=head, step=step).noted(Note("step_paused", step.path, step.attempt, {"reason": reason}))
    return _remember(case, visit, act("park"))


def _remember(case: Case, visit: Visit, action: Action) -> Change[Action]:
    step = replace(case.step, cascade=visit.id, action=action)
    return Change(action, (case.head, step, *case.beside), case.notes)
