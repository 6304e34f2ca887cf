"""Open and close: the two transactions around every call, as pure decisions over a snapshot.

    open    HEAD (not unwinding, left >= worst case; left -=, open += 1) + STEP (holder, fence + 1, lease, hold, ledger)
    close   HEAD (release the hold, charge what was used, open -= 1)     + STEP (outcome), valid only on the fence

Each recognises its own earlier success, so it may be asked again after a lost answer.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from shared.budget import rules
from shared.errors import PolicyViolation
from shared.frozen import frozen
from shared.ids import sha256
from shared.ledger.record import lean, replace
from shared.ledger.records import NOTHING, Amount, Call, Failure, Gate, Head, Step
from shared.runtime import notes
from shared.runtime.failures import exceeded, failure_of
from shared.runtime.journal import Change, Note, Snapshot
from shared.runtime.scopes import COMPENSATE, FALLBACK, around, closed, is_part_of, scope_of
from shared.runtime.sharing import with_sharers
from shared.runtime.visits import STANDS_IN, stood_in_for
from shared.runtime.votes import notes_of
from shared.values import Value, canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.manifest import StepPlan
    from shared.runtime.task import Task


PARKED = frozenset({"paused", "unknown"})
"""Statuses in which a step waits for a person's word; the head counts them."""
NEEDS_APPROVAL = "approval_needed"
"""Why a step waits that may run only when its gate has been approved once more."""
_BESIDE = (COMPENSATE, FALLBACK)
_FRESH = lean(Step(path="", step="", type="", status="running"))


@frozen
class Opened:
    """The attempt may call. ``interrupted`` = an earlier holder may have called already."""

    step: Step
    interrupted: bool = False


@frozen
class Done:
    """Nothing to call: the step has settled."""

    step: Step


@dataclass(frozen=True, slots=True)
class Held:
    """Another process holds the step until ``until`` (ms)."""

    until: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run or the step opens nothing any more; ``why`` says it."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The reservation does not fit; nothing was spent."""

    refusal: rules.Refusal


Opening = Opened | Done | Held | Stopped | Refused


@frozen
class Ask:
    """What an attempt wants to open with: its worst case, its ledger entry, its arguments; ``now`` in ms.

    ``service`` is what a tool's call depends on, which a circuit breaker watches. ``slot`` = it opens with a slot only.
    ``mode`` says what becomes of what does not fit: "enforce" = the step fails, "try" = it is only told, "audit" = it
    is noted and the attempt opens.
    """

    task: Task
    plan: StepPlan
    path: str
    hold: Amount
    arguments: Value
    now: int
    call: Call | None = None
    model: str | None = None
    mode: Literal["enforce", "try", "audit"] = "enforce"
    service: str = ""
    slot: bool = False


def open_attempt(ask: Ask, seen: Snapshot) -> Change[Opening]:
    """Reserve and record the intent, take over from a dead holder, or say why not."""
    step = seen.step(ask.path) or new_step(ask.plan, ask.path, ask.task.epoch)
    known = _already(step, ask.task) or stopped(seen, step, ask.task) or _overtaken(ask, step) or _too_late(ask, step)
    if known:
        return Change(known)
    if not step.open:
        return _reserve(ask, seen, seen.head, step, ())
    if ask.plan.risk != "read" and ask.now < step.lease:
        return Change(Held(step.lease))
    head, step, lost = abandon(seen.head, step, ask.now)
    if ask.plan.risk == "irreversible":
        return _unknown(head, step, lost)
    return _reserve(ask, seen, head, step, (lost,))


def _already(step: Step, task: Task) -> Opening | None:
    if step.settled:
        return Done(step)
    return Opened(step) if step.open and step.holder == task.attempt else None


def _overtaken(ask: Ask, step: Step) -> Stopped | None:
    """Tell whether a person has let the call be made anew since this attempt looked: then it is another call."""
    anew = ask.call and step.called and step.called.key != ask.call.key
    return Stopped("its call is to be made anew, as another one") if anew else None


