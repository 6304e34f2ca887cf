"""Gates: one request for a person's decision, bound to exactly what will run. Opened, announced, decided, answered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from shared import values
from shared.errors import Conflict, Forbidden, NotFound, StepFailure, TransientFailure
from shared.ledger.records import Failure, Gate, Head, Step
from shared.redaction import redacted_text
from shared.runtime import protocol
from shared.runtime.denials import asks_again, decided_again, expired_again, is_over, request_id
from shared.runtime.edits import edit
from shared.runtime.host import Host, plan_of
from shared.runtime.joins import verdict
from shared.runtime.journal import Change, Journal, Note, Snapshot
from shared.runtime.mailing import give_time, mail_approvers, people_of
from shared.runtime.notes import completed
from shared.runtime.parking import answered, send_word
from shared.runtime.scopes import PAUSE, graph_at, scope_of
from shared.runtime.secrets import rendered
from shared.runtime.settle import settle
from shared.runtime.steps import NotOpened, record_failure, result, skipped
from shared.runtime.task import run_task
from shared.runtime.tiers import asked_anew, begun
from shared.runtime.votes import edited, is_same_edit, same_person, voted, with_vote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.manifest import Manifest, StepPlan
    from shared.runtime.edits import Edit
    from shared.runtime.mailing import GateHost
    from shared.runtime.scope import Scope
    from shared.runtime.task import Task

Decision = Literal["approved", "rejected"]


def run_gate(host: GateHost, task: Task) -> None:
    """Open the gate, or register this delivery's token on it; announce it; answer it when it is decided already.

    Raises StepFailure when the gate cannot open, or StepTimeout when it expired; the cascade decides.
    """
    manifest, journal = host.manifest(task), host.journal(task)
    plan = plan_of(manifest, task.path)
    seen = journal.read({*host.keys(task, plan), f"GATE#{task.path}", *_approved_keys(host, manifest, plan, task)})
    known = seen.step(task.path)
    if known and known.settled:
        settle(host, task, known)
        host.engine.succeed(task.token, result(known))
        return
    gate = _open(host, task, manifest, plan, journal, seen)
    if gate is None:
        _answer_skipped(host, task, journal)
    elif gate.status != "open":
        # Decided between two deliveries: the gate holds the token of the one before, and this one is waiting.
        answer(host, replace(gate, token=task.token))
    else:
        mail_approvers(host, journal, gate)
        give_time(host, journal, gate, plan)


def _approved_keys(host: GateHost, manifest: Manifest, plan: StepPlan, task: Task) -> frozenset[str]:
    approved = plan.spec.get("approves")
    return host.keys(task, graph_at(manifest, task.scope)[approved]) if approved else frozenset()


def _open(
    host: GateHost, task: Task, manifest: Manifest, plan: StepPlan, journal: Journal, seen: Snapshot
) -> Gate | None:
    """Return the gate as it stands after this delivery; None = the step is skipped."""
    now = host.clock.now()
    try:
        scope = host.names(task, seen, plan)
        entry = verdict(plan, task.scope, seen, scope)
        if entry.kind == "blocked":
            raise TransientFailure(f"Gate {task.path} was started before {entry.reason} had settled.")
        if entry.kind == "skip":
            skipped(host, plan, task.path, entry.reason, journal, seen)
            return None
        fresh = seen.gate(task.path) or _request(host, task, manifest, plan, seen, scope)
    except StepFailure as failure:
        record_failure(host, task, plan, task.path, failure)
        raise
    return journal.transact(seen, lambda again: decide_open(again, fresh, plan, task, now))[0]


def _request(host: GateHost, task: Task, manifest: Manifest, plan: StepPlan, seen: Snapshot, scope: Scope) -> Gate:
    now, run = host.clock.now(), seen.run
    approved = graph_at(manifest, task.scope)[plan.spec["approves"]] if plan.spec.get("approves") else None
    arguments = values.store(_arguments(host, task, approved, scope), host.blobs, task.tenant) if approved else None
    excluded = run.initiator if plan.spec.get("not_initiator") else None
    before = seen.step(f"{task.scope}{approved.id}") if approved else None
    tiers = people_of(host, plan, excluded)
    reminds = plan.spec.get("remind_after")
    dispatch = before.call.dispatch + 1 if before and before.call else 1
    return Gate(
        id=request_id(run.id, task.path, *([str(task.epoch)] if task.epoch > 1 else [])),
        path=task.path,
        step=plan.id,
        approves=approved.id if approved else None,
        tool=approved.spec["tool"] if approved else None,
        risk=approved.risk if approved else None,
        arguments=arguments,
        digest=arguments.digest if arguments else "",
        dispatch=dispatch,
        subject=str(scope.render(plan.spec.get("subject") or f"Decide {plan.id} of {run.workflow}"))[:200],
        show=values.store(scope.render(plan.spec.get("show") or {}), host.blobs, task.tenant),
        roles=tuple(plan.spec["approvers"]),
        recipients=tuple(tiers[0]["people"]),
        tiers=tiers if len(tiers) > 1 else (),
        remind_after=None if reminds is None else int(reminds * 1000),
        silent="email" not in plan.spec.get("channels", ("email",)),
        excluded=excluded,
        edit=values.store(plan.spec["edit"], host.blobs, task.tenant) if plan.spec.get("edit") else None,
        quorum=plan.spec.get("quorum", 1),
        opened=now,
        expires=now + int(plan.timeout * 1000),
        timeout=int(plan.timeout * 1000),
    )


def _arguments(host: GateHost, task: Task, approved: StepPlan, scope: Scope) -> Any:
    return rendered(dict(approved.spec.get("with") or {}), scope.render, host.secrets, task.tenant)


def decide_open(seen: Snapshot, fresh: Gate, plan: StepPlan, task: Task, now: int) -> Change[Gate]:
    """Open the gate, or put a newer delivery's token on the open one. Raises NotOpened while the run unwinds."""
    known, step = seen.gate(fresh.path), seen.step(fresh.path) or protocol.new_step(plan, fresh.path, task.epoch)
    stop = protocol.stopped(seen, step, task)
    if stop:
        raise NotOpened(f"Gate {fresh.path} does not open: {stop.why}.")
    if known and (known.status != "open" and step.status != "retrying"):
        return Change(known)
    if known and known.status == "open":
        newer = known.entry < task.entry
        registered = replace(known, token=task.token, entry=task.entry)
        return Change(registered, (registered,)) if newer else Change(known)
    gate = replace(
        begun(fresh, now),
        status="open",
        token=task.token,
        entry=task.entry,
        expires=now + int(plan.timeout * 1000),
        mailed=(),
        votes=(),
        decided=None,
        by=None,
        tenant_pending=f"TENANT#{task.tenant}",
    )
    waiting = replace(step, status="waiting", attempt=step.attempt + 1, started=step.started or now)
    head = replace(seen.head, waiting=seen.head.waiting + 1)
    data = {"approves": gate.approves, "digest": gate.digest, "roles": list(gate.roles), "expires": gate.expires}
    return Change(gate, (head, waiting, gate), (Note("gate_opened", gate.path, waiting.attempt, data),))


