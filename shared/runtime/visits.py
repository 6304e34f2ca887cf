"""What the cascade has at hand: one visit of it, the records of the step that it is about, what it may answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.ledger.records import Dead, Failure, Head, Step
from shared.runtime.scopes import FALLBACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.manifest import StepPlan
    from shared.runtime.journal import Note, Snapshot
    from shared.runtime.task import Task

TIMEOUTS = frozenset({"States.Timeout", "States.HeartbeatTimeout", "Sandbox.Timedout"})
"""Error names by which the engine says that time ran out."""
Action = dict[str, Any]


def act(kind: str, milliseconds: float = 0) -> Action:
    """Return what the state machine is told: the action, and whole seconds to wait before it (rounded up)."""
    return {"action": kind, "seconds": -(-int(milliseconds) // 1000)}


STANDS_IN = act("fallback")
"""The answer for a step by which its fallback begins."""


def stood_in_for(step: Step) -> bool:
    """Tell whether the cascade has let the step's fallback stand in, and has not decided otherwise since."""
    return (step.action or {}).get("action") in {"fallback", "recheck"}


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit of the cascade: whose failure, by which plan, when (ms), and where randomness comes from.

    ``whole`` = the first item that fails ends the map or loop that the step stands in.
    """

    task: Task
    plan: StepPlan
    now: int
    jitter: Callable[[float], float]
    stand_in: StepPlan | None = None
    whole: bool = False

    @property
    def id(self) -> str:
        """Engine retries of the same state entry are the same visit."""
        return self.task.entry.rsplit("|", 1)[0]

    def is_over(self, step: Step) -> bool:
        """Tell whether this visit, or a later one, has decided already: this delivery is a repeated or a late one."""
        return step.cascade is not None and step.cascade >= self.id

    @property
    def engine_failure(self) -> Failure:
        """What the engine's error name tells when the handler could not write a class."""
        if self.task.error in TIMEOUTS:
            return Failure("timeout", "The attempt's time was over.", uncertain=True)
        message = f"The process ended without an answer ({self.task.error or 'no error name'})."
        return Failure("transient", message, uncertain=True)


@dataclass(frozen=True, slots=True)
class Case:
    """The records at hand, and what else is to be written with the step: other steps, events, its dead letter."""

    seen: Snapshot
    head: Head
    step: Step
    notes: tuple[Note, ...] = ()
    others: tuple[Step, ...] = ()
    letters: tuple[Dead, ...] = ()

    @property
    def beside(self) -> Step | None:
        """The step's fallback, if it has begun."""
        found = next(iter(self.others), None) or self.seen.step(f"{self.step.path}{FALLBACK}")
        return None if found and found.status == "ready" else found

    def noted(self, note: Note) -> Case:
        """Return the case with one more event."""
        return replace(self, notes=(*self.notes, note))