def _too_late(ask: Ask, step: Step) -> Stopped | None:
    """Tell whether the engine has given this delivery up before it opened: its slot went to another step by that."""
    late = ask.slot and not step.slot and not step.open
    return Stopped("its slot has gone to another step") if late else None


def new_step(plan: StepPlan, path: str, epoch: int) -> Step:
    """Return the record of a step to which nothing has happened yet."""
    return replace(_FRESH, path=path, step=plan.id, type=plan.type, epoch=epoch)


def stopped(seen: Snapshot, step: Step, task: Task) -> Stopped | None:
    """Tell why nothing may open: the run or the item unwinds or ended, the task's epoch is over, the step is parked.

    Nor may what a fallback stands in for, nor one that does not stand in any more: so late a delivery would do the
    work twice.
    """
    head = seen.head
    if head.epoch != task.epoch:
        return Stopped(f"epoch {task.epoch} is over")
    if head.ended or (head.unwinding and not step.path.endswith(COMPENSATE)):
        return Stopped(f"the run is {head.ended or head.unwinding}")
    if step.status in PARKED or step.status == "cancelled" or step.reason == NEEDS_APPROVAL:
        return Stopped(f"the step is {step.status}")
    if stood_in_for(step):
        return Stopped("its fallback stands in")
    main = seen.step(step.path.removesuffix(FALLBACK)) if step.path.endswith(FALLBACK) else None
    if main and (main.settled or main.action != STANDS_IN):
        return Stopped("it does not stand in")
    over = None if step.path.endswith(COMPENSATE) else closed(seen, task.scope)
    return Stopped(over) if over else None


def abandon(head: Head, step: Step, now: int, error: str = "") -> tuple[Head, Step, Note]:
    """Take a step from a holder that is dead or out of time. Raises the fence.

    What the attempt used was never learned, so its whole hold stays charged. Whether its call happened was not, either.
    """
    note = Note("attempt_lost", step.path, step.attempt, {"used": notes.shown(step.hold), "error": error})
    spent, active = step.spent + step.hold, active_after(step, min(now, step.until))
    freed = replace(step, open=False, fence=step.fence + 1, hold=NOTHING, spent=spent, active=active, holder=None)
    died = Failure("transient", "The process ended without an answer.", uncertain=True)
    freed = replace(freed, failure=died, ended=min(now, step.lease))  # its call cannot have begun later
    # An attempt is not active beyond its time-out, but whatever closed after that was.
    over = min(now, max(step.until, head.last_close))
    return rules.release(head, step.hold, step.hold, over), freed, note


def _unknown(head: Head, step: Step, lost: Note) -> Change[Opening]:
    head, unknown = park(head, step, "unknown_outcome")
    note = Note("step_unknown", step.path, step.attempt)
    return Change(Stopped("the outcome of its call is unknown"), (head, unknown), (lost, note))


def _reserve(ask: Ask, seen: Snapshot, head: Head, step: Step, before: tuple[Note, ...]) -> Change[Opening]:
    interrupted = bool(before) or step.uncertain
    if step.arguments and step.arguments.digest != ask.arguments.digest:
        raise PolicyViolation(f"Step {ask.path}: these arguments are not those of its first attempt. Start a new run.")
    refusals = _refusals(ask, head, step, seen)
    if refusals and ask.mode != "audit":
        return _refuse(ask, head, step, refusals[0], before)
    opened = replace(
        step,
        status="running",
        attempt=step.attempt + 1,
        fence=step.fence + 1,
        holder=ask.task.attempt,
        lease=ask.task.lease,
        until=ask.now + int(ask.plan.timeout * 1000),
        open=True,
        hold=ask.hold,
        call=ask.call,
        arguments=ask.arguments,
        model=ask.model,
        failure=None,
        probes=0,
        held=None,
        started=step.started or ask.now,
        opened=ask.now,
    )
    audited = would_refuse(ask.path, opened.attempt, refusals)
    told = (*before, *audited, notes.opened(opened))
    return Change(Opened(opened, interrupted), (_admitted(ask, head), opened), told)


