"""Resume of a run that ended early: another epoch of it, in which nothing completed is paid again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shared.budget.tenant import take
from shared.errors import Conflict, PermanentFailure
from shared.ids import key_digest
from shared.ledger.records import Gate, Head, Record, Step
from shared.runtime.deadletters import redriven
from shared.runtime.epochs import kept
from shared.runtime.host import plan_of
from shared.runtime.journal import Change, Note
from shared.runtime.outputs import fits
from shared.runtime.raising import raised_whole
from shared.runtime.runs import execute, listed
from shared.runtime.scopes import COMPENSATE, has_turns, scope_of
from shared.values import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.manifest import Manifest, StepPlan
    from shared.runtime.host import Host, Published
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.raising import Raise

BATCH = 30
"""Approvals that are made void in one transaction: three items each, of 100 that DynamoDB takes."""
_SAME = ("type", "needs", "join", "when", "merge", "output", "risk", "approved_by", "spec")
"""What of a completed step's plan another version may not change: its result would be another one."""

_SHOWN = 5
"""Differences that one message names."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Who resumes a run, with which version (None = the one that it has had so far), and with how much more.

    ``key`` = the caller's own name for this request: repeated with it, it resumes nothing twice.
    """

    by: str
    version: Published | None = None
    more: Raise | None = None
    key: str | None = None


def resume_run(host: Host, journal: Journal, asked: Resume) -> Snapshot:
    """Begin the next epoch of a run that has ended early, and start its execution.

    Completed steps stay; the rest is recomputed. Approvals of steps that were called, and have to run again, are asked
    for anew. Raises NotFound, also when its version was pruned, or Conflict: it has not ended, has completed, is
    another run's child, or the version that was asked for would change what has been done.
    """
    seen = journal.read_all()
    if _is_repeated(journal, seen, asked):
        if not seen.head.ended:
            execute(host, seen)
        return seen
    _refuse(seen)
    if asked.version:
        _check_version(host, seen, asked.version)
    else:
        host.definitions.published(seen.run.workflow, seen.run.version)  # refused when it was pruned
    another = asked.version is not None and asked.version.version != seen.run.version
    _, after = journal.transact(
        void_approvals(journal, another=another), lambda again: decide_epoch(host, again, asked)
    )
    redriven(host.store, journal.pk)  # before anything of the new epoch can fail
    execute(host, after)
    return after


def _is_repeated(journal: Journal, seen: Snapshot, asked: Resume) -> bool:
    """Tell whether this request has begun an epoch of the run: its caller did not hear of it."""
    if asked.key is None or seen.head.epoch == 1:
        return False
    begun = (event for event in journal.events() if event.type == "run_resumed")
    return any(event.data.get("key") == key_digest(asked.key) for event in begun)


def _refuse(seen: Snapshot) -> None:
    head, run = seen.head, seen.run
    if head.ended is None:
        what = f"is ending as {head.unwinding}; wait for that" if head.unwinding else f"is {head.state}, not ended"
        raise Conflict(f"The run {what}. A paused step is resumed by its name.", code="not_ended")
    if head.ended == "completed":
        raise Conflict("The run has completed; there is nothing to resume. Start a new one.", code="completed")
    if run.parent:
        parent = run.parent.split("|", 1)[0]
        raise Conflict(f"This run is a child of {parent}. Resume that: its children go on with it.", code="is_child")


def decide_epoch(host: Host, seen: Snapshot, asked: Resume) -> Change[None]:
    """Decide the beginning of the next epoch, on all records of a run that has ended.

    What the run has left of its limits, with what is added to them, is taken out of its tenant's budget again. Raises
    TenantBudgetExceeded.
    """
    _refuse(seen)
    head, run = next_epoch(seen.head), seen.run
    if asked.version:
        pin = asked.version
        run = replace(run, version=pin.version, hash=pin.hash, machine=pin.machine)
    if asked.more:
        run, head = raised_whole(run, head, asked.more.amounts)
    taken = take(host.store, run, head, host.clock.now())
    data = {"epoch": head.epoch, "by": asked.by, "version": run.version, "ended": seen.head.ended}
    data |= {"raised": asked.more.amounts} if asked.more else {}
    data |= {"key": key_digest(asked.key)} if asked.key else {}
    return Change(None, (head, listed(taken.run, head)), (Note("run_resumed", None, None, data),), taken.writes)


def next_epoch(head: Head) -> Head:
    """Return the head with which the next epoch begins: nothing is open, waits, or is being ended."""
    return replace(
        head,
        epoch=head.epoch + 1,
        began=head.seq + 1,
        open=0,
        paused=0,
        waiting=0,
        slots=0,
        active_deadline=None,
        unwinding=None,
        reason=None,
        ended=None,
        ended_at=None,
    )


