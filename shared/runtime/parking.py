"""Parked states: an await before a step, a wait for a slot, and a step that a person must look at.

One primitive for all: register the task token (a newer delivery's wins), read again, and answer oneself when the
wait is over already. Whoever settles writes first and sends then, so no wake-up is lost.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from shared import values
from shared.errors import Conflict, InvalidRequest
from shared.ids import key_digest
from shared.ledger.records import Park, Record, Run, Step
from shared.redaction import redacted
from shared.runtime import protocol
from shared.runtime.deadletters import letter_of_doubt
from shared.runtime.denials import ask_again, deny, needs_approval
from shared.runtime.ending import begin, request, start_unwinding, wake
from shared.runtime.host import plan_of, routes_of
from shared.runtime.journal import Change, Journal, Note, Snapshot
from shared.runtime.notes import completed
from shared.runtime.outputs import fits
from shared.runtime.raising import Raise, fund, raised, raised_own
from shared.runtime.scopes import AWAIT, COMPENSATE, FALLBACK, PAUSE, closed, frame_keys, is_call, scope_of
from shared.runtime.settle import over, register
from shared.runtime.slots import SLOT, give_slots
from shared.runtime.visits import act
from shared.runtime.words import Resumption, given_up, parked

if TYPE_CHECKING:
    from shared.manifest import StepPlan
    from shared.runtime.host import Host
    from shared.runtime.task import Task

NOT_KNOWN = "and what became of its call is not known"


def await_step(host: Host, task: Task) -> None:
    """Park until the step's sources have settled, or answer at once when they have."""
    plan = plan_of(host.manifest(task), task.path)
    park = Park(path=f"{task.path}{AWAIT}", kind="await", token=task.token, entry=task.entry)
    valid, seen = register(host.journal(task), park, host.keys(task, plan))
    if seen.head.unwinding or closed(seen, task.scope) or over(host, task, plan, seen):
        host.engine.succeed(valid.token, {})


def take_slot(host: Host, task: Task) -> None:
    """Park until the step has a slot, or answer at once when it has one or needs none any more."""
    stands_in = task.template and not is_call(task.path)  # that of a call names its tool
    path = task.path + (FALLBACK if stands_in else "")
    park = Park(path=f"{path}{SLOT}", kind="slot", token=task.token, entry=task.entry)
    valid, seen = register(host.journal(task), park, [f"STEP#{path}", *frame_keys(task.scope)])
    step = seen.step(path)
    served = step is not None and (step.slot or step.settled or step.open)
    if served or seen.head.unwinding or seen.head.ended or closed(seen, task.scope):
        host.engine.succeed(valid.token, {})
    else:
        give_slots(host, task)


def park_step(host: Host, task: Task) -> None:
    """Park a paused step until a person says how it goes on, or answer at once when that was said already."""
    path = _pause_path(task.path)
    park = Park(path=path, kind="pause", token=task.token, entry=task.entry)
    valid, seen = register(host.journal(task), park, [f"STEP#{task.path}", *frame_keys(task.scope)])
    over = closed(seen, task.scope) and not protocol.in_doubt(seen.step(task.path))
    answer = act("fail") if over else _answer(seen, task.path)
    if answer:
        host.engine.succeed(valid.token, answer)


def _pause_path(path: str) -> str:
    return f"{path}{PAUSE}"


def _answer(seen: Snapshot, path: str) -> dict[str, Any] | None:
    step = seen.step(path)
    if seen.head.unwinding or seen.head.ended:
        return act("fail")
    if step is None or (step.status in protocol.PARKED and not step.settled) or step.reason == protocol.NEEDS_APPROVAL:
        return None
    return act("recheck" if step.status == "failed" else "retry")


@dataclass(frozen=True, slots=True)
class Order:
    """A person's word on a paused step: what to do, who says so, a result to accept, limits to raise.

    ``key`` = the caller's own name for this request: repeated with it, it is carried out once.
    """

    action: Resumption
    by: str
    result: Any = None
    more: Raise | None = None
    key: str | None = None

    @property
    def told(self) -> dict[str, Any]:
        """What the event of it says."""
        return {"action": self.action, "by": self.by} | ({"key": key_digest(self.key)} if self.key else {})


_RECENT = 500
"""Events of a run that are looked through for a request that is repeated."""


