"""What the control function does, by the ``op`` of its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.errors import InvalidRequest
from shared.runtime.apart import run_apart
from shared.runtime.cascade import cascade
from shared.runtime.children import run_child
from shared.runtime.control import finish, run_free
from shared.runtime.loops import turn_loop
from shared.runtime.maps import collect_map, enter_map
from shared.runtime.parking import await_step, park_step, take_slot
from shared.runtime.parts import run_part, split_map, turn_segment
from shared.runtime.turns import next_turn
from shared.runtime.unwinding import await_word, unwind
from shared.runtime.waits import wait, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.runtime.host import Host
    from shared.runtime.task import Task

OPERATIONS: dict[str, Callable[[Host, Task], Any]] = {
    "run": run_free,
    "map": enter_map,
    "collect": collect_map,
    "loop": turn_loop,
    "turns": next_turn,
    "wait": wait,
    "event": wait_for_event,
    "child": run_child,
    "split": split_map,
    "segment": turn_segment,
    "part": run_part,
    "apart": run_apart,
    "await": await_step,
    "park": park_step,
    "slot": take_slot,
    "word": await_word,
    "finish": finish,
}
ENDING = {"cascade": cascade, "unwind": unwind}
"""Those that may start the unwind machine."""


def control(host: Host, task: Task, unwind_machine: str) -> Any:
    """Do what the state asks for. Raises InvalidRequest for an operation that the compiler does not make."""
    if task.op in ENDING:
        return ENDING[task.op](host, task, unwind_machine)
    if task.op not in OPERATIONS:
        raise InvalidRequest(f"There is no control operation {task.op!r}.")
    return OPERATIONS[task.op](host, task)