def _answer_skipped(host: GateHost, task: Task, journal: Journal) -> None:
    step = journal.read([f"STEP#{task.path}"]).step(task.path)
    if step is None:
        raise TransientFailure(f"The skip of {task.path} is not readable yet.")
    settle(host, task, step)
    host.engine.succeed(task.token, result(step))


@dataclass(frozen=True, slots=True)
class Word:
    """A person's decision: what, who (the address that the link or token is for), their note.

    ``digest`` is that of the arguments they were shown, ``request`` the id of what they were asked; None = any.
    ``changes`` (RFC 7396) to the arguments are approved with them; they need the ``digest`` of what they change.
    """

    decision: Decision
    by: str
    note: str = ""
    digest: str | None = None
    request: str | None = None
    changes: Mapping[str, Any] | None = None


def decide_gate(host: Host, journal: Journal, path: str, word: Word) -> Gate:
    """Record a person's decision by one conditional write and answer the gate; a repeated decision answers again.

    An approval that does not complete the quorum leaves the gate open. Raises NotFound, Forbidden (the initiator may
    not), UnfitChanges, or Conflict: decided otherwise, expired, asked once more since, the run is unwinding, or
    ``digest`` is not what the gate is bound to.
    """
    now, word = host.clock.now(), replace(word, note=redacted_text(word.note))
    seen = _read_gate(journal, path)
    changed = _edit(host, seen, path, word)
    gate, after = journal.transact(seen, lambda again: decide_word(again, path, word, now, changed))
    if gate.status == "open":
        return gate
    if not gate.token:
        send_word(host, after, f"{scope_of(path)}{gate.approves}")
        return gate
    step = after.step(path)
    if step and step.settled:
        # The gate's own state only goes on; whoever waits for it elsewhere in the graph is woken by whoever settles it.
        settle(host, run_task(after.run, after.head.epoch, path), step)
    answer(host, gate)
    return gate


