"""The cascade: one decision after an attempt failed, from the step's record and never from a message's text.

(1) retry what may be retried while retries remain; (2) the fallback step; (3) ``on_error``: continue, pause or fail.
Where the handler could not write its error class (it was killed, or ran out of time), the engine's error name tells
time-out from crash. The cascade first raises the fence, so a zombie's late result changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.ledger.records import Failure, Gate, Step
from shared.runtime import probing, protocol
from shared.runtime.answers import (
    ENTRY_RETRIES,
    before_next,
    fits_by_now,
    held_for,
    may_retry,
    paused,
    remember,
    retrying,
)
from shared.runtime.children import living, patience, stop_child
from shared.runtime.deadletters import letters
from shared.runtime.ending import begin, start_unwinding
from shared.runtime.host import plan_at, plan_of
from shared.runtime.journal import Change, Note, Snapshot
from shared.runtime.notes import completed
from shared.runtime.scopes import (
    FALLBACK,
    closed,
    container_of,
    fail_item,
    graph_at,
    is_part_of,
    range_of,
    root_scope,
    stands_for,
)
from shared.runtime.settle import settle
from shared.runtime.slots import give_slots
from shared.runtime.standing_in import after_stand_in
from shared.runtime.unwinding import close_scope, stop_parts
from shared.runtime.visits import STANDS_IN, TIMEOUTS, Action, Case, Visit, act
from shared.runtime.votes import EXPIRY

if TYPE_CHECKING:
    from shared.ledger.records import Run
    from shared.manifest import Manifest, StepPlan
    from shared.runtime.host import Host
    from shared.runtime.task import Task

CONTAINERS = frozenset({"map", "loop", "turns"})
"""What holds other steps and calls nothing itself."""


def cascade(host: Host, task: Task, unwind_machine: str) -> Action:
    """Decide what follows the failure of the task's step and do what must precede it. Returns the action."""
    manifest, journal = host.manifest(task), host.journal(task)
    path = task.path
    plan = plan_at(host, task, path)
    seen = journal.read({*host.keys(task, plan), f"STEP#{path}{FALLBACK}", f"GATE#{path}"})
    if seen.head.epoch != task.epoch:
        return act("fail")  # what follows there is for the later execution to see to
    whole, plan = _fails_whole(manifest, task.scope), _plan_in(seen.run, plan, path)
    stand_in = graph_at(manifest, task.scope)[plan.fallback] if plan.fallback else None
    visit = Visit(task, plan, host.clock.now(), host.clock.jitter, stand_in, whole)
    if _child_goes_on(host, visit, seen, unwind_machine):
        return act("recheck", patience(_due(seen.step(path), plan, host.clock.now()), host.clock.now()))
    action, after = journal.transact(seen, lambda again: decide(again, visit))
    step = after.step(path)
    if step and step.settled and not stands_for(after.run, path):
        settle(host, task, step)
    elif manifest.slots:
        give_slots(host, task)
    if after.head.unwinding:
        start_unwinding(host, after, unwind_machine)
    elif plan.type == "part" and step and step.settled:
        stop_parts(host, journal, range_of(path)[0], unwind_machine)
    elif action["action"] == "fail" and task.scope:
        close_scope(host, journal, f"{container_of(task.scope)}[" if visit.whole else task.scope, unwind_machine)
    return action


def _plan_in(run: Run, plan: StepPlan, path: str) -> StepPlan:
    """Return a step's plan as it is in force in the run: what a map or loop fails of there is for its parent to judge.

    A range of one fails with its run. All of one settles as failed, and its parent's step then fails of the same.
    """
    if not stands_for(run, path):
        return plan
    return replace(plan, on_error="fail" if is_part_of(run, path) else "continue", fallback=None, apart=False)


def _child_goes_on(host: Host, visit: Visit, seen: Snapshot, unwind_machine: str) -> bool:
    """Tell whether a sub-workflow that is given up still has to end; its end then decides the step.

    A visit that comes again after it has decided leaves the child alone, which goes on with the retry by then.
    """
    task, step = visit.task, seen.step(visit.task.path)
    if step is None or not living(step) or visit.is_over(step):
        return False
    if task.error not in TIMEOUTS and step.retries < ENTRY_RETRIES and not closed(seen, task.scope):
        return False
    stop_child(host, seen, step, "timed_out", "its parent's step timed out", unwind_machine)
    return True


