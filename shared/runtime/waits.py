"""Waits: for a time, until a moment, or for an event from outside, which may come before the wait."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shared import values
from shared.definition.expressions import ExpressionFailure, evaluate
from shared.errors import Conflict, PermanentFailure, StepFailure, StepTimeout
from shared.ids import sha256
from shared.ledger.records import Kept, Park, Step
from shared.redaction import redacted
from shared.runtime import protocol
from shared.runtime.host import plan_of
from shared.runtime.joins import verdict
from shared.runtime.journal import Change, Note, Snapshot
from shared.runtime.protocol import Outcome
from shared.runtime.settle import settle
from shared.runtime.steps import NotOpened, check_open, record_failure, result, skipped

if TYPE_CHECKING:
    from shared.manifest import Manifest, StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal
    from shared.runtime.task import Task

LONGEST = 364 * 24 * 3600 * 1000
"""Longest wait (ms); an execution lives no longer than a year."""


def wait(host: Host, task: Task) -> dict[str, Any]:
    """Say how long to wait still (whole seconds), and whether the wait is over and its step closed."""
    plan, journal = plan_of(host.manifest(task), task.path), host.journal(task)
    seen = journal.read(host.keys(task, plan))
    step = seen.step(task.path)
    if step is None or not step.settled:
        step = _wait(host, task, plan, journal, seen)
    if step.settled:
        settle(host, task, step)
        return {"done": "yes", "seconds": 0}
    return {"done": "no", "seconds": max(1, -(-((step.due or 0) - host.clock.now()) // 1000))}


def _wait(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot) -> Step:
    known, now = seen.step(task.path), host.clock.now()
    if known is None or known.due is None or known.status == "retrying":
        return _begin(host, task, plan, journal, seen)
    if protocol.stopped(seen, known, task):
        raise NotOpened(f"Wait {task.path} does not go on: the run or its item is ending.")
    if known.due > now:
        return known
    kind = "for" if plan.spec.get("for") is not None else "until"
    outcome = Outcome(output=values.store({"waited": kind, "event": None}, host.blobs, task.tenant))
    return journal.transact(seen, lambda again: protocol.settle_entered(known, outcome, now, again))[0]


def _begin(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot) -> Step:
    known = seen.step(task.path) or protocol.new_step(plan, task.path, task.epoch)
    stop = protocol.stopped(seen, known, task)
    if stop:
        raise NotOpened(f"Wait {task.path} opens nothing: {stop.why}.")
    now = host.clock.now()
    try:
        entry = verdict(plan, task.scope, seen, host.names(task, seen))
        if entry.kind == "skip":
            return skipped(host, plan, task.path, entry.reason, journal, seen)
        due = now + plan.timeout * 1000 if plan.spec.get("event") else _due(host, task, plan, seen, now)
    except StepFailure as failure:
        record_failure(host, task, plan, task.path, failure)
        raise
    waiting = replace(known, status="waiting", attempt=known.attempt + 1, started=now, due=int(due), failure=None)
    return journal.transact(seen, lambda again: _begun(again, waiting))[0]


def _begun(seen: Snapshot, waiting: Step) -> Change[Step]:
    known = seen.step(waiting.path)
    if known and (known.settled or (known.due and known.status != "retrying")):
        return Change(known)
    check_open(seen)
    return Change(waiting, (waiting,), (Note("wait_started", waiting.path, waiting.attempt, {"due": waiting.due}),))


def _due(host: Host, task: Task, plan: StepPlan, seen: Snapshot, now: int) -> int:
    names = host.names(task, seen, plan)
    timed = plan.spec.get("for") is not None
    due = now + _seconds(names.render(plan.spec["for"])) * 1000 if timed else _moment(names.render(plan.spec["until"]))
    if due > now + LONGEST:
        raise PermanentFailure(f"Wait {task.path} would last longer than {LONGEST // 86_400_000} days.")
    return int(due)


def _seconds(given: Any) -> float:
    from shared.definition.units import seconds  # noqa: PLC0415 - only for durations that are computed

    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return float(given)
    try:
        return float(seconds(given))
    except (ValueError, TypeError) as error:
        raise PermanentFailure(f"{given!r} is no duration such as `90s` or `2h`.") from error


def _moment(given: Any) -> int:
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError as error:
        raise PermanentFailure(f"{given!r} is no moment such as `2026-12-24T18:00:00Z`.") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def wait_for_event(host: Host, task: Task) -> None:
    """Park until the event arrives, or answer at once when it has been kept already. Raises StepTimeout when due."""
    plan, journal = plan_of(host.manifest(task), task.path), host.journal(task)
    seen = journal.read(host.keys(task, plan))
    step = seen.step(task.path)
    if step is None or step.due is None or step.status == "retrying":
        # Who waits again has its whole time again.
        step = _begin(host, task, plan, journal, seen)
    if not step.settled:
        park = Park(path=task.path, kind="event", token=task.token, entry=task.entry)
        step = journal.transact(journal.read_all(), lambda again: _register(again, park, plan, host.clock.now()))[0]
    if step.settled:
        settle(host, task, step)
        host.engine.succeed(task.token, result(step))
    elif (step.due or 0) <= host.clock.now():
        late = StepTimeout(f"No event {plan.spec['event']['name']} came within {plan.timeout:g} s.")
        record_failure(host, task, plan, task.path, late)
        raise late


def _register(seen: Snapshot, park: Park, plan: StepPlan, now: int) -> Change[Step]:
    step, known = seen.step(park.path), seen.park(park.path)
    if step is None or step.settled or step.failure:
        raise NotOpened(f"Wait {park.path} does not wait any more.")
    for kept in seen.kept():
        if kept.used_by is None and matches(plan, kept):
            return _completed(seen, step, kept, now)
    if known and known.entry >= park.entry:
        return Change(step)
    return Change(step, (park,), (Note("event_awaited", park.path),))


def matches(plan: StepPlan, kept: Kept) -> bool:
    """Tell whether an event is the one that a wait waits for: its name, and ``match`` over ``event``.

    Events come from outside: one of which the condition cannot be evaluated is another one.
    """
    wanted = plan.spec["event"]
    condition = wanted.get("match")
    if kept.name != wanted["name"] or not condition:
        return kept.name == wanted["name"]
    try:
        return evaluate(condition, {"event": values.parse(kept.data)}) is True
    except ExpressionFailure:
        return False


def _completed(seen: Snapshot, step: Step, kept: Kept, now: int) -> Change[Step]:
    text = values.canonical({"waited": "event", "event": values.parse(kept.data)})
    output = values.Value(sha256(text), len(text), text=text.decode())
    change = protocol.settle_entered(step, Outcome(output=output), now, seen)
    park = seen.park(step.path)
    # The answer stands in the registration, so that it is sent even if this process dies now.
    answered = (replace(park, answer="completed"),) if park else ()
    return replace(change, records=(*change.records, *answered, replace(kept, used_by=step.path)))


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event from outside: its name, its data, and an id by which a repeated delivery is recognised."""

    id: str
    name: str
    data: Any


