"""The event log folded: what it says of a run and of every step, without looking at any other record.

Told are: how far the log goes, whether and how the run unwinds or has ended; for each step its attempts, whether one is
open, what it holds and has spent, and where it stands once that is final or a person must look at it. Everything else
on the records (outputs, failures, fences, leases, tokens) is not in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from shared.ledger.records import Amount
from shared.runtime.scopes import COMPENSATE, FALLBACK, around, is_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shared.ledger.records import Ending, Event, StepStatus

FINAL = frozenset({"completed", "skipped", "cancelled", "compensated", "paused", "unknown"})
"""Statuses that the log always tells; the others also change without an event."""
_NO_STEP = "call_refused"
"""The one event about a place where there is no step: what a model proposed there is not made."""
_COUNTED = ("usd", "tokens", "steps")


@dataclass(frozen=True, slots=True)
class ToldStep:
    """What the log says of one step; ``status`` None = on its way. ``given_up`` = it stays unknown: nobody is asked."""

    attempt: int = 0
    open: bool = False
    hold: Amount = field(default_factory=Amount)
    spent: Amount = field(default_factory=Amount)
    status: StepStatus | None = None
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What the log says of a run; ``ended_at`` in ms."""

    seq: int = 0
    unwinding: Ending | None = None
    reason: str | None = None
    ended: Ending | None = None
    ended_at: int | None = None
    steps: Mapping[str, ToldStep] = field(default_factory=dict[str, ToldStep])


def fold(events: Iterable[Event]) -> Told:
    """Fold a whole log, in order."""
    told, steps = Told(), dict[str, ToldStep]()
    for event in events:
        told = replace(_run(told, event), seq=event.seq)
        if event.type == "run_resumed":
            steps = {path: _renewed(path, step) for path, step in steps.items()}
        if event.path and event.type != _NO_STEP:
            known = steps.get(event.path, ToldStep())
            steps[event.path] = _step(known, event)
            steps.update(_beside(steps, event))
    return replace(told, steps=steps)


def _run(told: Told, event: Event) -> Told:
    if event.type == "run_unwinding":
        towards, reason = event.data["towards"], event.data.get("reason")
        return replace(told, unwinding=towards, reason=reason, ended=None, ended_at=None)
    if event.type == "run_resumed":
        return Told(steps=told.steps)
    if event.type.startswith("run_") and event.type != "run_started":
        return replace(told, ended=cast("Ending", event.type.removeprefix("run_")), ended_at=event.at)
    return told


def _renewed(path: str, step: ToldStep) -> ToldStep:
    """Return a step as a later epoch finds it: completed steps stay.

    What else stays by ``shared.runtime.epochs``, an agent's calls that failed and skips in doubt, is not told by the
    log alone: their status is then None, and not compared.
    """
    undoing = path.endswith(COMPENSATE)
    if step.status == "completed" and not undoing and not is_part(path):
        return step
    return replace(step, status=None, attempt=0 if undoing else step.attempt, given_up=False)


def _step(step: ToldStep, event: Event) -> ToldStep:
    step = replace(step, attempt=event.attempt or step.attempt)
    if "used" in event.data:
        step = replace(step, open=False, hold=Amount(), spent=step.spent + Amount(**event.data["used"]), status=None)
    change = _CHANGES.get(event.type)
    return change(step, event.data) if change else step


def _beside(steps: Mapping[str, ToldStep], event: Event) -> dict[str, ToldStep]:
    """Return the steps that a completed compensation has undone, or for which a completed fallback stands in."""
    path, statuses = event.path or "", {COMPENSATE: "compensated", FALLBACK: "completed"}
    if event.type == "step_compensated":
        return {one: replace(steps[one], status="compensated") for one in _around(steps, path)}
    for suffix, status in statuses.items():
        own = path.removesuffix(suffix)
        if own != path and suffix == FALLBACK and event.type == "call_probed" and event.data["conclusive"]:
            return {own: replace(steps.get(own, ToldStep()), status=None)}
        if event.type == "step_completed" and own != path:
            stood_in_for = own.removesuffix(FALLBACK) if suffix == COMPENSATE else own
            both = dict.fromkeys((own, stood_in_for, *(_around(steps, own) if suffix == COMPENSATE else ())))
            return {one: replace(steps.get(one, ToldStep()), status=cast("StepStatus", status)) for one in both}
    return {}


def _around(steps: Mapping[str, ToldStep], path: str) -> list[str]:
    """Return the completed maps and loops around a step that was undone."""
    return [one for one in around(path) if one in steps and steps[one].status == "completed"]


def _opened(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    return replace(step, open=True, hold=Amount(**data["hold"]), status=None)


def _begun(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    return replace(step, hold=Amount(**data["hold"]), status=None)


def _raised(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    dimension = data.get("dimension")
    if dimension is None:  # a person has raised several at once
        return replace(step, hold=step.hold + Amount(**{name: data["by"].get(name, 0) for name in _COUNTED}))
    more = Amount() if dimension == "active_time" else Amount(**{dimension: data["by"]})
    return replace(step, hold=step.hold + more)


def _paused(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    return replace(step, status="unknown" if data["reason"] == "unknown_outcome" else "paused")


def _probed(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    return replace(step, status=None) if data["conclusive"] else step


def _given_up(step: ToldStep, _: Mapping[str, Any]) -> ToldStep:
    return replace(step, status="unknown", given_up=True)


def _is(status: StepStatus | None) -> Callable[[ToldStep, Mapping[str, Any]], ToldStep]:
    return lambda step, _: replace(step, status=status)


_CHANGES: dict[str, Callable[[ToldStep, Mapping[str, Any]], ToldStep]] = {
    "step_opened": _opened,
    "child_started": _begun,
    "child_resumed": _begun,
    "child_raised": _raised,
    "call_probed": _probed,
    "call_given_up": _given_up,
    "step_paused": _paused,
    "step_unknown": _is("unknown"),
    "step_completed": _is("completed"),
    "step_skipped": _is("skipped"),
    "step_cancelled": _is("cancelled"),
    "step_compensated": _is("compensated"),
    **dict.fromkeys(("step_failed", "step_retrying", "step_held", "step_resumed"), _is(None)),
    **dict.fromkeys(("step_gave_up", "gate_opened"), _is(None)),
}
