"""Scopes: where a step instance stands inside maps and loops, and what is in force there.

A scope is the path prefix of its instances: ``""`` for the workflow's own steps, ``each[17]/`` for the body of the
map's item 17, ``each[17]/revise[2]/`` for the loop's second iteration inside it. The *container* of ``each[17]/`` is
the step ``each``; its *item* is ``each[17]``, whose record exists once the item has failed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from shared.errors import PermanentFailure
from shared.ledger.records import UNDOING, Failure, Step
from shared.manifest import ALONE
from shared.runtime.journal import Note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Run
    from shared.manifest import Manifest, StepPlan
    from shared.runtime.journal import Snapshot

COMPENSATE, FALLBACK = UNDOING, "/fallback"
"""What stands beside a step, at its path and this: the undoing of its call, its stand-in."""
AWAIT, PAUSE = "/await", "/pause"
"""Under which a token is registered before the step begins, and while it is paused; its own stands at its path."""
_SEGMENT = re.compile(r"([a-z][a-z0-9_]*)\[(\d+)\]")
_TURN = re.compile(r"(?<!\])/turn\[(\d+)\]")
_RANGE = re.compile(r"(.+)\[(\d+)-(\d+)\]")


@lru_cache(maxsize=4096)
def enclosing(scope: str) -> tuple[str, ...]:
    """Return the scope and all that enclose it, outermost (``""``) first."""
    parts = scope.split("/")[:-1]
    return tuple("".join(f"{part}/" for part in parts[:count]) for count in range(len(parts) + 1))


def item_of(scope: str) -> str:
    """Return the path of the item or iteration that a scope is the body of; empty for the workflow's own."""
    return scope.removesuffix("/")


def container_of(scope: str) -> str:
    """Return the path of the map or loop that a scope belongs to; empty for the workflow's own."""
    return item_of(scope).rpartition("[")[0]


def number_of(scope: str) -> int:
    """Return the number of the item (from 0) or iteration (from 1) that a scope is the body of."""
    return int(item_of(scope).rpartition("[")[2][:-1])


def scope_of(path: str) -> str:
    """Return the scope that a step instance stands in; turns and calls stand in that of their agent."""
    agent = split_turn(path)[0]
    return agent[: agent.rfind("/") + 1]


def split_turn(path: str) -> tuple[str, str]:
    """Return the agent that a turn or a call belongs to, and what stands behind it: ``/turn[3]/call[0]``.

    Of every other step, its own path and nothing.
    """
    found = _TURN.search(path) if "/turn[" in path else None
    return (path[: found.start()], path[found.start() :]) if found else (path, "")


def turn_path(agent: str, number: int) -> str:
    """Return the path of an agent's turn, counted from 1."""
    return f"{agent}/turn[{number}]"


def turn_number(path: str) -> int:
    """Return the number of the turn that a path names or stands in. Raises PermanentFailure."""
    found = _TURN.search(path)
    if found is None:
        raise PermanentFailure(f"{path} is no turn of an agent.")
    return int(found[1])


def has_turns(agent: Step, seen: Snapshot) -> bool:
    """Tell whether a turn of an agent has come to something: the next ones go on from there."""
    beside = (one for one in seen.steps() if one.type == "turn" and one.path.startswith(f"{agent.path}/"))
    return any(one.status == "completed" for one in beside)


def is_call(path: str) -> bool:
    """Tell whether a path is that of a call which an agent's model proposed, or of what undoes it."""
    return "/call[" in split_turn(path)[1]


def is_own(path: str, scope: str) -> bool:
    """Tell whether a path is that of a step of the scope's own graph, and not of an item, a turn or a call."""
    return scope_of(path) == scope and path[len(scope) :].isidentifier()


def part_path(path: str, first: int, last: int) -> str:
    """Return the path of the child execution that runs the items or iterations ``first`` to ``last`` of ``path``."""
    return f"{path}[{first}-{last}]"


def range_of(path: str) -> tuple[str, int, int]:
    """Return the map or loop that a part belongs to, and its first and last number. Raises PermanentFailure."""
    found = _RANGE.fullmatch(path)
    if found is None:
        raise PermanentFailure(f"{path} is no part of a map or a loop.")
    return found[1], int(found[2]), int(found[3])


def is_part(path: str) -> bool:
    """Tell whether a path is that of a part."""
    return _RANGE.fullmatch(path) is not None