def would_refuse(path: str, attempt: int, refusals: Iterable[rules.Refusal]) -> tuple[Note, ...]:
    """Return the events by which an audit tells what would have been refused."""
    return tuple(Note("budget_would_refuse", path, attempt, refusal.data()) for refusal in refusals)


def in_doubt(step: Step | None) -> bool:
    """Tell whether a call that changes something may have happened, and nobody has said yet whether it did."""
    if step is None or step.settled:
        return False
    return step.status == "unknown" or (step.uncertain and step.changes_something)


def active_after(step: Step, now: int) -> int:
    """Return the active time (ms) of all attempts of a step whose open one ends ``now``."""
    return step.active + max(0, now - (step.opened or now))


def unopened(step: Step, failure: Failure) -> Failure:
    """Return a failure that came before anything was opened: the doubt that it leaves is that of the call before."""
    return dataclasses.replace(failure, uncertain=step.uncertain)


def park(head: Head, step: Step, reason: str) -> tuple[Head, Step]:
    """Let the step wait for a person: as unknown when its call may have happened. The head counts it once."""
    status = "unknown" if reason == "unknown_outcome" else "paused"
    counted = replace(head, paused=head.paused + (step.status not in PARKED))
    return counted, replace(step, status=status, reason=reason, given_up=None)


def _refusals(ask: Ask, head: Head, step: Step, seen: Snapshot) -> tuple[rules.Refusal, ...]:
    """Return what does not fit. A compensation is never refused: not undoing would cost more."""
    if ask.path.endswith(COMPENSATE):
        return ()
    timeout = int(ask.plan.timeout * 1000)
    own = rules.step_refusals(ask.plan.budget, with_sharers(step, seen), ask.hold, timeout)
    return (*own, *rules.refusals(head, ask.hold, timeout, ask.now))


def _admitted(ask: Ask, head: Head) -> Head:
    undoes = ask.path.endswith(COMPENSATE)
    return rules.reserve(head, ask.hold) if undoes else rules.admitted(head, ask.hold, ask.now)


def _refuse(ask: Ask, head: Head, step: Step, refusal: rules.Refusal, before: tuple[Note, ...]) -> Change[Opening]:
    if ask.mode == "try":
        return Change(Refused(refusal))
    failure = unopened(step, failure_of(exceeded(refusal)))
    failed = replace(step, status="failed", failure=failure, cascade=None)
    note = Note("budget_refused", ask.path, None, refusal.data())
    return Change(Refused(refusal), (head, failed), (*before, note))


@frozen
class Outcome:
    """How an attempt ended: an output (and a router's route), or a failure. ``used`` None = never learned.

    ``others`` are the steps that become ready by it, ``notes`` their events.
    """

    used: Amount | None = None
    output: Value | None = None
    route: str | None = None
    failure: Failure | None = None
    by: str | None = None
    others: tuple[Step, ...] = ()
    notes: tuple[Note, ...] = ()


def close_attempt(opened: Step, outcome: Outcome, now: int, seen: Snapshot) -> Change[Step | None]:
    """Settle the attempt on its fence. None = somebody else took over: this result is late and changes nothing."""
    step = seen.step(opened.path)
    if step and step.closed_by == opened.holder:
        return Change(step)
    if step is None or not step.open or step.fence != opened.fence:
        return Change(None)
    used = step.hold if outcome.used is None else outcome.used
    head = rules.release(seen.head, step.hold, used, now)
    closed = replace(
        finished(step, outcome, now, head.seq + 1),
        open=False,
        hold=NOTHING,
        holder=None,
        closed_by=opened.holder,
        spent=step.spent + used,
        active=active_after(step, now),
    )
    note = notes.closing(step, closed, used, now)
    return Change(closed, (head, closed, *beside(closed, seen), *outcome.others), (note, *outcome.notes))


