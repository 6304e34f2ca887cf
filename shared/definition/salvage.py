"""What can still be checked of a faulty file: the workflow without the steps and fields that have faults.

A step that is left out leaves a ghost: its name, what it needs, its fallback. So nothing that refers to it is reported
as a second fault.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from shared.definition.faults import step_path, validate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.definition.models import Workflow
    from shared.definition.yaml_tree import Path

_MOST_FAULTS = 1000
_MOST_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Ghost:
    """What is known of a step that could not be read."""

    needs: tuple[str, ...] = ()
    fallback: str | None = None
    approves: str | None = None


Ghosts = dict["Path", Ghost]
"""Ghosts by the path of their step."""


def salvage(data: Any, faulty: Iterable[Path]) -> tuple[Workflow | None, Ghosts]:
    """Return what is left of ``data`` without what stands at the ``faulty`` paths; None when that is nothing."""
    left, ghosts = deepcopy(data), Ghosts()
    for _ in range(_MOST_ROUNDS):
        for path in faulty:
            _leave_out(left, path, ghosts)
        workflow, found, _ = validate(left, _MOST_FAULTS)
        if workflow is not None or not _can_go_on(left):
            return workflow, ghosts
        faulty = [path for path, _, _ in found]
    return None, {}


def _can_go_on(left: Any) -> bool:
    steps = cast("dict[str, Any]", left).get("steps") if isinstance(left, dict) else None
    return isinstance(steps, dict) and bool(cast("dict[str, Any]", steps))


def _leave_out(left: Any, path: Path, ghosts: Ghosts) -> None:
    if not isinstance(left, dict):
        return
    data = cast("dict[str, Any]", left)
    step = step_path(path)
    if step:
        _leave_out_step(data, step, ghosts)
    elif path[:1] != ("steps",) and path:
        data.pop(str(path[0]), None)
    data.setdefault("workflow", "unnamed")


def _leave_out_step(left: dict[str, Any], path: Path, ghosts: Ghosts) -> None:
    """Take the step out; when it stands in a body that is gone already, there is nothing to do."""
    graph: Any = left
    for element in path[:-1]:
        graph = cast("dict[str, Any]", graph).get(str(element)) if isinstance(graph, dict) else None
    if isinstance(graph, dict) and path[-1] in graph:
        ghosts[path] = _ghost(cast("dict[str, Any]", graph).pop(str(path[-1])))


def _ghost(step: Any) -> Ghost:
    fields: Mapping[str, Any] = cast("dict[str, Any]", step) if isinstance(step, dict) else {}
    needs = fields.get("needs")
    given = cast("list[Any]", needs) if isinstance(needs, list) else [needs]
    named = [cast("dict[str, Any]", one).get("step") if isinstance(one, dict) else one for one in given]
    return Ghost(
        needs=tuple(name for name in named if isinstance(name, str)),
        fallback=_name(fields.get("fallback")),
        approves=_name(fields.get("approves")),
    )


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None
