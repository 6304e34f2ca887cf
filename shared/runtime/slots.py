"""Slots: a run has at most ``max_parallel`` steps at work at once; who is ready beyond that waits for one.

The head counts the steps that are open and the slots that were given and not used yet. A slot is used by the next write
of its step: it opens, or it never will. Whoever frees a place gives it to the step with the longest way to the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.ledger.records import Park, Step, revive
from shared.runtime import protocol
from shared.runtime.host import plan_of
from shared.runtime.journal import Change
from shared.runtime.scopes import FALLBACK, closed, frame_keys, is_part, range_of, scope_of

if TYPE_CHECKING:
    from shared.manifest import Manifest
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.task import Task

SLOT = "/slot"
"""Path suffix of what is registered for a step that waits for a slot."""


def give_slots(host: Host, task: Task) -> None:
    """Give every free slot of the task's run to a step that waits for one; repeating it is harmless."""
    manifest, journal = host.manifest(task), host.journal(task)
    for park in _waiting(host, journal, manifest, task.epoch):
        path = park.path.removesuffix(SLOT)
        seen = journal.read(["RUN", park.sk, f"STEP#{path}", *frame_keys(scope_of(path.removesuffix(FALLBACK)))])
        fresh = protocol.new_step(plan_of(manifest, path), path, task.epoch)
        given, after = journal.transact(seen, lambda again, f=fresh, p=park: _give(again, f, p.path, manifest))
        if given is None:
            return
        known = after.park(park.path)
        if given and known:
            host.engine.succeed(known.token, {})


def _waiting(host: Host, journal: Journal, manifest: Manifest, epoch: int) -> list[Park]:
    """Return who waits for a slot in an epoch, the step with the longest way to the end first."""
    parks = [park for item in host.store.query(journal.pk, "PARK#") if isinstance(park := revive(item), Park)]
    waiting = [park for park in parks if park.kind == "slot" and not park.answer and park.epoch == epoch]
    return sorted(waiting, key=lambda park: (-_rank(manifest, park), park.path))


def _rank(manifest: Manifest, park: Park) -> int:
    return plan_of(manifest, park.path.removesuffix(SLOT)).slot


def _give(seen: Snapshot, fresh: Step, path: str, manifest: Manifest) -> Change[bool | None]:
    """Give one slot: True = this step has it, False = it needs none, None = there is none.

    What was registered in an earlier epoch waits no more: its step registers anew once it is reached again.
    """
    head, park, step = seen.head, seen.park(path), seen.step(fresh.path) or fresh
    if head.ended or head.unwinding:
        return Change(None)
    if park is None or park.answer or park.epoch != head.epoch or step.slot:
        return Change(result=step.slot)
    if step.settled or step.open or closed(seen, scope_of(step.path.removesuffix(FALLBACK))):
        return Change(_GIVEN, (replace(park, answer="over"),))  # it finds out for itself that nothing opens there
    if head.open + head.slots >= _places(seen, manifest):
        return Change(None)
    ready = replace(step, slot=True, status="ready" if step is fresh else step.status)
    return Change(_GIVEN, (replace(head, slots=head.slots + 1), ready, replace(park, answer="given")))


def _places(seen: Snapshot, manifest: Manifest) -> int:
    """Return how many steps of the run may be at work at once: a part leaves as many to those that run beside it."""
    part = seen.run.part
    split = plan_of(manifest, range_of(part)[0]).split if part and is_part(part) else None
    return max(1, manifest.max_parallel // split.at_once) if split else manifest.max_parallel


_GIVEN = True
