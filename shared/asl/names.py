"""State names: readable in the AWS console, unique in a machine, at most 80 characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.asl.jumps import Chain, Fork, Switch
from shared.graph.tree import Await, Parallel, Sequence, Step

if TYPE_CHECKING:
    from shared.asl.jumps import Routed

MAX_LENGTH = 80
"""Source: Step Functions quotas, "State name length"."""
FINISH = "finish"
COMPLETED = "completed"
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


def await_of(step: str) -> str:
    """Name the await before a step."""
    return f"{step} · await"


def switch(router: str, routes: list[str]) -> str:
    """Name the choice on a router's route."""
    return _short(f"{router} · {' | '.join(routes)}", len(router) + 40)


def fork(firsts: list[str]) -> str:
    """Name a Parallel after the first step of each of its branches."""
    shown = ", ".join(firsts)
    if len(shown) > _FORK_LENGTH - len("fork ") and len(firsts) > 2:  # noqa: PLR2004 - two branches are always named
        shown = f"{firsts[0]}, {firsts[1]} and {len(firsts) - 2} more"
    return _short(f"fork {shown}", _FORK_LENGTH)


def first(node: Routed) -> str:
    """Return the step that a node begins with."""
    while not isinstance(node, Step | Await):
        match node:
            case Switch(_, cases):
                node = cases[0][1]
            case Sequence(items) | Chain(items):
                node = items[0]
            case Fork(branches) | Parallel(branches):
                node = branches[0]
    return node.id if isinstance(node, Step) else node.step


def unique(name: str, taken: set[str]) -> str:
    """Return the name, numbered if it is taken, and take it."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{_short(name, MAX_LENGTH - len(f' · {number}'))} · {number}"
    taken.add(candidate)
    return candidate


def _short(text: str, length: int) -> str:
    length = min(length, MAX_LENGTH)
    return text if len(text) <= length else f"{text[: length - 1]}…"