def _due(step: Step | None, plan: StepPlan, now: int) -> int:
    """Return when (ms) the time of a step that waits for its child is over."""
    return (step.opened or now if step else now) + int(plan.timeout * 1000)


def _fails_whole(manifest: Manifest, scope: str) -> bool:
    if not scope:
        return False
    container = plan_of(manifest, container_of(scope))
    return container.type == "loop" or container.spec["on_failure"] == "fail_fast"


LONGEST_DOUBT = 900_000
"""Longest pause (ms) for which a probe's proof is waited for before a person is asked."""
GATE_PAUSE, LONGEST_GATE_PAUSE = 5_000, 900_000
"""First and longest pause (ms) before a gate whose handler failed is announced again; it can be decided meanwhile."""


def decide(seen: Snapshot, visit: Visit) -> Change[Action]:
    """Decide from the records of the step; a repeated visit repeats its answer."""
    path = visit.task.path
    step = seen.step(path) or protocol.new_step(visit.plan, path, visit.task.epoch)
    case, gate = Case(seen, seen.head, step), seen.gate(path)
    standing = _standing(case, visit)
    if standing:
        return standing
    if gate and gate.status == "open" and not closed(seen, visit.task.scope):
        return _open_gate(case, gate, visit)
    case = _given_up(case, visit)
    if case.step.failure and case.step.failure.final:
        return _fail(case, visit, case.step.failure)
    if closed(seen, visit.task.scope):
        return _in_failed_item(case, visit)
    return after_stand_in(case, visit) or _after_failure(case, visit)


def _in_failed_item(case: Case, visit: Visit) -> Change[Action]:
    """End a step whose item has failed around it; only what became of its call is still for a person to say."""
    if protocol.in_doubt(case.step) or protocol.in_doubt(case.beside):
        return _doubt(case, visit)
    return remember(case, visit, act("fail")) if case.notes or case.step.slot else Change(act("fail"))


def _standing(case: Case, visit: Visit) -> Change[Action] | None:
    """Return the answer that stands already: given before, or the run is over, the step settled, parked or held."""
    head, step, over = case.head, case.step, closed(case.seen, visit.task.scope)
    if visit.is_over(step) and step.action:
        return Change(step.action)
    if head.epoch != visit.task.epoch or head.ended or head.unwinding or (over and step.settled):
        return Change(act("fail"), (step,) if step.slot else ())  # a slot that was given is free by that
    if step.settled:
        return Change(_go_on(step, visit.plan))
    if step.status in protocol.PARKED and step.action == act("park") and (not over or protocol.in_doubt(step)):
        return Change(act("park"))
    held = max(_held(step, visit.plan), _held(case.beside, visit.stand_in))
    return Change(act("recheck", held - visit.now)) if visit.now < held else None


def _held(step: Step | None, plan: StepPlan | None) -> int:
    """Return until when (ms) an attempt that may change something is not given up: its process may be alive."""
    return step.lease if step and step.open and plan and plan.risk != "read" else 0


def _go_on(step: Step, plan: StepPlan) -> Action:
    """Return how a settled step goes on: by entering it again, which repeats its outcome and route.

    A step that failed under ``continue`` has none to repeat.
    """
    failed = step.status in {"failed", "timed_out"} and plan.type != "router"
    return act("continue" if failed else "retry")


def _after_failure(case: Case, visit: Visit) -> Change[Action]:
    failure = case.step.failure or visit.engine_failure
    case = replace(case, step=replace(case.step, failure=failure))
    if case.step.status == "unknown" or failure.error_class == "unknown_outcome" or _in_doubt(case.step, visit.plan):
        return _doubt(case, visit)
    if failure.pause or failure.error_class == "budget":
        return _enter_again(case, visit) or paused(case, visit, failure.pause or "budget_exceeded")
    if failure.held or may_retry(visit.plan, case.step, failure) or _unrecorded(case, visit):
        return _retry(case, visit, failure)
    if _leaves_doubt(case, visit) or (protocol.in_doubt(case.step) and _until_probe(case, visit) is not None):
        return _doubt(case, visit)
    if _may_stand_in(case, visit.plan):
        # One that was chosen before and left nothing was interrupted: it is begun again a few times.
        again = replace(case.step, retries=case.step.retries + (case.step.action == STANDS_IN))
        return remember(
            replace(case, step=again).noted(Note("step_fallback", again.path, None, {"retry": again.retries})),
            visit,
            STANDS_IN,
        )
    return _on_error(case, visit, failure)


