"""How a run stops early: the mark on its head, and the machine that answers, waits, undoes and writes the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.errors import Conflict
from shared.ledger.records import Ending, Failure, Gate, Head, Step
from shared.runtime import protocol
from shared.runtime.host import COMPENSATE
from shared.runtime.journal import Change, Note, Snapshot

if TYPE_CHECKING:
    from shared.manifest import Manifest
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal
    from shared.runtime.task import Task

PATIENCE = 1800
"""Longest single wait (s) of the unwind machine before it looks again."""


REASON_BYTES = 400
"""Longest reason on the head, which stays below 1 KB whatever people write."""
BATCH = 30
"""Gates, and steps, changed in one transaction: with their events it stays below DynamoDB's 100 items."""
_ASLEEP = frozenset({"waiting", "paused", "retrying"})
UNDO_ATTEMPTS = 4
"""How often a compensation is tried before a person is asked."""


def begin(head: Head, ending: Ending, reason: str) -> tuple[Head, Note]:
    """Mark the head as unwinding towards ``ending``: nothing opens any more, what is open may still close."""
    reason = reason.encode(errors="replace")[:REASON_BYTES].decode(errors="ignore")
    note = Note("run_unwinding", None, None, {"towards": ending, "reason": reason})
    return replace(head, unwinding=ending, reason=reason), note


def request(host: Host, journal: Journal, ending: Ending, reason: str, unwind_machine: str) -> Snapshot:
    """Ask the run to end as ``ending`` and see to it that it is unwound. Raises Conflict when it has ended already."""

    def decide(seen: Snapshot) -> Change[None]:
        head = seen.head
        if head.ended:
            raise Conflict(f"The run has already ended as {head.ended}.", code="run_ended")
        if head.unwinding:
            return Change(None)
        marked, note = begin(head, ending, reason)
        return Change(None, (marked,), (note,))

    _, after = journal.transact(journal.read(["RUN"]), decide)
    start_unwinding(host, after, unwind_machine)
    return after


def start_unwinding(host: Host, seen: Snapshot, unwind_machine: str, dead: str = "") -> None:
    """Start the unwind machine for this epoch of the run; starting it again is harmless.

    ``dead`` names an execution of it that failed: the next takes another name, since a name is used once.
    """
    run, head = seen.run, seen.head
    name = f"{run.id}.{head.epoch}"
    if dead:
        generation = dead.removeprefix(name).removeprefix(".")
        name = f"{name}.{int(generation or 1) + 1}"
    host.engine.start(unwind_machine, name, execution_input(seen))


def execution_input(seen: Snapshot) -> dict[str, Any]:
    """Return an execution's input: which run it serves. It has the same size for every run."""
    run, head = seen.run, seen.head
    pin = {
        "id": run.id,
        "tenant": run.tenant,
        "workflow": run.workflow,
        "version": run.version,
        "epoch": head.epoch,
    }
    return {"run": pin, "scope": "", "routes": {}}


def unwind(host: Host, task: Task) -> dict[str, Any]:
    """Do the next thing that unwinding needs.

    Returns the action: ``wait`` with seconds, ``compensate`` with a step, or ``done``.
    """
    journal, manifest = host.journal(task), host.manifest(task)
    seen = journal.read_all()
    if seen.head.ended or not seen.head.unwinding or seen.head.epoch != task.epoch:
        return _answer("done")
    seen = _answer_all(host, journal, seen)
    if seen.head.open:
        return _answer("wait", seconds=_drain(host, journal, seen))
    if any(step.status == "unknown" and not step.settled for step in seen.steps()):
        return _answer("wait", seconds=PATIENCE)
    step = _next_compensation(seen, manifest)
    if step is None:
        _end(journal, seen, host.clock.now())
        return _answer("done")
    return _undo(journal, seen, step)


def _undo(journal: Journal, seen: Snapshot, step: Step) -> dict[str, Any]:
    """Compensate ``step``: at once, again after a pause, or, after too many failures, when a person says so."""
    undoing = seen.step(f"{step.path}{COMPENSATE}")
    if undoing is None or undoing.status == "retrying":
        return _answer("compensate", step=step.path)
    if undoing.status == "failed" and undoing.attempt < UNDO_ATTEMPTS:
        journal.transact(seen, lambda again: _undo_again(again, undoing))
        return _answer("wait", seconds=2**undoing.attempt)
    if undoing.status == "failed":
        journal.transact(seen, lambda again: _park_undo(again, undoing))
    return _answer("wait", seconds=PATIENCE)


def _undo_again(seen: Snapshot, undoing: Step) -> Change[None]:
    known = seen.step(undoing.path)
    if known is None or (known.status, known.attempt) != (undoing.status, undoing.attempt):
        return Change(None)
    return Change(None, (replace(known, status="retrying", retries=known.retries + 1),))


