"""After a step has settled: record the skips that follow from it, then wake the awaits that listen to it.

Both only write what is absent and send what may be sent twice, so a redelivery simply repeats them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.runtime import protocol
from shared.runtime.joins import verdict
from shared.runtime.journal import Change
from shared.runtime.scope import Scope, mentions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.ledger.records import Park, Step
    from shared.manifest import Manifest, StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.task import Task


def keys_for(plan: StepPlan, prefix: str) -> set[str]:
    """Return the sort keys that deciding about a step needs: the run, the step, its sources and mentions, its gate."""
    keys = {"RUN", f"STEP#{prefix}{plan.id}", *(f"STEP#{prefix}{name}" for name in mentions(plan))}
    return keys | ({f"GATE#{prefix}{plan.approved_by}"} if plan.approved_by else set())


def settle(host: Host, task: Task, step: Step) -> None:
    """Propagate what ``step``'s settling has made impossible, then wake who may go on."""
    manifest, journal = host.manifest(task), host.journal(task)
    settled = [step.path.removeprefix(task.scope)]
    if _may_prevent(step, manifest):
        settled += _skip_dependents(host, journal, manifest, task)
    for name in settled:
        for target in manifest.steps[name].wakes if name in manifest.steps else ():
            wake(host, task, manifest.steps[target])


def _may_prevent(step: Step, manifest: Manifest) -> bool:
    """Tell whether the settling can have made another step impossible; a plainly completed step cannot."""
    plan = manifest.steps.get(step.step)
    if plan is None or not plan.dependents:
        return False
    if step.status != "completed" or step.type in {"router", "human_gate"}:
        return True
    return any(
        edge.when for target in plan.dependents for edge in manifest.steps[target].needs if edge.source == plan.id
    )


def _skip_dependents(host: Host, journal: Journal, manifest: Manifest, task: Task) -> list[str]:
    """Record every step that has become impossible downstream of the task's step; return their ids."""
    skipped: list[str] = []
    queue = list(manifest.steps[task.step].dependents)
    while queue:
        plan = manifest.steps[queue.pop(0)]
        if plan.id not in skipped and _skip_if_impossible(host, journal, plan, task):
            skipped.append(plan.id)
            queue += plan.dependents
    return skipped


def _skip_if_impossible(host: Host, journal: Journal, plan: StepPlan, task: Task) -> bool:
    seen = journal.read(keys_for(plan, task.scope))
    path = f"{task.scope}{plan.id}"
    known = seen.step(path)
    if known and known.settled:
        return known.status == "skipped"
    now = verdict(replace(plan, when=None), task.scope, seen, Scope(seen, host.blobs, task.scope))
    if now.kind != "skip":
        return False
    step, _ = journal.transact(seen, lambda again: protocol.skip(plan, path, now.reason, host.clock.now(), again))
    return step is not None and step.status == "skipped"


def wake(host: Host, task: Task, target: StepPlan) -> None:
    """Answer the await before ``target`` if it is parked and its wait is over."""
    journal = host.journal(task)
    path = f"{task.scope}{target.id}"
    seen = journal.read({*keys_for(target, task.scope), f"PARK#{path}"})
    park = seen.park(path)
    if park and over(host, task, target, seen):
        host.engine.succeed(park.token, {})


def over(host: Host, task: Task, target: StepPlan, seen: Snapshot) -> bool:
    """Tell whether an await need not wait any longer: the step can run, or never will."""
    known = seen.step(f"{task.scope}{target.id}")
    if known and known.settled:
        return True
    plan = replace(target, when=None)
    return verdict(plan, task.scope, seen, Scope(seen, host.blobs, task.scope)).kind != "blocked"


def register(journal: Journal, park: Park, others: Iterable[str]) -> tuple[Park, Snapshot]:
    """Register a task token, unless a newer delivery has; return the valid registration and what was read after it."""

    def decide(seen: Snapshot) -> Change[Park]:
        known = seen.park(park.path)
        if known and known.entry >= park.entry:
            return Change(known)
        return Change(park, (park,))

    valid, _ = journal.transact(journal.read([park.sk]), decide)
    return valid, journal.read({park.sk, *others})