# --- approvals: each covers one call -------------------------------------------------------------------------------


def void_approvals(journal: Journal, *, another: bool = False) -> Snapshot:
    """Make void, in a run that has ended, the approvals of steps that were called and have no result.

    Another call needs another approval. So does every call with ``another`` version, since what was approved was that
    of the version so far, and every call once something was undone: it runs again, and what is made of its results may
    be another call then. Returns all records of the run.
    """
    seen = journal.read_all()
    another = another or any(step.status == "compensated" for step in seen.steps())
    while seen.head.ended and _spent(seen, another=another):
        _, seen = journal.transact(seen, lambda again: _make_void(again, another=another))
    return seen


def _spent(seen: Snapshot, *, another: bool) -> list[Gate]:
    asked = [gate for gate in seen.gates() if gate.approves]
    return [gate for gate in asked if _is_lost(seen, gate) or _is_given_in_vain(seen, gate, another=another)]


def _is_lost(seen: Snapshot, gate: Gate) -> bool:
    """Tell whether a gate that was approved once was asked again in vain, so that its own step has completed."""
    step, approved = seen.records.get(f"STEP#{gate.path}"), seen.records.get(_approved(gate))
    done = isinstance(approved, Step) and kept(approved)
    return gate.status != "approved" and isinstance(step, Step) and kept(step) and not done


def _is_given_in_vain(seen: Snapshot, gate: Gate, *, another: bool) -> bool:
    return gate.status == "approved" and _is_void(seen.records.get(_approved(gate)), another=another)


def _approved(gate: Gate) -> str:
    return f"STEP#{scope_of(gate.path)}{gate.approves}"


def _is_void(step: Record | None, *, another: bool) -> bool:
    if not isinstance(step, Step):
        return another
    called = step.call is not None and step.given_up is None  # one that was given up is not made anew
    return not kept(step) and (another or called)


def _make_void(seen: Snapshot, *, another: bool) -> Change[None]:
    records, notes = list[Record](), list[Note]()
    for gate in _spent(seen, another=another)[:BATCH] if seen.head.ended else ():
        step = seen.step(gate.path)
        records += [replace(gate, status="cancelled"), *([replace(step, status="cancelled")] if step else [])]
        notes.append(Note("step_cancelled", gate.path))
    return Change(None, tuple(records), tuple(notes))


# --- another version -----------------------------------------------------------------------------------------------


def _check_version(host: Host, seen: Snapshot, wanted: Published) -> None:
    """Refuse a version that would change what has been done. Raises Conflict with every difference."""
    if wanted.workflow != seen.run.workflow:
        raise Conflict(f"The run is one of {seen.run.workflow}, not of {wanted.workflow}.", code="incompatible")
    old = host.definitions.manifest(seen.run.workflow, seen.run.version)
    told = list(differences(old, wanted.manifest, seen))
    wrong = fits(load(seen.run.input, host.blobs), wanted.manifest.input)
    told += [f"the run's input does not fit at {wrong}"] if wrong else []
    if told:
        what = "; ".join(told[:_SHOWN]) + (f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else "")
        raise Conflict(
            f"Version {wanted.version} cannot go on with this run: {what}. Resume with its own version, or start anew.",
            code="incompatible",
        )


def differences(old: Manifest, new: Manifest, seen: Snapshot) -> Iterator[str]:
    """Yield how ``new`` differs in what this run has completed or frozen."""
    for step in sorted(seen.steps(), key=lambda one: one.path):
        if step.path.endswith(COMPENSATE) or step.type in {"item", "part"}:
            continue
        if kept(step) or step.given_up or _is_bound(step, seen):
            tool = step.tool or ""
            yield from _changes(step.path, plan_of(old, step.path, tool), _found(new, step.path, tool))


def _is_bound(step: Step, seen: Snapshot) -> bool:
    """Tell whether a step that runs anew goes by what was frozen before: a map's items, an agent's turns and calls."""
    if step.type == "turns":
        return has_turns(step, seen)
    return step.tool is not None or (step.type == "map" and step.arguments is not None)


def _found(manifest: Manifest, path: str, tool: str) -> StepPlan | None:
    try:
        return plan_of(manifest, path, tool)
    except (PermanentFailure, KeyError):  # no such step, or no fallback of it
        return None


def _changes(path: str, old: StepPlan, new: StepPlan | None) -> Iterator[str]:
    if new is None:
        yield f"step {path} is gone"
        return
    changed = [name for name in _SAME if getattr(old, name) != getattr(new, name)]
    if changed:
        yield f"{', '.join(changed)} of step {path} changed"