def _edit(host: Host, seen: Snapshot, path: str, word: Word) -> Edit | None:
    """Keep what the changes make of the arguments they are made to; None = these are not the gate's any more."""
    gate = seen.gate(path)
    if word.changes is None or gate is None or gate.status != "open" or word.digest != gate.digest:
        return None
    return edit(gate, word.changes, host.blobs, seen.run.tenant)


def _read_gate(journal: Journal, path: str) -> Snapshot:
    """Read what a decision is about; of a gate that was asked once more, also the parked step that waits for it."""
    seen = journal.read([f"GATE#{path}", f"STEP#{path}", "RUN"])
    gate = seen.gate(path)
    if gate is None or gate.token:
        return seen
    step = f"{scope_of(path)}{gate.approves}"
    return journal.read([f"GATE#{path}", f"STEP#{path}", "RUN", f"STEP#{step}", f"PARK#{step}{PAUSE}"])


def decide_word(seen: Snapshot, path: str, word: Word, now: int, changed: Edit | None = None) -> Change[Gate]:
    """Decide a decision: valid once, only on an open gate, only by who may, only for what the gate is bound to.

    ``changed`` is what the word's changes come to.
    """
    gate, step = seen.gate(path), seen.step(path)
    if gate is None or step is None:
        raise NotFound(f"The run has no open gate {path}.")
    if word.request not in {None, gate.id}:
        raise Conflict("This is asked once more for another call. Look at the newest request.", code="superseded")
    if _stands(gate, word):
        return Change(gate)
    _refuse(seen.head, gate, word, now, changed)
    changed = changed if changed and changed.arguments.digest != gate.digest else None
    gate = edited(gate, changed) if changed else gate
    if word.decision == "rejected":
        rejected = replace(gate, status="rejected", decided=now, by=word.by, note=word.note, tenant_pending=None)
        return _decided(seen, step, rejected, _told(rejected, word, changed), now)
    if voted(gate, word.by):
        return Change(gate)
    approved = with_vote(gate, word.by, word.note, now)
    data = _told(approved, word, changed)
    if approved.status == "open":
        # What was changed, everybody else is written to about once more.
        told = asked_anew(approved, word.by) if changed else approved
        note = Note("gate_edited", path, None, data) if changed else Note("gate_voted", path, None, data)
        return Change(told, (told,), (note,))
    return _decided(seen, step, approved, data, now)


def _stands(gate: Gate, word: Word) -> bool:
    """Tell whether this very word counts already: the same person's, about the same arguments."""
    if gate.status == "rejected" or word.decision == "rejected":
        return gate.status == word.decision and same_person(gate.by, word.by)
    if gate.status not in {"open", "approved"} or not (voted(gate, word.by) or same_person(gate.by, word.by)):
        return False
    if word.changes is None:
        return word.digest in {None, gate.digest}
    return is_same_edit(gate, word.digest, dict(word.changes))