def _in_doubt(step: Step, plan: StepPlan) -> bool:
    """Tell whether only a person can say what became of the call: it may have happened, and nothing undoes it."""
    return plan.risk == "irreversible" and step.uncertain


def _leaves_doubt(case: Case, visit: Visit) -> bool:
    """Tell whether going on by policy would leave open whether a call that changes something has happened.

    A run that fails asks for it while it unwinds, and a step that pauses because of its own call asks anyway.
    """
    if protocol.in_doubt(case.beside):
        return True
    policy, last = visit.plan.on_error, visit.plan.fallback is None or case.beside is not None
    asks = last and (policy == "pause" or (policy == "fail" and not visit.task.scope))
    return protocol.in_doubt(case.step) and not asks


def _doubt(case: Case, visit: Visit) -> Change[Action]:
    """Have the far side asked what became of the call, where the definition says how; else, or in vain, a person."""
    pause = _until_probe(case, visit)
    if pause is None:
        return paused(case, visit, "unknown_outcome")
    if case.step.status != "unknown":
        case = case.noted(Note("step_unknown", case.step.path, case.step.attempt))
    head, step = protocol.park(case.head, case.step, "unknown_outcome")
    return remember(replace(case, head=head, step=step), visit, act("retry", pause))


def _until_probe(case: Case, visit: Visit) -> int | None:
    """Return the milliseconds until the far side is asked about the step's call; None = it is not, or much later."""
    if protocol.in_doubt(case.beside):
        return None
    pause = probing.patient_pause(visit.plan, case.step, visit.now)
    return pause if pause is None or pause <= LONGEST_DOUBT else None


def _given_up(case: Case, visit: Visit) -> Case:
    """Take step and fallback from a process that is dead or out of time: charge the hold, raise the fence."""
    for step in (case.step, case.beside):
        if step and step.open:
            head, freed, lost = protocol.abandon(case.head, step, visit.now, visit.task.error)
            freed = replace(freed, failure=visit.engine_failure)
            case = replace(case, head=head).noted(lost)
            if step is case.step:
                case = replace(case, step=freed)
            else:
                case = replace(case, others=(replace(freed, status="failed", ended=visit.now),))
    return case


def _open_gate(case: Case, gate: Gate, visit: Visit) -> Change[Action]:
    """Decide for a gate that nobody has decided: expired, or its handler died before the mail was out."""
    # The token's own time-out is the expiry, however late its handler had started.
    if visit.now < gate.expires and visit.task.error != "States.Timeout":
        wait = min(GATE_PAUSE * 2.0 ** min(case.step.retries, 10), LONGEST_GATE_PAUSE)
        again = replace(case.step, retries=case.step.retries + 1)
        return remember(replace(case, step=again), visit, act("retry", min(wait, gate.expires - visit.now)))
    rule = visit.plan.spec["on_expiry"]
    status = "approved" if rule == "approve" else "expired"
    closed = replace(gate, status=status, decided=visit.now, by=EXPIRY, tenant_pending=None)
    case = replace(case, head=replace(case.head, waiting=case.head.waiting - 1))
    told = {"decision": status, "by": EXPIRY, **({"tier": gate.tier} if gate.tiers else {})}
    case = case.noted(Note("gate_decided", gate.path, None, told))
    change = _after_expiry(case, visit, rule, closed)
    return replace(change, records=(*change.records, closed))


def _after_expiry(case: Case, visit: Visit, rule: str, gate: Gate) -> Change[Action]:
    if rule == "approve":
        outcome = protocol.Outcome(output=protocol.decision_value(gate), by=EXPIRY)
        seq = case.head.seq + len(case.notes) + 1
        step = protocol.finished(case.step, outcome, visit.now, seq)
        return remember(replace(case, step=step).noted(completed(step)), visit, act("retry"))
    failure = Failure("rejected", f"Nobody decided within {visit.plan.timeout:g} s.")
    case = replace(case, step=replace(case.step, status="failed", failure=failure, ended=visit.now))
    if rule == "pause":
        return paused(case, visit, "step_error")
    return _fail(case, visit, failure) if rule == "fail" else _after_failure(case, visit)


