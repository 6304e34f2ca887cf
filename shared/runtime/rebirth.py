"""How a child goes on that has ended early: a sub-workflow's run, or a part, with a retry or with its resumed parent.

What it completed is neither done nor paid for again: another child would do it all once more. One transaction on both
heads, as at its birth: what the child had left is carved out of the parent's head again, as far as that still has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.budget import rules
from shared.ledger.records import Amount, Step
from shared.runtime import protocol
from shared.runtime.deadletters import redriven
from shared.runtime.epochs import kept
from shared.runtime.journal import Change, Journal, Note
from shared.runtime.notes import shown
from shared.runtime.outputs import output_of
from shared.runtime.resuming import next_epoch, void_approvals
from shared.runtime.runs import listed
from shared.runtime.scopes import is_part, range_of, whole_of
from shared.runtime.steps import NotOpened

if TYPE_CHECKING:
    from shared.ledger.records import Head, Run
    from shared.ports import Write
    from shared.runtime.host import Host
    from shared.runtime.journal import Snapshot
    from shared.runtime.task import Task


def is_to_go_on(step: Step | None) -> bool:
    """Tell whether the step has a child which has not answered it with a result, and is to be tried again.

    Either the child is of an earlier epoch, and in the present one it has not begun, though it may have been tried; or
    it has ended in this one, and the step is retried.
    """
    if step is None or step.child is None or step.settled:
        return False
    return step.started is None or step.status == "retrying"


def resume_child(host: Host, task: Task, journal: Journal, seen: Snapshot) -> Step:
    """Begin the next epoch of a step's child; one that has completed only answers. Returns the step."""
    step = seen.step(task.path)
    below = Journal(host.store, host.clock, task.tenant, step.child or "" if step else "")
    rebirth = _Rebirth(host, task, below)
    void_approvals(below, another=rebirth.is_of_another_version(seen.run))
    reborn = journal.transact(seen, rebirth.decide)[0]
    redriven(host.store, below.pk)  # before anything of its new epoch can fail: it is started after this
    return reborn


@dataclass(frozen=True, slots=True)
class _Rebirth:
    """The transaction on both heads; ``below`` is the child's run."""

    host: Host
    task: Task
    below: Journal

    def check(self, seen: Snapshot) -> None:
        """Refuse what comes of an earlier epoch, or while the run ends. Raises NotOpened."""
        step = seen.step(self.task.path)
        stop = protocol.stopped(seen, step, self.task) if step else None
        if stop:
            raise NotOpened(f"Child {self.task.path} does not go on: {stop.why}.")

    def is_of_another_version(self, parent: Run) -> bool:
        """Tell whether the child goes on with another version than it had: a part has that of its whole."""
        child = self.below.read(["RUN"]).run
        return bool(child.part) and child.version != parent.version

    def decide(self, seen: Snapshot) -> Change[Any]:
        """Let the child go on, unless it does already."""
        step = seen.step(self.task.path)
        if step is None or not is_to_go_on(step):
            return Change(step)
        self.check(seen)
        child, now = self.below.read_all(), self.host.clock.now()
        begun = {"started": step.started or now, "opened": now, "failure": None}
        waiting = replace(step, status="waiting", attempt=step.attempt + 1, **begun)
        if child.head.ended is None:
            return Change(waiting, (waiting,))
        charged = sum((step.spent for step in child.steps()), Amount())
        run = replace(child.run, charged=charged)
        if not self._is_unfinished(child):
            # What it left of its active time went back when it ended; its answer must not bring that once more.
            over = replace(child.head, active_left=None if child.head.active_left is None else 0)
            return Change(waiting, (waiting,), elsewhere=self.below.writes(child, Change(None, (over, run))))
        head = _within(next_epoch(child.head), seen.head, now)
        hold = Amount(head.left_usd or 0, head.left_tokens or 0, head.left_steps or 0)
        told = {"child": child.run.id, "epoch": head.epoch, "hold": shown(hold)}
        note = Note("child_resumed", self.task.path, waiting.attempt, told)
        above = rules.carve(seen.head, hold, head.active_left or 0)
        writes = self._writes(seen.run, child, _limited(run, child.head, head), head)
        return Change(waiting, (above, replace(waiting, hold=hold)), (note,), writes)

    def _is_unfinished(self, child: Snapshot) -> bool:
        """Tell whether something of the child is left to do: of a part that has completed, what failed in it."""
        whole = _whole(child)
        if child.head.ended != "completed" or whole is None:
            return child.head.ended != "completed"
        if not is_part(child.run.part or ""):
            return not kept(whole)
        told: dict[str, Any] = output_of(whole, self.host.blobs) or {}
        return bool(told.get("error")) or any(item["status"] != "completed" for item in told.get("items", ()))

    def _writes(self, parent: Run, child: Snapshot, run: Run, head: Head) -> tuple[Write, ...]:
        if run.part:
            run = replace(run, version=parent.version, hash=parent.hash, machine=parent.machine)
        whole = _whole(child) if is_part(run.part or "") else None
        again = (_entered(whole, run, head.epoch),) if whole else ()
        told = {"epoch": head.epoch, "by": run.parent, "version": run.version}
        note = Note("run_resumed", None, None, told | ({"entered": whole.path} if whole else {}))
        return self.below.writes(child, Change(None, (head, listed(run, head), *again), (note,)))


def _whole(child: Snapshot) -> Step | None:
    """Return the child's own record of the map or loop that it stands for, or for a range of."""
    record = child.records.get(f"STEP#{whole_of(child.run.part)}") if child.run.part else None
    return record if isinstance(record, Step) else None


def _entered(whole: Step, run: Run, epoch: int) -> Step:
    """Return that record as it was when the part began: having completed, it would be kept, with what failed in it."""
    first = range_of(run.part or "")[1]
    fresh = replace(whole, status="running", epoch=epoch, settled=False, failure=None, output=None, ended=None, by=None)
    return replace(fresh, iteration=first) if whole.type == "loop" else fresh


def _within(head: Head, parent: Head, now: int) -> Head:
    """Return the child's head with no more left than its parent has."""

    def least(own: int | None, above: int | None) -> int | None:
        return own if own is None or above is None else max(0, min(own, above))

    return replace(
        head,
        left_usd=least(head.left_usd, parent.left_usd),
        left_tokens=least(head.left_tokens, parent.left_tokens),
        left_steps=least(head.left_steps, parent.left_steps),
        active_left=least(head.active_left, rules.active_left(parent, now)),
    )


def _limited(run: Run, before: Head, after: Head) -> Run:
    """Return the child's run with the limits that follow from what it has left now."""

    def moved(limit: int | None, old: int | None, new: int | None) -> int | None:
        return None if limit is None else limit + (new or 0) - (old or 0)

    return replace(
        run,
        limit_usd=moved(run.limit_usd, before.left_usd, after.left_usd),
        limit_tokens=moved(run.limit_tokens, before.left_tokens, after.left_tokens),
        limit_steps=moved(run.limit_steps, before.left_steps, after.left_steps),
        limit_active=moved(run.limit_active, before.active_left, after.active_left),
    )
