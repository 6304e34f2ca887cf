"""Gates that are asked once more, and the word for which they mostly are: that a call in doubt did not happen.

That word is the one thing, besides undoing, that lets a call be made anew: as another *dispatch*, with another
idempotency key. An irreversible one needs another approval first, and so does a call that is not what was approved. Its
gate is opened once more for it, while the step stays where it is parked, and ends in its time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.errors import Conflict
from shared.ids import sha256
from shared.ledger.records import Failure
from shared.runtime import protocol
from shared.runtime.journal import Note
from shared.runtime.protocol import NEEDS_APPROVAL
from shared.runtime.scopes import FALLBACK, closed, scope_of
from shared.runtime.tiers import asked_anew, begun
from shared.runtime.votes import EXPIRY

if TYPE_CHECKING:
    from shared.ledger.records import Call, Gate, Head, Record, Run, Step
    from shared.manifest import StepPlan
    from shared.runtime.journal import Snapshot


def call_key(run: Run, path: str, tool: str, digest: str, dispatch: int) -> str:
    """Return the idempotency key of one dispatch of a call: the same on every attempt of it."""
    return sha256(f"{run.tenant}|{run.id}|{path}|{dispatch}|{tool}|{digest}".encode())


def request_id(run: str, path: str, *again: str) -> str:
    """Return the id of a gate's request for a decision; asked ``again``, it is another one, with other links."""
    return sha256("|".join((run, path, *again)).encode())[:16]


def dispatched_again(run: Run, path: str, call: Call) -> Call:
    """Return the ledger entry of the next dispatch of the same call."""
    following = call.dispatch + 1
    return replace(call, dispatch=following, key=call_key(run, path, call.tool, call.digest, following))


def deny(seen: Snapshot, step: Step, by: str, now: int) -> tuple[str, tuple[Record, ...], tuple[Note, ...]]:
    """Return what follows when the doubtful call of a parked step did not happen.

    That is the parked state's answer (none while an approval is asked for), the records, and the events. Raises
    Conflict when there is no doubt about any call of it.
    """
    stand_in = seen.step(f"{step.path}{FALLBACK}")
    if stand_in and protocol.in_doubt(stand_in):
        return "recheck", (seen.head, _failed(step), _failed(_anew(seen, stand_in), by)), ()
    if not protocol.in_doubt(step) or step.call is None:
        raise Conflict(f"There is no doubt about step {step.path}: it is {step.status}.", code="not_in_doubt")
    fresh = _anew(seen, step)
    if seen.head.unwinding or closed(seen, scope_of(step.path)):
        return "fail", (seen.head, _failed(fresh, by)), ()
    if step.call.risk == "irreversible":
        return ask_again(seen, fresh, now)
    return "retry", (seen.head, replace(fresh, status="retrying", retries=0, failure=None, reason=None)), ()


def _anew(seen: Snapshot, step: Step) -> Step:
    return replace(step, call=dispatched_again(seen.run, step.path, step.call) if step.call else None, probes=0)


def _failed(step: Step, by: str = "") -> Step:
    failure = Failure("transient", f"It did not happen, says {by}.") if by else step.failure
    return replace(step, status="failed", failure=failure, reason=None)


def ask_again(seen: Snapshot, step: Step, now: int) -> tuple[str, tuple[Record, ...], tuple[Note, ...]]:
    """Open the gate of a parked step once more, for its next call: what it would call with by now, if that is known.

    Returns as ``deny`` does. Raises Conflict when there is no gate.
    """
    gate = next((one for one in seen.gates() if one.approves == step.step), None)
    if gate is None:
        raise Conflict(f"Step {step.path} has no gate that could approve it again.", code="no_gate")
    gate, dispatch = _of_what_would_run(gate, step), _next_dispatch(step)
    asked = replace(
        begun(gate, now),
        id=request_id(seen.run.id, gate.path, str(seen.head.epoch), str(dispatch), str(seen.head.seq)),
        status="open",
        entry=f"{seen.head.epoch:06d}{gate.entry[6:]}",  # or a resumed run would not find what it asks
        token="",
        dispatch=dispatch,
        expires=now + (gate.timeout or gate.expires - gate.opened),
        mailed=(),
        votes=(),
        decided=None,
        by=None,
        note="",
        tenant_pending=f"TENANT#{seen.run.tenant}",
    )
    asked = asked_anew(asked)
    waiting = replace(step, status="waiting", retries=0, failure=None, reason=NEEDS_APPROVAL, proposed=None)
    head = replace(seen.head, waiting=seen.head.waiting + 1)
    data = {"approves": gate.approves, "digest": gate.digest, "roles": list(asked.roles), "dispatch": asked.dispatch}
    data |= {"expires": asked.expires}
    return "", (head, waiting, asked), (Note("gate_opened", gate.path, None, data),)


