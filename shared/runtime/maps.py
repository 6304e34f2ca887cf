"""Maps: the body once for every item. Entered (the items are frozen), run by the engine, collected."""

from __future__ import annotations

import itertools
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

from shared import values
from shared.errors import PermanentFailure, StepFailure, failure_named
from shared.ledger.records import Failure, Step
from shared.runtime import protocol
from shared.runtime.host import plan_of
from shared.runtime.joins import verdict
from shared.runtime.journal import Change, Note, Snapshot
from shared.runtime.outputs import output_of
from shared.runtime.protocol import Outcome
from shared.runtime.scopes import is_part_of, order_at, part_path, range_of, stands_for
from shared.runtime.settle import settle, skip_unreached, unsettled
from shared.runtime.steps import NotOpened, check_open, record_failure, skipped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.manifest import Split, StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal
    from shared.runtime.task import Task


def enter_map(host: Host, task: Task) -> dict[str, Any]:
    """Freeze the items at the first entry. Returns ``items``, the numbers to run the body for; none when settled."""
    step = enter(host, task, split=False)
    return {"items": [] if step.settled else numbers(host, step)}


def numbers(host: Host, step: Step) -> list[int]:
    """Return the numbers of a map's items; those of a part do not begin with 0."""
    return [step.first + number for number in range(len(values.load(step.arguments, host.blobs) or []))]


def enter(host: Host, task: Task, *, split: bool) -> Step:
    """Enter the map once: freeze its items, and with ``split`` into how many parts they fall. Raises StepFailure."""
    plan, journal = plan_of(host.manifest(task), task.path), host.journal(task)
    seen = journal.read(host.keys(task, plan))
    step = seen.step(task.path)
    if step is None or step.status == "ready" or not (step.settled or step.attempt):
        step = _enter(host, task, plan, journal, seen, split=split)
    if step.settled and not stands_for(seen.run, task.path):
        settle(host, task, step)
    return step


def _enter(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot, *, split: bool) -> Step:
    fresh = seen.step(task.path) or protocol.new_step(plan, task.path, task.epoch)
    stop = protocol.stopped(seen, fresh, task)
    if stop:
        raise NotOpened(f"Map {task.path} opens nothing: {stop.why}.")
    try:
        entry = verdict(plan, task.scope, seen, host.names(task, seen))
        if entry.kind == "skip":
            return skipped(host, plan, task.path, entry.reason, journal, seen)
        items = values.load(fresh.arguments, host.blobs) if fresh.arguments else items_over(host, task, plan, seen)
        stored, now = fresh.arguments or values.store(items, host.blobs, task.tenant), host.clock.now()
    except StepFailure as failure:
        record_failure(host, task, plan, task.path, failure)
        raise
    parts = parts_of(plan.split, len(items)) if split and plan.split else 0
    frozen = replace(fresh, status="running", failure=None, attempt=1, started=now, arguments=stored, parts=parts)
    return journal.transact(seen, lambda again: _entered(again, frozen, len(items)))[0]


def items_over(host: Host, task: Task, plan: StepPlan, seen: Snapshot) -> list[Any]:
    """Return the items of a map that is about to be entered. Raises PermanentFailure."""
    items = host.names(task, seen, plan).render(plan.spec["over"])
    if not isinstance(items, list):
        raise PermanentFailure(f"Map {task.path} is over {type(items).__name__}, not over a list.")
    found = cast("list[Any]", items)
    limit = int(plan.spec["max_items"])
    if len(found) > limit:
        raise PermanentFailure(f"Map {task.path} has {len(found)} items; its machine was made for {limit} at most.")
    return found