def _park_undo(seen: Snapshot, undoing: Step) -> Change[None]:
    known = seen.step(undoing.path)
    if known is None or known.status != "failed":
        return Change(None)
    head, parked = protocol.park(seen.head, known, "step_error")
    return Change(None, (head, parked), (Note("step_paused", known.path, known.attempt, {"reason": "step_error"}),))


def _answer(action: str, seconds: int = 0, step: str = "") -> dict[str, Any]:
    return {"action": action, "seconds": seconds, "step": step}


def _answer_all(host: Host, journal: Journal, seen: Snapshot) -> Snapshot:
    """Cancel what waits for people, then answer every registered token: each then finds the run unwinding."""
    changed = 1
    while changed:
        changed, seen = journal.transact(seen, cancel_waiting)
    for record in (*seen.gates(), *seen.parks()):
        if record.token:
            host.engine.fail(record.token, "Signalbox.Unwinding", f"the run is {seen.head.unwinding}")
    return seen


def cancel_waiting(seen: Snapshot) -> Change[int]:
    """Cancel open gates and parked steps, as many as one transaction holds; tell how many there were.

    A call that may have happened is not cancelled: what became of it is for a person to say.
    """
    gates = [gate for gate in seen.gates() if gate.status == "open"][:BATCH]
    still = [step for step in seen.steps() if not (step.open or step.settled or step.path.endswith(COMPENSATE))]
    doubtful = [step for step in still if step.status != "unknown" and _in_doubt(step)][:BATCH]
    asleep = [step for step in still if step.status in _ASLEEP and not _in_doubt(step)][: BATCH - len(doubtful)]
    if not (gates or asleep or doubtful):
        return Change(0)
    parked = sum(step.status in protocol.PARKED for step in asleep)
    head = replace(seen.head, waiting=seen.head.waiting - len(gates), paused=seen.head.paused - parked)
    records = [*(_cancelled_gate(gate) for gate in gates), *(_cancelled_step(step) for step in asleep)]
    notes = [Note("step_cancelled", step.path) for step in asleep]
    for step in doubtful:
        head, unknown = protocol.park(head, step, "unknown_outcome")
        records.append(unknown)
        notes.append(Note("step_unknown", step.path, step.attempt))
    return Change(len(records), (head, *records), tuple(notes))


def _in_doubt(step: Step) -> bool:
    """Tell whether the step's call changes something and may have happened."""
    return step.call is not None and step.call.risk != "read" and protocol.uncertain(step)


def _cancelled_gate(gate: Gate) -> Gate:
    return replace(gate, status="cancelled", tenant_pending=None)


def _cancelled_step(step: Step) -> Step:
    return replace(step, status="cancelled", settled=True)


def _drain(host: Host, journal: Journal, seen: Snapshot) -> int:
    """Give up attempts whose process is surely dead; return the seconds until the next one can be."""
    now = host.clock.now()
    dead = [step.path for step in seen.steps() if step.open and step.lease <= now][:BATCH]
    if dead:
        journal.transact(seen, lambda again: _give_up(again, dead, now))
        return 0
    leases = [step.lease for step in seen.steps() if step.open]
    return max(1, min(5, *(-(-(lease - now) // 1000) for lease in leases))) if leases else 1


def _give_up(seen: Snapshot, paths: list[str], now: int) -> Change[None]:
    """Take steps from dead processes; whether their calls happened is decided like after any other failure."""
    died = Failure("transient", "The process ended without an answer.", uncertain=True)
    head, records, notes = seen.head, list[Step](), list[Note]()
    for path in paths:
        step = seen.step(path)
        if step and step.open and step.lease <= now:
            head, freed, lost = protocol.abandon(head, step, now)
            records.append(replace(freed, status="failed", failure=died))
            notes.append(lost)
    return Change(None, (head, *records), tuple(notes))


def _next_compensation(seen: Snapshot, manifest: Manifest) -> Step | None:
    """Return the latest completed reversible step that is not undone yet; only failed and cancelled runs undo."""
    if seen.head.unwinding not in {"failed", "cancelled"}:
        return None
    done = [step for step in seen.steps() if step.status == "completed" and _undoable(step, manifest)]
    done = [step for step in done if not _settled(seen.step(f"{step.path}{COMPENSATE}"))]
    return max(done, key=lambda step: step.settled_seq or 0, default=None)


def _settled(step: Step | None) -> bool:
    return step is not None and step.settled


def _undoable(step: Step, manifest: Manifest) -> bool:
    plan = manifest.steps.get(step.step)
    return plan is not None and plan.type == "tool" and plan.risk == "reversible" and "/" not in step.path[-12:]


def _end(journal: Journal, seen: Snapshot, now: int) -> None:
    def decide(again: Snapshot) -> Change[None]:
        head = again.head
        if head.ended or not head.unwinding:
            return Change(None)
        ended = replace(head, ended=head.unwinding, ended_at=now)
        return Change(None, (ended,), (Note(f"run_{head.unwinding}", None, None, {"reason": head.reason}),))

    journal.transact(seen, decide)