def resume_step(host: Host, task: Task, order: Order, unwind_machine: str) -> Snapshot:
    """Carry out a person's word on the paused step at ``task.path``.

    Raises NotFound or Conflict when no such step is paused, InvalidRequest when an accepted result does not fit.
    """
    plan = plan_of(host.manifest(task), task.path)
    accepted = _accepted(host, task, plan, order)
    journal = host.journal(task)
    seen = journal.read(_resume_keys(task.path, plan))
    if _is_repeated(journal, seen, task.path, order):
        send_word(host, seen, task.path)
        wake(host, journal)
        return seen
    now = host.clock.now()
    if order.action == "fail":
        decide_resume(seen, task.path, order, accepted, now)  # refused before anybody else fails
        _fail_whole(host, seen, task, order, unwind_machine)
    more = order.more.amounts if order.more else {}

    def decide(again: Snapshot) -> Change[None]:
        change = decide_resume(again, task.path, order, accepted, now)
        return replace(change, elsewhere=fund(host, again.run, more))

    _, after = journal.transact(seen, decide)
    send_word(host, after, task.path)
    if after.head.unwinding:
        start_unwinding(host, after, unwind_machine)
        wake(host, journal)
    return after


def _is_repeated(journal: Journal, seen: Snapshot, path: str, order: Order) -> bool:
    """Tell whether this request was carried out before: its caller did not hear of it."""
    if order.key is None:
        return False
    recent = journal.events(after=max(0, seen.head.seq - _RECENT))
    told = (event.data for event in recent if event.type == "step_resumed" and event.path == path)
    return any(data.get("key") == key_digest(order.key) for data in told)


def _fail_whole(host: Host, seen: Snapshot, task: Task, order: Order, unwind_machine: str) -> None:
    """Fail the run that a part belongs to: a person has given up the run, not a range of its items."""
    while seen.run.part and seen.run.parent and not seen.head.ended:
        above = Journal(host.store, host.clock, task.tenant, seen.run.parent.split("|", 1)[0])
        with suppress(Conflict):  # it has ended already
            request(host, above, "failed", _reason(task.path, order), unwind_machine)
        seen = above.read(["RUN"])


def _reason(path: str, order: Order) -> str:
    return f"step {path}: given up by {order.by}"


def _resume_keys(path: str, plan: StepPlan) -> set[str]:
    """Return the sort keys that deciding about a paused step needs: itself, what stands beside it and around it."""
    own = path.removesuffix(COMPENSATE).removesuffix(FALLBACK)
    steps = {f"STEP#{one}" for one in (path, own, f"{own}{FALLBACK}")}
    gate = {f"GATE#{scope_of(own)}{plan.approved_by}"} if plan.approved_by else set[str]()
    return {*steps, *gate, *frame_keys(scope_of(own)), f"PARK#{_pause_path(path)}", f"DEAD#{path}", "RUN"}


def send_word(host: Host, seen: Snapshot, path: str) -> None:
    """Answer the token with which the step at ``path`` is parked, if a person's word has been recorded."""
    park, answer = seen.park(_pause_path(path)), _answer(seen, path)
    if park and park.token and answer:
        host.engine.succeed(park.token, answer)


def _accepted(host: Host, task: Task, plan: StepPlan, order: Order) -> protocol.Outcome:
    """Return the outcome that a person gives; an empty one where none is given."""
    if order.action != "accept":
        return protocol.Outcome(by="person")
    wrong = fits(order.result, plan.output)
    if wrong:
        raise InvalidRequest(f"The given result does not fit the output schema of {plan.id} at {wrong}")
    stored = values.store(redacted(order.result, plan.output), host.blobs, task.tenant)
    return protocol.Outcome(output=stored, route=_route(plan, order.result), by="person")


def _route(plan: StepPlan, result: Any) -> str | None:
    """Return the route that a person chose for a router. Raises InvalidRequest for one that it does not have."""
    if plan.type != "router":
        return None
    names = routes_of(plan)
    chosen = cast("dict[str, Any]", result).get("route") if isinstance(result, dict) else None
    if chosen not in names:
        wanted = ", ".join(names)
        raise InvalidRequest(f'Router {plan.id} needs a result such as {{"route": NAME}} with one of: {wanted}.')
    return chosen