def parts_of(how: Split, count: int) -> int:
    """Return into how many parts so many items fall; 0 = they all run in the execution itself.

    There are as many as run at once, or more where one would hold more than ``size``.
    """
    if count <= how.inline:
        return 0
    return min(count, max(how.at_once, -(-count // how.size)))


def _entered(seen: Snapshot, frozen: Step, count: int) -> Change[Step]:
    known = seen.step(frozen.path)
    if known and (known.settled or known.attempt) and known.status != "ready":
        return Change(known)
    check_open(seen)
    data = {"items": count} | ({"parts": frozen.parts} if frozen.parts else {})
    return Change(frozen, (frozen,), (Note("map_entered", frozen.path, 1, data),))


def collect_map(host: Host, task: Task) -> dict[str, Any]:
    """Close the map from its items' records: completed with every item's result, or failed by its policy.

    Raises a StepFailure of the first failed item's class, after recording it.
    """
    plan, journal = plan_of(host.manifest(task), task.path), host.journal(task)
    seen = journal.read_all()
    step = seen.step(task.path)
    if step is None or not step.settled:
        step = _collect(host, task, plan, journal, seen)
    if not stands_for(seen.run, task.path):
        settle(host, task, step)
    return {"status": step.status, "route": ""}


def _collect(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot) -> Step:
    known = seen.step(task.path)
    if known is None or seen.head.unwinding or seen.head.ended:
        raise NotOpened(f"Map {task.path} is not collected: it was not entered, or the run is ending.")
    apart = is_part_of(seen.run, task.path)
    try:
        items = results(host, task, plan, known, seen)
        if not apart:  # whether too many have failed is for the whole to judge
            check_policy(items, plan)
        output = values.store(_summary(items), host.blobs, task.tenant)
    except StepFailure as failure:
        if not apart:
            record_failure(host, task, plan, task.path, failure)
            raise
        items = all_failed(numbers(host, known), protocol.failure_of(failure))
        output = values.store(_summary(items), host.blobs, task.tenant)
    outcome, now = Outcome(output=output), host.clock.now()
    return journal.transact(seen, lambda again: protocol.settle_entered(known, outcome, now, again))[0]


def results(host: Host, task: Task, plan: StepPlan, known: Step, seen: Snapshot) -> list[dict[str, Any]]:
    """Return what became of every item, by its steps' records or by the parts that ran them."""
    if known.parts:
        return [one for part in part_paths(host, known) for one in _part_results(host, part, seen.step(part))]
    found: list[dict[str, Any]] = []
    for number in numbers(host, known):
        item = replace(task, scope=f"{task.path}[{number}]/")
        seen = skip_unreached(host, item, seen)
        found.append(_result(host, item, number, plan, seen))
    return found


def part_paths(host: Host, step: Step) -> list[str]:
    """Return the paths of a map's parts in order; all are about equally long."""
    count = len(values.load(step.arguments, host.blobs) or [])
    bounds = [count * number // step.parts for number in range(step.parts + 1)]
    return [part_path(step.path, first, end - 1) for first, end in itertools.pairwise(bounds)]


def _part_results(host: Host, path: str, part: Step | None) -> list[dict[str, Any]]:
    _, first, last = range_of(path)
    if part and part.status == "completed":
        told = items_of(output_of(part, host.blobs))
        return told or all_failed(
            range(first, last + 1), Failure("permanent", f"{path} does not say what became of it.")
        )
    if part and part.failure and part.status != "cancelled":
        return all_failed(range(first, last + 1), part.failure)
    return [
        {"index": number, "status": "cancelled", "output": None, "error": None} for number in range(first, last + 1)
    ]


def items_of(output: Any) -> list[dict[str, Any]]:
    """Return what a part of a map says of its items; nothing where a person gave it another output."""
    return cast("dict[str, Any]", output).get("items") or [] if isinstance(output, dict) else []


def all_failed(items: Iterable[int], failure: Failure) -> list[dict[str, Any]]:
    """Return that all these items have failed, by one failure."""
    return [{"index": number, "status": "failed", "output": None, "error": asdict(failure)} for number in items]


def _result(host: Host, item: Task, number: int, plan: StepPlan, seen: Snapshot) -> dict[str, Any]:
    """Return one item's result from its steps' records; ``item`` is a task in the item's scope."""
    failed = seen.step(item.scope.removesuffix("/"))
    base: dict[str, Any] = {"index": number, "output": None, "error": None}
    if failed and failed.failure:
        return {**base, "status": "failed", "error": asdict(failed.failure)}
    if unsettled(host.manifest(item), item.scope, seen):
        return {**base, "status": "cancelled"}
    status = "completed" if sinks(host, item, seen) else "skipped"
    return {**base, "status": status, "output": body_output(host, item, plan, seen)}


def sinks(host: Host, task: Task, seen: Snapshot) -> dict[str, Any]:
    """Return the outputs of the scope's last steps (those that nothing needs) that completed, by step id."""
    outputs: dict[str, Any] = {}
    for name in order_at(host.manifest(task), task.scope):
        step = seen.step(f"{task.scope}{name}")
        if step and step.status == "completed" and not plan_of(host.manifest(task), step.path).dependents:
            outputs[name] = output_of(step, host.blobs)
    return outputs


def body_output(host: Host, task: Task, plan: StepPlan, seen: Snapshot) -> Any:
    """Return what an item or iteration yields: its ``collect``, or the outputs of its last steps."""
    template = plan.spec.get("collect")
    return sinks(host, task, seen) if template is None else host.names(task, seen).render(template)


def check_policy(items: list[dict[str, Any]], plan: StepPlan) -> None:
    """Refuse a map whose items failed beyond what ``on_failure`` allows. Raises StepFailure."""
    rule: Any = plan.spec["on_failure"]
    failed = [item for item in items if item["status"] == "failed"]
    completed = sum(item["status"] == "completed" for item in items)
    wanted: int = 0 if isinstance(rule, str) else rule["quorum"]
    if rule == "collect_all" or (rule == "fail_fast" and not failed) or (wanted and completed >= wanted):
        return
    if failed:
        first = Failure(**failed[0]["error"])
        what = f"{len(failed)} of {len(items)} items failed; item {failed[0]['index']}: {first.message}"
        raise failure_named(first.error_class, what)
    raise PermanentFailure(f"{completed} items completed, {wanted} are needed.")


def _summary(items: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {status: sum(item["status"] == status for item in items) for status in ("completed", "failed")}
    return {"items": items, **counts}