def settle_free(task: Task, step: Step, outcome: Outcome, now: int, seen: Snapshot) -> Change[Step | None]:
    """Close a step that makes no call and costs nothing: no hold, no open before it. None = nothing opens any more."""
    known = seen.step(step.path)
    if known and known.settled:
        return Change(known)
    if stopped(seen, known or step, task):
        return Change(None)
    closed = finished(replace(known or step, started=now, attempt=step.attempt + 1), outcome, now, seen.head.seq + 1)
    return Change(closed, (closed, *beside(closed, seen)), (notes.closing(step, closed, NOTHING, now),))


def settle_entered(step: Step, outcome: Outcome, now: int, seen: Snapshot) -> Change[Step]:
    """Close a step that was entered without a hold (a map, a loop, a wait), unless it has settled or failed already.

    A part's own map may have failed: its output says so, and the whole judges.
    """
    known = seen.step(step.path) or step
    failed = known.failure and not is_part_of(seen.run, step.path)
    if known.settled or failed or known.status in PARKED or seen.head.ended:
        return Change(known)
    closed_ = finished(known, outcome, now, seen.head.seq + 1)
    return Change(closed_, (closed_,), (notes.closing(known, closed_, NOTHING, now),))


def finished(step: Step, outcome: Outcome, now: int, seq: int) -> Step:
    """Return the step with its outcome: completed and settled, or failed and for the cascade to decide."""
    if outcome.failure:
        return replace(step, status="failed", failure=outcome.failure, ended=now)
    return replace(
        step,
        status="completed",
        settled=True,
        output=outcome.output,
        route=outcome.route,
        by=outcome.by or "step",
        failure=None,
        ended=now,
        settled_seq=seq,
    )


def skip(plan: StepPlan, path: str, reason: str, now: int, seen: Snapshot) -> Change[Step | None]:
    """Record that the step is skipped, unless something has been recorded already. None = the run is ending."""
    known = seen.step(path)
    begun = known and known.started is not None  # in this epoch
    if known and (known.settled or begun or known.status in PARKED):
        return Change(known)
    if seen.head.ended or seen.head.unwinding or closed(seen, scope_of(path)):
        return Change(None)
    fresh = known or new_step(plan, path, seen.head.epoch)
    seq = fresh.settled_seq or seen.head.seq + 1  # what an earlier epoch's child did is undone in its place
    skipped = replace(fresh, status="skipped", settled=True, ended=now, reason=reason, settled_seq=seq)
    return Change(skipped, (skipped,), (Note("step_skipped", path, None, {"reason": reason}),))


def decision_value(gate: Gate) -> Value:
    """Return a gate step's output: the decision, who made it and when (ms), the notes."""
    output = {"decision": gate.status, "by": gate.by, "at": gate.decided, "notes": notes_of(gate)}
    text = canonical(output)
    return Value(digest=sha256(text), size=len(text), text=text.decode())


def beside(closed: Step, seen: Snapshot) -> tuple[Step, ...]:
    """Return the steps that a completed compensation has undone, or for which a completed fallback stands in."""
    if closed.status != "completed" or not closed.path.endswith(_BESIDE):
        return ()
    undone = seen.step(closed.path.removesuffix(COMPENSATE))
    if undone and undone.path != closed.path:
        main = seen.step(undone.path.removesuffix(FALLBACK))
        stood_in = (main,) if main and main.path != undone.path and main.by == "fallback" else ()
        return tuple(_undone(one, seen) for one in (undone, *stood_in, *undone_around(undone.path, seen)))
    failed = seen.step(closed.path.removesuffix(FALLBACK))
    if failed and failed.path != closed.path:
        stood_in = Outcome(output=closed.output, route=closed.route, by="fallback")
        return (finished(failed, stood_in, closed.ended or 0, closed.settled_seq or 0),)
    return ()


def undone_around(path: str, seen: Snapshot) -> tuple[Step, ...]:
    """Return the completed maps and loops around an undone step, undone in part: a later epoch enters them again."""
    whole = (seen.step(one) for one in around(path))
    return tuple(_undone(one, seen) for one in whole if one and one.status == "completed")


def _undone(step: Step, seen: Snapshot) -> Step:
    """Return the step as undone now: in this epoch, although an earlier one may have completed it."""
    return replace(step, status="compensated", epoch=seen.head.epoch)