def definition_path(path: str) -> str:
    """Return where in the definition a path stands: ``outer[2]/each[0-99]`` is a place of ``outer/each``."""
    return re.sub(r"\[[\d-]+\]", "", path)


def is_part_of(run: Run, path: str) -> bool:
    """Tell whether the run is a part of the map or loop at ``path``: there it stands for its range only."""
    return run.part is not None and is_part(run.part) and range_of(run.part)[0] == path


def around(path: str) -> tuple[str, ...]:
    """Return the paths of the maps and loops that a step instance, or a part, stands in."""
    inside = tuple(container_of(outer) for outer in enclosing(scope_of(path))[1:])
    return (*inside, range_of(path)[0]) if is_part(path) else inside


def whole_of(part: str) -> str:
    """Return the path of the map or loop that a run stands for, by the path of its part: all of it, or a range."""
    return range_of(part)[0] if is_part(part) else part


def stands_for(run: Run, path: str) -> bool:
    """Tell whether the run stands for the map or loop at ``path``: what follows there is for its parent to see to."""
    return run.part is not None and whole_of(run.part) == path


def is_apart(step: Step) -> bool:
    """Tell whether the step's child is a run of the same version: a part, or all of a map or a loop."""
    return step.child is not None and step.type != "sub_workflow"


def entry_of(run: Run) -> str:
    """Return where in its machine a run begins that stands for a map or a loop; empty for any other."""
    if run.part is None:
        return ""
    return definition_path(run.part) + ("" if is_part(run.part) else ALONE)


def root_scope(run: Run) -> str:
    """Return the scope that a run's own graph stands in: for a part, that of its map or loop."""
    return scope_of(run.part) if run.part else ""


def graph_at(manifest: Manifest, scope: str) -> Mapping[str, StepPlan]:
    """Return the steps of a scope's graph. Raises PermanentFailure for a scope that the definition lacks."""
    steps = manifest.steps
    for part in scope.split("/")[:-1]:
        steps = _body(steps, part, manifest)
    return steps


def order_at(manifest: Manifest, scope: str) -> tuple[str, ...]:
    """Return the step ids of a scope's graph in topological order."""
    if not scope:
        return manifest.order
    container = graph_at(manifest, scope_of(item_of(scope)))[container_of(scope).rpartition("/")[2]]
    return container.body.order if container.body else ()


def _body(steps: Mapping[str, StepPlan], part: str, manifest: Manifest) -> Mapping[str, StepPlan]:
    found = _SEGMENT.fullmatch(part)
    plan = steps.get(found[1]) if found else None
    if plan is None or plan.body is None:
        raise PermanentFailure(f"Version {manifest.hash[:12]} of {manifest.workflow} has no body {part}.")
    return plan.body.steps


def place_of(name: str, manifest: Manifest, scope: str) -> str | None:
    """Return the path of the step that ``name`` means in ``scope``: its own graph first, then the enclosing ones."""
    for outer in reversed(enclosing(scope)):
        if name in graph_at(manifest, outer):
            return f"{outer}{name}"
    return None


def frame_keys(scope: str) -> set[str]:
    """Return the sort keys of the containers and items that a scope stands in."""
    inner = enclosing(scope)[1:]
    return {f"STEP#{path}" for one in inner for path in (container_of(one), item_of(one))}


def closed(seen: Snapshot, scope: str) -> str | None:
    """Return why nothing opens in the scope any more: an item or a container around it has failed."""
    for outer in enclosing(scope)[1:]:
        for path in (container_of(outer), item_of(outer)):
            record = seen.step(path)
            if record and (record.failure or record.settled or record.status == "cancelled"):
                return f"{path} has {'ended' if record.settled else record.status}"
    return None


def fail_item(
    seen: Snapshot, scope: str, failure: Failure, *, whole: bool
) -> tuple[tuple[Step, ...], tuple[Note, ...]]:
    """Return the records and events by which an item fails; ``whole`` = its container opens nothing more either."""
    path = item_of(scope)
    item = seen.step(path) or Step(
        path=path, step=path.rpartition("/")[2], type="item", status="running", epoch=seen.epoch
    )
    if item.failure:
        return (), ()
    failed = replace(item, status="failed", failure=failure)
    note = Note("item_failed", path, None, {"class": failure.error_class, "message": failure.message[:300]})
    container = seen.step(container_of(scope))
    if whole and container and not container.failure:
        return (failed, replace(container, failure=failure)), (note,)
    return (failed,), (note,)