def _unrecorded(case: Case, visit: Visit) -> bool:
    """Tell whether a step without effect was only interrupted by the engine: entering it again costs nothing."""
    makes_no_call = case.step.called is None and visit.plan.type not in {"agent", "turn", "tool"}
    # A map or a loop without a run of its own has no time-out: what ran out of time is one of our tasks.
    whole = visit.plan.type in CONTAINERS and not visit.plan.apart
    interrupted = visit.engine_failure.error_class == "transient" or whole
    same = case.step.failure == visit.engine_failure
    return makes_no_call and interrupted and same and case.step.retries < ENTRY_RETRIES


def _may_stand_in(case: Case, plan: StepPlan) -> bool:
    if plan.fallback is None or case.beside:
        return False
    return case.step.action != STANDS_IN or case.step.retries < plan.retry.max_retries + ENTRY_RETRIES


def _retry(case: Case, visit: Visit, failure: Failure) -> Change[Action]:
    if failure.held:
        return _held_back(case, visit, failure)
    wait, spread = before_next(visit.plan, case.step, failure, visit)
    # A handler that failed leaves what waits waiting; an event whose time is over is waited for anew.
    waits = case.step.status == "waiting" and not (visit.plan.spec.get("event") and failure.error_class == "timeout")
    step = replace(case.step, status="waiting" if waits else "retrying", retries=case.step.retries + 1)
    if waits or visit.plan.type in CONTAINERS:
        step = replace(step, failure=None)  # on a map or a loop it would say that an item has failed
    case = replace(case, step=step).noted(retrying(step, failure.error_class, wait, spread))
    return remember(case, visit, act("retry", wait))


def _enter_again(case: Case, visit: Visit) -> Change[Action] | None:
    """Let a step ask again for what the run has by now: somebody gave it more between the refusal and this moment."""
    step, failure = case.step, case.step.failure
    if failure is None or not fits_by_now(case.head, failure, visit.now):
        return None
    again = replace(step, status="retrying", failure=failure if step.uncertain else None)
    return remember(replace(case, step=again).noted(retrying(step, "budget")), visit, act("retry"))


def _held_back(case: Case, visit: Visit, failure: Failure) -> Change[Action]:
    """Wait with the service's circuit breaker; no retry is used up. One that stays open is for a person to judge."""
    wait = held_for(case.step, failure, visit)
    if wait is None:
        return paused(replace(case, step=replace(case.step, held=None)), visit, "provider_degraded")
    case = replace(case, step=replace(case.step, status="retrying"))
    case = case.noted(Note("step_held", case.step.path, case.step.attempt, {"delay_ms": int(wait)}))
    return remember(case, visit, act("retry", wait))


def _on_error(case: Case, visit: Visit, failure: Failure) -> Change[Action]:
    rule = visit.plan.on_error
    if rule == "pause":
        return paused(case, visit, "step_error")
    data = {"class": failure.error_class, "message": failure.message[:500], "on_error": rule}
    status = "timed_out" if failure.error_class == "timeout" else "failed"
    step = replace(case.step, status=status, ended=visit.now)
    case = replace(case, step=step, letters=letters(step, visit.task, failure, rule, visit.now))
    case = case.noted(Note("step_gave_up", step.path, step.attempt, data))
    return _settle_failed(case, visit) if rule == "continue" else _fail(case, visit, failure)


def _settle_failed(case: Case, visit: Visit) -> Change[Action]:
    step = replace(case.step, settled=True, settled_seq=case.head.seq + 1)
    return remember(replace(case, step=step), visit, _go_on(step, visit.plan))


def _fail(case: Case, visit: Visit, failure: Failure) -> Change[Action]:
    """Fail what the step belongs to: the run, or inside a map or a loop the item."""
    if visit.task.scope != root_scope(case.seen.run):
        others, notes = fail_item(case.seen, visit.task.scope, failure, whole=visit.whole)
        case = replace(case, others=(*case.others, *others), notes=(*case.notes, *notes))
        return remember(case, visit, act("fail"))
    reason = f"step {case.step.path}: {failure.error_class}: {failure.message}"
    head, note = begin(case.head, "failed", reason)
    return remember(replace(case, head=head).noted(note), visit, act("fail"))