def _told(gate: Gate, word: Word, changed: Edit | None) -> dict[str, Any]:
    """Return what the event of a decision says."""
    data: dict[str, Any] = {"decision": word.decision, "by": word.by, "digest": gate.digest, "note": word.note}
    if changed:
        # As text: items hold no fractions.
        data |= {"edited": changed.of, "changes": values.canonical(dict(changed.changes)).decode()}
    if gate.tiers:
        data |= {"tier": gate.tier, "roles": list(gate.roles)}
    if gate.quorum > 1:
        data |= {"quorum": gate.quorum, "approved_by": [vote["by"] for vote in gate.votes], "roles": list(gate.roles)}
    return data


def _decided(seen: Snapshot, step: Step, gate: Gate, data: Mapping[str, Any], now: int) -> Change[Gate]:
    head = replace(seen.head, waiting=seen.head.waiting - 1)
    parked = asks_again(seen, gate)
    if parked:
        return _decided_again(seen, gate, head, parked, data)
    closed, note = _closed(head, step, gate, now)
    return Change(gate, (head, closed, gate), (Note("gate_decided", gate.path, None, data), note))


def _decided_again(seen: Snapshot, gate: Gate, head: Head, parked: Step, data: Mapping[str, Any]) -> Change[Gate]:
    """Let a parked step go on whose gate was decided once more; the gate's own step has settled long ago."""
    records, notes = decided_again(seen.run, head, parked, gate)
    answer = answered(seen, parked.path, "retry" if gate.status == "approved" else "recheck")
    return Change(gate, (*records, gate, answer), (Note("gate_decided", gate.path, None, data), *notes))


def _closed(head: Head, step: Step, gate: Gate, now: int) -> tuple[Step, Note]:
    if gate.status == "approved":
        outcome = protocol.Outcome(output=protocol.decision_value(gate), by="person")
        done = protocol.finished(step, outcome, now, head.seq + 2)
        return done, completed(done)
    failure = Failure("rejected", f"Rejected by {gate.by}" + (f": {gate.note}" if gate.note else "."))
    data = {"error": {"class": "rejected", "message": failure.message[:500]}}
    failed = protocol.finished(step, protocol.Outcome(failure=failure), now, 0)
    return failed, Note("step_failed", step.path, step.attempt, data)


def _refuse(head: Head, gate: Gate, word: Word, now: int, changed: Edit | None) -> None:
    if gate.status != "open":
        raise Conflict(f"This was already decided: {gate.status} by {gate.by}.", code="already_decided")
    if head.ended or head.unwinding:
        raise Conflict(f"The run is {head.ended or head.unwinding}; nothing is left to decide.", code="run_ended")
    if now >= gate.expires:
        raise Conflict("The time to decide is over.", code="expired")
    if same_person(word.by, gate.excluded):
        raise Forbidden("Who started the run may not decide this gate.", code="initiator")
    shown = word.digest if word.changes is None else changed and changed.of
    if shown != gate.digest and (shown is not None or word.changes is not None):
        raise Conflict("What would run is not what was shown. Look at it again.", code="digest_mismatch")


def expire_again(host: Host, journal: Journal, path: str) -> bool:
    """End a gate that was asked once more, and that nobody has decided in time, as its definition says.

    No token's time-out does. Returns whether its time was over.
    """
    seen = _read_gate(journal, path)
    gate = seen.gate(path)
    if gate is None or not is_over(gate, host.clock.now()):
        return False
    plan = plan_of(host.definitions.manifest(seen.run.workflow, seen.run.version), path)

    def decide(again: Snapshot) -> Change[bool]:
        parked, records, notes = expired_again(again, path, plan, host.clock.now())
        answer = (answered(again, parked, "recheck"),) if parked else ()
        return Change(bool(parked), (*records, *answer), notes)

    over, after = journal.transact(seen, decide)
    send_word(host, after, f"{scope_of(path)}{gate.approves}")
    return over


def answer(host: Host, gate: Gate) -> bool:
    """Send a decided gate's outcome to its token: success, or a failure that leads to the cascade.

    Returns whether anybody waited for it. Where it was asked for once more, the parked step's own record answers.
    """
    if gate.status == "open" or not gate.token:
        return False
    if gate.status == "approved":
        return host.engine.succeed(gate.token, {"status": "completed", "route": ""})
    return host.engine.fail(gate.token, "Signalbox.Rejected", f"the gate was {gate.status}")