def _next_dispatch(step: Step) -> int:
    """Return the dispatch that is asked for: of the ledger entry that stands, or the one after an earlier epoch's."""
    if step.called:
        return step.called.dispatch
    return step.call.dispatch + 1 if step.call else 1


def _of_what_would_run(gate: Gate, step: Step) -> Gate:
    """Return the gate with the arguments that the step would call with, where they are not those approved before."""
    if step.proposed is None:
        return gate
    return replace(gate, arguments=step.proposed, digest=step.proposed.digest, changes=None, edited="")


def needs_approval(seen: Snapshot, step: Step) -> bool:
    """Tell whether a parked step needs a new approval to go on: its last is of something else, or was not given."""
    refused = any(one.approves == step.step and one.status not in {"open", "approved"} for one in seen.gates())
    return step.proposed is not None or (refused and step.status == "paused")


def asks_again(seen: Snapshot, gate: Gate) -> Step | None:
    """Return the step that waits, parked, for this gate to be approved once more; None for a gate of the first time."""
    step = seen.step(f"{scope_of(gate.path)}{gate.approves}") if gate.approves else None
    return step if step and step.status == "waiting" and step.reason == NEEDS_APPROVAL else None


def decided_again(run: Run, head: Head, step: Step, gate: Gate) -> tuple[tuple[Record, ...], tuple[Note, ...]]:
    """Return the records and events by which a step goes on, or fails, when its gate was decided once more."""
    if gate.status == "approved":
        return (head, replace(_as_approved(run, step, gate), status="retrying", reason=None)), ()
    failure = Failure("rejected", f"Its new approval was {gate.status} by {gate.by}.")
    failed = replace(step, status="failed", failure=failure, reason=None)
    return (head, failed), (_rejected(step, failure),)


def is_over(gate: Gate, now: int) -> bool:
    """Tell whether the time of a gate that was asked once more is over: it has no token whose time-out ends it."""
    return gate.status == "open" and not gate.token and now >= gate.expires


def expired_again(
    seen: Snapshot, path: str, plan: StepPlan, now: int
) -> tuple[str, tuple[Record, ...], tuple[Note, ...]]:
    """Return what follows when nobody has decided in time: whose step goes on, the records, and the events; or nothing.

    The step fails as rejected, unless its gate's ``on_expiry`` says that it pauses, or fails what it belongs to.
    ``approve`` rejects too: what cannot be undone is not called once more without a person.
    """
    gate = seen.gate(path)
    step = asks_again(seen, gate) if gate and is_over(gate, now) else None
    if gate is None or step is None or seen.head.ended or seen.head.unwinding:
        return "", (), ()
    expired = replace(gate, status="expired", decided=now, by=EXPIRY, tenant_pending=None)
    head, rule = replace(seen.head, waiting=seen.head.waiting - 1), plan.spec["on_expiry"]
    text = f"Nobody decided on its new approval within {plan.timeout:g} s."
    pause = "step_error" if rule == "pause" else None
    failure = Failure("rejected", text, pause=pause, final=rule == "fail")
    told = {"decision": "expired", "by": EXPIRY, **({"tier": gate.tier} if gate.tiers else {})}
    notes = (Note("gate_decided", path, None, told), _rejected(step, failure))
    return step.path, (head, replace(step, status="failed", failure=failure, reason=None), expired), notes


def _rejected(step: Step, failure: Failure) -> Note:
    error = {"class": "rejected", "message": failure.message}
    return Note("step_failed", step.path, step.attempt, {"error": error})


def _as_approved(run: Run, step: Step, gate: Gate) -> Step:
    """Return the step with the arguments that were approved: this dispatch was not made yet, so they may be others."""
    call = step.called
    if call is None or call.digest == gate.digest:
        return step
    key = call_key(run, step.path, call.tool, gate.digest, call.dispatch)
    return replace(step, arguments=gate.arguments, call=replace(call, digest=gate.digest, key=key))
