"""State names: readable in the AWS console, unique in a machine, at most 80 characters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shared.asl.jumps import Chain, Fork, Lanes, Switch
from shared.graph.tree import Await, Parallel, Sequence, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from shared.asl.jumps import Routed
    from shared.manifest import StepPlan

Path = tuple[str, ...]
"""A step's id after those of the steps in whose bodies it stands."""

MAX_LENGTH = 80
"""Source: Step Functions quotas, "State name length"."""
MAX_STEP_ID = 64
"""Leaves room for the longest suffix."""
START = "whole or part"
FINISH = "finish"
COMPLETED = "completed"
FAILED = "failed"
_LANES_LENGTH = 50
_FORK_LENGTH = 62  # leaves room for " · 1000 failed"


def cascade(step: str) -> str:
    """Name the task that decides what a failure means."""
    return f"{step} · cascade"


def cascaded(step: str) -> str:
    """Name the choice that acts on the cascade's decision."""
    return f"{step} · cascaded"


def backoff(step: str) -> str:
    """Name the wait before the step is tried again."""
    return f"{step} · backoff"


def recheck(step: str) -> str:
    """Name the wait before the cascade looks again."""
    return f"{step} · recheck"


def parked(step: str) -> str:
    """Name the task that parks the step until a person decides."""
    return f"{step} · parked"


def fallback(step: str) -> str:
    """Name the task that runs the step's stand-in."""
    return f"{step} · fallback"


def items(step: str) -> str:
    """Name the Map over a step's items."""
    return f"{step} · items"


def collect(step: str) -> str:
    """Name the task that closes a map."""
    return f"{step} · collect"


def how(step: str) -> str:
    """Name the choice between items in this execution and child executions."""
    return f"{step} · how"


def parts(step: str) -> str:
    """Name the Map over the parts of a step."""
    return f"{step} · parts"


def part(step: str) -> str:
    """Name the task that has a child execution run one part."""
    return _short(f"{step} · part", MAX_STEP_ID)


def again(step: str) -> str:
    """Name the choice between another iteration and going on."""
    return f"{step} · again"


def body(step: str) -> str:
    """Name one iteration of a loop."""
    return f"{step} · body"


def next_of(step: str) -> str:
    """Name the choice of what an agent does next."""
    return f"{step} · next"


def turn(step: str) -> str:
    """Name one request of an agent."""
    return _short(f"{step} · turn", MAX_STEP_ID)


def calls(step: str) -> str:
    """Name the Map over the calls that a turn proposes."""
    return f"{step} · calls"


def which(step: str) -> str:
    """Name the choice of a call's tool."""
    return f"{step} · which tool"


def tool(step: str, name: str) -> str:
    """Name the call of one tool of an agent."""
    return _short(f"{step} · {name.removeprefix('mcp:')}", MAX_STEP_ID)


def call_done(step: str) -> str:
    """Name the end of a call."""
    return f"{step} · call done"


def call_failed(step: str) -> str:
    """Name the end of a call with which more has failed."""
    return f"{step} · call failed"


def waited(step: str) -> str:
    """Name the choice between waiting and going on."""
    return f"{step} · waited"


def pause(step: str) -> str:
    """Name the wait itself."""
    return f"{step} · wait"


def await_of(step: str) -> str:
    """Name the await before a step."""
    return f"{step} · await"


def slot(step: str) -> str:
    """Name the wait for one of the slots."""
    return f"{step} · slot"


def standby(step: str) -> str:
    """Name the stand-in's wait for one of the slots."""
    return f"{step} · fallback slot"


def switch(router: str, routes: list[str]) -> str:
    """Name the choice on a router's route."""
    return _short(f"{router} · {' | '.join(routes)}", len(router) + 40)


def fork(firsts: list[str]) -> str:
    """Name a Parallel after the first step of each of its branches."""
    shown = ", ".join(firsts)
    if len(shown) > _FORK_LENGTH - len("fork ") and len(firsts) > 2:  # noqa: PLR2004 - two branches are always named
        shown = f"{firsts[0]}, {firsts[1]} and {len(firsts) - 2} more"
    return _short(f"fork {shown}", _FORK_LENGTH)


def lanes(firsts: list[str]) -> str:
    """Name the Map of lanes after the first and last of their first steps."""
    return _short(f"lanes {firsts[0]} to {firsts[-1]}", _LANES_LENGTH)


def lane_step(lanes: str, number: int) -> str:
    """Name what stands for the n-th step of every lane."""
    return f"{lanes} · step {number}"


def first(node: Routed) -> str:
    """Return the step that a node begins with."""
    while not isinstance(node, Step | Await):
        match node:
            case Switch(_, cases):
                node = cases[0][1]
            case Sequence(items) | Chain(items):
                node = items[0]
            case Fork(branches) | Parallel(branches) | Lanes(branches):
                node = branches[0]
    return node.id if isinstance(node, Step) else node.step


def labels(steps: Mapping[str, StepPlan]) -> dict[Path, str]:
    """Return what every step's states are named after: its id, with its way in front where another has the same id."""
    paths = list(_paths(steps, ()))
    often = Counter(path[-1] for path in paths)
    taken = {START, FINISH, COMPLETED, FAILED}
    found: dict[Path, str] = {}
    for path in paths:
        shown = "/".join(path) if often[path[-1]] > 1 else path[-1]
        found[path] = unique(_short(shown, MAX_STEP_ID), taken, MAX_STEP_ID)
    return found


def apart(labels: Mapping[Path, str], known: AbstractSet[str], taken: set[str]) -> dict[Path, str]:
    """Return other labels for the same steps, as they stand in child executions, and take them."""
    used = set(known)
    found = {path: unique(_short(f"{label} · apart", MAX_STEP_ID), used, MAX_STEP_ID) for path, label in labels.items()}
    taken.update(found.values())
    return found


def _paths(steps: Mapping[str, StepPlan], around: Path) -> Iterator[Path]:
    for name, plan in steps.items():
        yield (*around, name)
        if plan.body:
            yield from _paths(plan.body.steps, (*around, name))


def unique(name: str, taken: set[str], longest: int = MAX_LENGTH) -> str:
    """Return the name, numbered if it is taken, and take it."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{_short(name, longest - len(f' · {number}'))} · {number}"
    taken.add(candidate)
    return candidate


def _short(text: str, length: int) -> str:
    length = min(length, MAX_LENGTH)
    return text if len(text) <= length else f"{text[: length - 1]}…"
