"""What the unwind machine asks for: answer who waits, wait for who works, undo, write the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.budget import rules
from shared.budget.tenant import give_back
from shared.ledger.records import Amount, Ending, Gate, Park, Step
from shared.runtime import protocol
from shared.runtime.answers import retrying
from shared.runtime.children import answer_parent, is_late, living, patience, stop_child
from shared.runtime.ending import UNWINDING, begin, start_unwinding
from shared.runtime.journal import Change, Journal, Note, Snapshot
from shared.runtime.notes import shown
from shared.runtime.probing import next_probe
from shared.runtime.proposals import is_proposed
from shared.runtime.scopes import COMPENSATE, FALLBACK, PAUSE, is_apart
from shared.runtime.settle import register

if TYPE_CHECKING:
    from shared.runtime.host import Host
    from shared.runtime.task import Task

LONGEST_CHILD_PAUSE = 60_000
"""Longest pause (ms) before looking again whether a child run has ended."""
PATIENCE = 300
"""Longest single wait (s) of the unwind machine for a probe: a person may say sooner what became of the call."""
BATCH = 30
"""Gates, and steps, changed in one transaction: with their events it stays below DynamoDB's 100 items."""
_ASLEEP = frozenset({"ready", "waiting", "paused", "retrying"})
UNDO_ATTEMPTS = 4
"""How often a compensation is tried before a person is asked."""


def unwind(host: Host, task: Task, unwind_machine: str) -> dict[str, Any]:
    """Do the next thing that unwinding needs.

    Returns the action: ``wait`` with seconds, ``compensate`` or ``probe`` with a step, ``word`` when only a person can
    say how it goes on, or ``done``.
    """
    journal = host.journal(task)
    seen = journal.read_all()
    if seen.head.ended or not seen.head.unwinding or seen.head.epoch != task.epoch:
        answer_parent(host, task.tenant, task.run)
        return _answer("done")
    seen = _answer_all(host, journal, seen)
    standing = _still_open(host, journal, seen, unwind_machine)
    if standing:
        return standing
    step = _next_compensation(seen)
    if step is None:
        _end(host, journal, seen)
        answer_parent(host, task.tenant, task.run)
        return _answer("done")
    if step.child:
        seconds = _undo_child(host, journal, seen, step, unwind_machine)
        return _answer("word") if needs_word(host, seen) else _answer("wait", seconds=seconds)
    return _undo(journal, seen, step)


def _still_open(host: Host, journal: Journal, seen: Snapshot, unwind_machine: str) -> dict[str, Any] | None:
    """Return what is to be done while children, attempts or doubts are open; None = nothing is."""
    if end_children(host, seen, "", "cancelled", unwind_machine):
        word = needs_word(host, seen)
        return _answer("word") if word else _answer("wait", seconds=_until_child(host, journal, seen))
    if seen.head.open:
        return _answer("wait", seconds=_drain(host, journal, seen))
    return _ask(host, seen) if _in_doubt(seen) else None


def _in_doubt(seen: Snapshot) -> bool:
    return any(step.status == "unknown" and not step.settled for step in seen.steps())


def _until_child(host: Host, journal: Journal, seen: Snapshot) -> int:
    """Return the pause (s) before looking at children again, the longer the longer ago this run's last event is."""
    last = journal.events(after=seen.head.seq - 1, limit=1)[0]
    return int(patience(last.at, host.clock.now(), LONGEST_CHILD_PAUSE)) // 1000


