"""After a step has settled: record the skips that follow from it, then wake the awaits that listen to it.

Both only write what is absent and send what may be sent twice, so a redelivery simply repeats them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.runtime import protocol
from shared.runtime.joins import foreseen
from shared.runtime.journal import Change
from shared.runtime.memo import Memo
from shared.runtime.scopes import AWAIT, graph_at, order_at
from shared.runtime.slots import give_slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.ledger.records import Park, Step
    from shared.manifest import Edge, Manifest, StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.task import Task

_CONDITIONAL: Memo[bool] = Memo()
"""Whether any edge from a step has a condition."""


def settle(host: Host, task: Task, step: Step) -> None:
    """Propagate what ``step``'s settling has made impossible, then wake who may go on."""
    manifest = host.manifest(task)
    graph = graph_at(manifest, task.scope)
    settled = [step.path.removeprefix(task.scope)]
    if _may_prevent(step, graph):
        settled += _skip_dependents(host, task, graph, step.step)
    for name in settled:
        for target in graph[name].wakes if name in graph else ():
            wake(host, task, graph[target])
    if manifest.slots:
        give_slots(host, task)


def _may_prevent(step: Step, graph: Mapping[str, StepPlan]) -> bool:
    """Tell whether the settling can have made another step impossible; a plainly completed step cannot."""
    plan = graph.get(step.step)
    if plan is None or not plan.dependents:
        return False
    if step.status != "completed" or step.type in {"router", "human_gate"}:
        return True
    return _CONDITIONAL.of(plan, "", lambda: any(edge.when for edge in _edges_from(plan, graph)))


def _edges_from(plan: StepPlan, graph: Mapping[str, StepPlan]) -> list[Edge]:
    return [edge for target in plan.dependents for edge in graph[target].needs if edge.source == plan.id]


def _skip_dependents(host: Host, task: Task, graph: Mapping[str, StepPlan], settled: str) -> list[str]:
    """Record every step that has become impossible downstream of the settled one; return their ids."""
    skipped: list[str] = []
    queue = list(graph[settled].dependents)
    while queue:
        plan = graph[queue.pop(0)]
        if plan.id not in skipped and _skip_if_impossible(host, task, plan):
            skipped.append(plan.id)
            queue += plan.dependents
    return skipped


def _skip_if_impossible(host: Host, task: Task, plan: StepPlan) -> bool:
    journal = host.journal(task)
    seen = journal.read(host.keys(task, plan))
    path = f"{task.scope}{plan.id}"
    known = seen.step(path)
    if known and known.settled:
        return known.status == "skipped"
    now = foreseen(plan, task.scope, seen, host.names(task, seen))
    if now.kind != "skip":
        return False
    step, _ = journal.transact(seen, lambda again: protocol.skip(plan, path, now.reason, host.clock.now(), again))
    return step is not None and step.status == "skipped"


def wake(host: Host, task: Task, target: StepPlan) -> None:
    """Answer the await before ``target`` if it is parked and its wait is over."""
    journal = host.journal(task)
    path = f"{task.scope}{target.id}"
    seen = journal.read({*host.keys(task, target), f"PARK#{path}{AWAIT}"})
    park = seen.park(f"{path}{AWAIT}")
    if park and over(host, task, target, seen):
        host.engine.succeed(park.token, {})


def over(host: Host, task: Task, target: StepPlan, seen: Snapshot) -> bool:
    """Tell whether an await need not wait any longer: the step can run, or never will."""
    known = seen.step(f"{task.scope}{target.id}")
    if known and known.settled:
        return True
    return foreseen(target, task.scope, seen, host.names(task, seen)).kind != "blocked"


def register(journal: Journal, park: Park, others: Iterable[str]) -> tuple[Park, Snapshot]:
    """Register a task token, unless a newer delivery has; return the valid registration and what was read after it."""

    def decide(seen: Snapshot) -> Change[Park]:
        known = seen.park(park.path)
        if known and known.entry >= park.entry:
            return Change(known)
        return Change(park, (park,))

    valid, _ = journal.transact(journal.read([park.sk]), decide)
    return valid, journal.read({park.sk, *others})


def unsettled(manifest: Manifest, scope: str, seen: Snapshot) -> list[str]:
    """Return the steps of a scope's graph that have not settled."""
    steps = {name: seen.step(f"{scope}{name}") for name in order_at(manifest, scope)}
    return [name for name, step in steps.items() if step is None or not step.settled]


def skip_unreached(host: Host, task: Task, seen: Snapshot) -> Snapshot:
    """Record the skip of every step of the task's scope that was never reached and never will be.

    ``seen`` holds all records of the run; so does the snapshot that is returned.
    """
    journal, graph, now = host.journal(task), graph_at(host.manifest(task), task.scope), host.clock.now()
    for name in unsettled(host.manifest(task), task.scope, seen):
        plan, path = graph[name], f"{task.scope}{name}"
        found = foreseen(plan, task.scope, seen, host.names(task, seen))
        if found.kind == "skip":
            seen = _skip(journal, seen, plan, path, found.reason, now)
    return seen


def _skip(journal: Journal, seen: Snapshot, plan: StepPlan, path: str, reason: str, now: int) -> Snapshot:
    return journal.transact(seen, lambda again: protocol.skip(plan, path, reason, now, again))[1]