def decide_resume(seen: Snapshot, path: str, order: Order, accepted: protocol.Outcome, now: int) -> Change[None]:
    """Decide a resumption: only of a parked step, and only what may be said of it (``shared.runtime.words``)."""
    step, beside = parked(seen, path, order.action), seen.step(f"{path}{FALLBACK}")
    head = replace(seen.head, paused=seen.head.paused - 1)
    run, head, step = raised(seen.run, head, step, order.more.amounts) if order.more else ((), head, step)
    if order.action == "did_not_happen" or (order.action == "retry" and needs_approval(seen, step)):
        return _called_anew(seen.with_({"HEAD": head}), step, run, order, now)
    if order.action == "fail":
        return _failed(seen.with_({"HEAD": head}), step, run, order, now)
    step, notes = _resumed(step, order, accepted, now, head.seq + 2)
    stand_in = (_answered(beside, step),) if beside and protocol.in_doubt(beside) and step.settled else ()
    if stand_in and step.status == "completed":
        step = replace(step, by="fallback")
        notes = (completed(step),)
    if beside and order.action == "retry" and _may_begin_anew(beside):
        stand_in = (_unbegun(beside, order),)
    note = Note("step_resumed", path, None, _told(order))
    records = (head, step, *stand_in, answered(seen, path, "retry"), *protocol.beside(step, seen), *run)
    return Change(None, records, (note, *notes))


def _may_begin_anew(stand_in: Step) -> bool:
    return not (stand_in.settled or stand_in.open or protocol.in_doubt(stand_in))


def _unbegun(stand_in: Step, order: Order) -> Step:
    """Return a fallback that got no further as one that may stand in again: its step is tried from the beginning.

    What a person adds to the step's own limits is added to its fallback's as well, which may be what lacks it.
    """
    stand_in = raised_own(stand_in, order.more.amounts) if order.more else stand_in
    return replace(stand_in, status="ready", settled=False, retries=0, failure=None, cascade=None, action=None)


def _told(order: Order) -> dict[str, Any]:
    return order.told | ({"raised": order.more.amounts} if order.more else {})


def _failed(seen: Snapshot, step: Step, run: tuple[Run, ...], order: Order, now: int) -> Change[None]:
    """Fail the run for a step that a person has given up; with it a call of which nobody will find out any more."""
    head, notes = seen.head, [Note("step_resumed", step.path, None, _told(order))]
    reason = _reason(step.path, order)
    if not head.unwinding:
        head, note = begin(head, "failed", reason if step.status != "unknown" else f"{reason}, {NOT_KNOWN}")
        notes.append(note)
    records: tuple[Record, ...] = (replace(step, status="failed", ended=now),)
    if step.status == "unknown":
        beside = seen.step(f"{step.path}{FALLBACK}")
        left, told = given_up(step, beside, order.by, now, head.seq + len(notes) + 1)
        records = (*left, letter_of_doubt(seen.run, left[0], now))
        notes += told
    return Change(None, (head, *records, answered(seen, step.path, "fail"), *run), tuple(notes))


def _called_anew(seen: Snapshot, step: Step, run: tuple[Run, ...], order: Order, now: int) -> Change[None]:
    """Let a call be made that has not happened, or ask for the approval of one that is not what was approved."""
    denied = order.action == "did_not_happen"
    answer, records, notes = deny(seen, step, order.by, now) if denied else ask_again(seen, step, now)
    park = (answered(seen, step.path, answer),) if answer else ()
    note = Note("step_resumed", step.path, None, _told(order) | ({} if denied else {"asks": True}))
    return Change(None, (*records, *park, *run), (note, *notes))


def answered(seen: Snapshot, path: str, answer: str) -> Park:
    """Return the registration of the parked step with its answer, which is sent even if this process dies now.

    It is written even where there is none yet, so that one which comes meanwhile is seen.
    """
    park = seen.park(_pause_path(path)) or Park(path=_pause_path(path), kind="pause")
    return replace(park, answer=answer)


def _answered(stand_in: Step, step: Step) -> Step:
    """Return a fallback in doubt after a person's word on its step: its call has happened, or it has not."""
    word = replace(stand_in, status=step.status, settled=True, output=step.output, by="person", ended=step.ended)
    return replace(word, failure=None, settled_seq=step.settled_seq)


def _resumed(step: Step, order: Order, accepted: protocol.Outcome, now: int, seq: int) -> tuple[Step, tuple[Note, ...]]:
    """Return the step after a word that lets its run go on, and its event, which is number ``seq``."""
    if order.action == "accept":
        done = protocol.finished(step, accepted, now, seq)
        return done, (completed(done),)
    if order.action == "skip":
        skipped = replace(step, status="skipped", settled=True, ended=now, reason="by a person", settled_seq=seq)
        return skipped, (Note("step_skipped", step.path, None, {"reason": f"by {order.by}"}),)
    # What may have happened stays known: the next attempt looks for it first.
    doubt = step.failure if step.uncertain else None
    return replace(step, status="retrying", retries=0, failure=doubt, reason=None), ()