def _ask(host: Host, seen: Snapshot) -> dict[str, Any]:
    """Have the far side say what became of a call, where the definition tells how; else wait for a person's word."""
    found = next_probe(host.definitions.manifest(seen.run.workflow, seen.run.version), seen, host.clock.now())
    if found is None:
        return _answer("word")
    step, pause = found
    return _answer("wait", seconds=min(PATIENCE, -(-pause // 1000))) if pause else _answer("probe", step=step.path)


def _undo(journal: Journal, seen: Snapshot, step: Step) -> dict[str, Any]:
    """Compensate ``step``: at once, again after a pause, or, after too many failures, when a person says so."""
    undoing = seen.step(f"{step.path}{COMPENSATE}")
    if undoing is None or undoing.status in {"ready", "retrying"}:
        return _answer("compensate", step=step.path)
    tries = _tries(undoing)
    if undoing.status == "failed" and tries < UNDO_ATTEMPTS:
        journal.transact(seen, lambda again: _undo_again(again, undoing))
        return _answer("wait", seconds=2**tries)
    if undoing.status == "failed":
        journal.transact(seen, lambda again: _park_undo(again, undoing))
    return _answer("word")


def _tries(undoing: Step) -> int:
    """Return how often a compensation has been tried, also where it failed before it opened."""
    return max(undoing.attempt, undoing.retries + 1)


def await_word(host: Host, task: Task) -> None:
    """Park until a person has said how the unwinding goes on, or answer at once when it can go on already."""
    park = Park(path=UNWINDING, kind="unwinding", token=task.token, entry=task.entry)
    journal = host.journal(task)
    valid, _ = register(journal, park, [])
    if not needs_word(host, journal.read_all()):
        host.engine.succeed(valid.token, {})


def needs_word(host: Host, seen: Snapshot) -> bool:
    """Tell whether a run that unwinds waits for a person, and for nothing else; its children's end wakes it as well."""
    if seen.head.ended or not seen.head.unwinding or seen.head.open:
        return False
    if alive := [step for step in seen.steps() if living(step)]:
        return all(needs_word(host, _below(host, seen, step).read_all()) for step in alive)
    if _in_doubt(seen):
        return _ask(host, seen)["action"] == "word"
    step = _next_compensation(seen)
    if step and step.child:
        return needs_word(host, _below(host, seen, step).read_all())
    undoing = seen.step(f"{step.path}{COMPENSATE}") if step else None
    return undoing is not None and undoing.status in protocol.PARKED


def _below(host: Host, seen: Snapshot, step: Step) -> Journal:
    return Journal(host.store, host.clock, seen.run.tenant, step.child or "")


def _undo_again(seen: Snapshot, undoing: Step) -> Change[None]:
    known = seen.step(undoing.path)
    if known is None or (known.status, known.attempt) != (undoing.status, undoing.attempt):
        return Change(None)
    again = replace(known, status="retrying", retries=known.retries + 1)
    kind = known.failure.error_class if known.failure else "transient"
    return Change(None, (again,), (retrying(again, kind, 1000 * 2 ** _tries(known)),))


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
    _send(host, seen, "", f"the run is {seen.head.unwinding}")
    return seen


def close_scope(host: Host, journal: Journal, prefix: str, unwind_machine: str) -> None:
    """Cancel what waits inside a failed item or container (paths under ``prefix``) and answer its tokens."""
    changed, seen = 1, journal.read_all()
    while changed:
        changed, seen = journal.transact(seen, lambda again: cancel_waiting(again, prefix))
    _send(host, seen, prefix, "the item has failed")
    end_children(host, seen, prefix, "cancelled", unwind_machine)


def stop_parts(host: Host, journal: Journal, whole: str, unwind_machine: str) -> None:
    """Close the other parts of a map whose first failure is enough; nothing to do for any other map or loop."""
    record = journal.read([f"STEP#{whole}"]).step(whole)
    if record and record.failure:
        close_scope(host, journal, f"{whole}[", unwind_machine)


def _send(host: Host, seen: Snapshot, prefix: str, why: str) -> None:
    """Answer every token under ``prefix`` so that its state goes on: it then finds that nothing opens any more."""
    for gate in seen.gates():
        if gate.token and gate.path.startswith(prefix):
            host.engine.fail(gate.token, "Signalbox.Unwinding", why)
    for park in seen.parks():
        if park.kind == "unwinding":
            continue
        if park.token and park.path.startswith(prefix) and not (prefix and _keeps(seen, park)):
            _release(host, park, why)


def _keeps(seen: Snapshot, park: Park) -> bool:
    """Tell whether an item that has failed still waits here: for a person's word on a call, or for its child's end.

    When a whole run ends, its unwinding waits for both.
    """
    step = seen.step(park.path.removesuffix(PAUSE))
    return step is not None and (protocol.in_doubt(step) if park.kind == "pause" else living(step))


def _release(host: Host, park: Park, why: str) -> None:
    if park.kind in {"await", "slot"}:
        host.engine.succeed(park.token, {})
    elif park.kind == "pause":
        host.engine.succeed(park.token, {"action": "fail", "seconds": 0})
    else:
        host.engine.fail(park.token, "Signalbox.Unwinding", why)


def cancel_waiting(seen: Snapshot, prefix: str = "") -> Change[int]:
    """Cancel open gates and parked steps under ``prefix``, as many as one transaction holds; tell how many.

    A call that may have happened is not cancelled: what became of it is for a person to say.
    """
    gates = [gate for gate in seen.gates() if gate.status == "open" and gate.path.startswith(prefix)][:BATCH]
    still = [step for step in seen.steps() if step.path.startswith(prefix) and _unfinished(step, seen)]
    doubtful = [step for step in still if step.status != "unknown" and protocol.in_doubt(step)][:BATCH]
    asleep = [step for step in still if step.status in _ASLEEP and not protocol.in_doubt(step)]
    asleep = asleep[: BATCH - len(doubtful)]
    if not (gates or asleep or doubtful):
        return Change(0)
    parked = sum(step.status in protocol.PARKED for step in asleep)
    head = replace(seen.head, waiting=seen.head.waiting - len(gates), paused=seen.head.paused - parked)
    records = [*(_cancelled_gate(gate) for gate in gates), *(_cancelled_step(step) for step in asleep)]
    notes = [Note("step_cancelled", step.path) for step in asleep]
    paths = {step.path for step in asleep}
    notes += [Note("gate_cancelled", gate.path) for gate in gates if gate.path not in paths]
    for step in doubtful:
        head, unknown = protocol.park(head, step, "unknown_outcome")
        records.append(unknown)
        notes.append(Note("step_unknown", step.path, step.attempt))
    return Change(len(records), (head, *records), tuple(notes))


def _unfinished(step: Step, seen: Snapshot) -> bool:
    """Tell whether the step is neither under way nor over. Children end by themselves, compensations must not end.

    What became of a fallback's call is asked together with its step's.
    """
    if step.open or step.settled or living(step) or step.path.endswith(COMPENSATE):
        return False
    if step.status == "ready" and not (step.slot or is_proposed(step)):
        return False  # nothing has happened to it, or only in an earlier epoch
    beside = seen.step(step.path.removesuffix(FALLBACK))
    return beside is None or beside.path == step.path or beside.status != "unknown"


def _cancelled_gate(gate: Gate) -> Gate:
    return replace(gate, status="cancelled", tenant_pending=None)


def _cancelled_step(step: Step) -> Step:
    return replace(step, status="cancelled", settled=True)


def end_children(host: Host, seen: Snapshot, prefix: str, ending: Ending, unwind_machine: str) -> bool:
    """Ask the children of waiting sub-workflows and parts under ``prefix`` to end. Returns whether one still goes on.

    A part ends as its whole does. Where that goes on after a failed map, what the part did stands.
    """
    apart = seen.head.unwinding or "stopped"
    alive = [step for step in seen.steps() if living(step) and step.path.startswith(prefix)]
    why = f"its parent run {seen.run.id} ends"
    ended = [stop_child(host, seen, step, apart if is_apart(step) else ending, why, unwind_machine) for step in alive]
    return not all(ended)


def _drain(host: Host, journal: Journal, seen: Snapshot) -> int:
    """Give up attempts whose process is surely dead; return the seconds until the next one can be."""
    now = host.clock.now()
    over = [step for step in seen.steps() if step.open and step.lease <= now]
    dead = [step.path for step in over if not _may_happen(host, step)][:BATCH]
    if dead:
        journal.transact(seen, lambda again: _give_up(again, dead, now))
        return 0
    leases = [step.lease for step in seen.steps() if step.open]
    return max(1, min(5, *(-(-(lease - now) // 1000) for lease in leases))) if leases else 1


def _may_happen(host: Host, step: Step) -> bool:
    """Tell whether a call that changes something is still under way, although its time is over."""
    return step.changes_something and host.engine.works(step.holder or "")


def _give_up(seen: Snapshot, paths: list[str], now: int) -> Change[None]:
    """Take steps from dead processes; whether their calls happened is decided like after any other failure."""
    head, records, notes = seen.head, list[Step](), list[Note]()
    for path in paths:
        step = seen.step(path)
        if step and step.open and step.lease <= now:
            head, freed, lost = protocol.abandon(head, step, now)
            records.append(replace(freed, status="failed"))
            notes.append(lost)
    return Change(None, (head, *records), tuple(notes))


def _next_compensation(seen: Snapshot) -> Step | None:
    """Return the latest completed reversible step that is not undone yet; only failed and cancelled runs undo."""
    if seen.head.unwinding not in {"failed", "cancelled"}:
        return None
    done = [step for step in seen.steps() if _to_undo(step)]
    done = [step for step in done if not _settled(seen.step(f"{step.path}{COMPENSATE}"))]
    return max(done, key=lambda step: step.settled_seq or 0, default=None)


def _undo_child(host: Host, journal: Journal, seen: Snapshot, step: Step, unwind_machine: str) -> int:
    """Have a child of the run undo what it did; returns the seconds to wait before looking again.

    Its run then ends once more, as its parent does.
    """
    ending = seen.head.unwinding or "failed"
    reason = f"the run {seen.run.id} that it is {'a part' if is_apart(step) else 'a child'} of ends"
    below = _below(host, seen, step)
    known = below.read_all()
    if known.head.ended in _KEPT and any(map(_to_undo, known.steps())):
        _, known = below.transact(known, lambda again: _reopened(again, ending, reason, late=is_late(host, seen, step)))
    if known.head.ended:
        undid = _undone_with_child(step) and any(inside.status == "compensated" for inside in known.steps())
        total = sum((inside.spent for inside in known.steps()), Amount())
        journal.transact(seen, lambda again: _undone(again, step.path, total, undid=undid))
        return 0
    # Another name than that of an execution which has unwound it before.
    start_unwinding(host, known, unwind_machine, dead=f"{known.run.id}.{known.head.epoch}.{UNDOING}")
    return _until_child(host, journal, seen)


UNDOING = 99
"""Generation of the execution before that which undoes a child; nothing dies so often."""


def _undone_with_child(step: Step) -> bool:
    """Tell whether a step is undone with its child: not a sub-workflow that had failed and undone itself before."""
    return is_apart(step) or (step.status == "completed" and step.by == "step")


def _undone(seen: Snapshot, path: str, total: Amount, *, undid: bool) -> Change[None]:
    """Record that a child has been undone, and charge what that has cost: it has used ``total`` by now."""
    step = seen.step(path)
    if step is None or step.undone == step.child or seen.head.ended:
        return Change(None)
    used = Amount(*(max(0, now - before) for now, before in zip(_parts(total), _parts(step.spent), strict=True)))
    fresh = replace(step, undone=step.child, spent=step.spent + used)
    head, told = rules.give_back(seen.head, Amount(), used, 0), {"used": shown(used)} if used != Amount() else {}
    if not undid:  # it had failed or timed out, and stays so
        return Change(None, (head, fresh), (Note("child_undone", path, None, told),) if told else ())
    fresh = replace(fresh, status="compensated", epoch=seen.head.epoch)
    return Change(
        None, (head, fresh, *protocol.undone_around(path, seen)), (Note("step_compensated", path, None, told),)
    )


def _parts(amount: Amount) -> tuple[int, int, int]:
    return amount.usd, amount.tokens, amount.steps


_KEPT = frozenset({"completed", "stopped", "timed_out"})
"""Endings of a child that undo nothing."""


def _reopened(seen: Snapshot, ending: Ending, reason: str, *, late: bool) -> Change[None]:
    if seen.head.ended not in _KEPT or late:
        return Change(None)
    head, note = begin(replace(seen.head, ended=None, ended_at=None), ending, reason)
    return Change(None, (head,), (note,))


def _settled(step: Step | None) -> bool:
    return step is not None and step.settled


def _to_undo(step: Step) -> bool:
    if step.child:
        return step.undone != step.child
    return step.status == "completed" and _undoable(step)


def _undoable(step: Step) -> bool:
    """Tell whether the step did what can be undone. Where a fallback stood in, its own call had not happened."""
    done = step.by != "fallback" and not step.path.endswith(COMPENSATE)
    return done and step.call is not None and step.call.risk == "reversible"


def _end(host: Host, journal: Journal, seen: Snapshot) -> None:
    def decide(again: Snapshot) -> Change[None]:
        head = again.head
        if head.ended or not head.unwinding:
            return Change(None)
        ended = replace(head, ended=head.unwinding, ended_at=host.clock.now())
        run, back = give_back(host.store, again.run, ended)
        return Change(None, (ended, *run), (Note(f"run_{head.unwinding}", None, None, {"reason": head.reason}),), back)

    journal.transact(seen, decide)