def deliver(host: Host, task: Task, arrival: Arrival) -> bool:
    """Complete the wait that the event is for, or keep it. Returns whether a wait was completed.

    ``task`` names the run. Raises Conflict when the run has ended.
    """
    journal, manifest = host.journal(task), host.manifest(task)
    kept = Kept(
        id=arrival.id, name=arrival.name, data=values.canonical(redacted(arrival.data)).decode(), at=host.clock.now()
    )

    def decide(seen: Snapshot) -> Change[Step | None]:
        return _arrive(seen, kept, manifest, host.clock.now())

    step, after = journal.transact(journal.read_all(), decide)
    if step is None:
        return False
    park = after.park(step.path)
    settle(host, replace(task, step=step.step, scope=step.path.removesuffix(step.step)), step)
    if park:
        host.engine.succeed(park.token, result(step))
    return True


def _arrive(seen: Snapshot, kept: Kept, manifest: Manifest, now: int) -> Change[Step | None]:
    if seen.head.ended or seen.head.unwinding:
        raise Conflict(f"The run is {seen.head.ended or seen.head.unwinding}; it takes no events.", code="run_ended")
    known = next((one for one in seen.kept() if one.id == kept.id), None)
    if known:
        return Change(seen.step(known.used_by) if known.used_by else None)
    note = Note("event_received", None, None, {"name": kept.name, "id": kept.id})
    for park in seen.parks():
        step = seen.step(park.path)
        # One that was registered in an earlier epoch waits again only once it is reached again.
        waits = park.kind == "event" and step is not None and step.status == "waiting" and not step.failure
        if waits and step and matches(plan_of(manifest, park.path), kept):
            change = _completed(seen, step, kept, now)
            return Change(change.result, change.records, (note, *change.notes))
    return Change(None, (kept,), (note,))
