"""What the log tells of a step that opens or ends: enough for its record to be recomputed, never a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.runtime.journal import Note

if TYPE_CHECKING:
    from shared.ledger.records import Amount, Step


def shown(amount: Amount) -> dict[str, int]:
    """Return an amount as an event shows it (nano-USD, tokens, steps)."""
    return {"usd": amount.usd, "tokens": amount.tokens, "steps": amount.steps}


def opened(step: Step) -> Note:
    """Return the event that an attempt leaves when it opens: with the ledger entry of its call, if it makes one."""
    data: dict[str, Any] = {"hold": shown(step.hold), "model": step.model}
    if step.call:
        data |= {"key": step.call.key, "dispatch": step.call.dispatch}
    return Note("step_opened", step.path, step.attempt, data)


def closing(step: Step, closed: Step, used: Amount, now: int) -> Note:
    """Return the event that an attempt's end leaves."""
    data: dict[str, Any] = {"used": shown(used), "duration_ms": now - (step.opened or now)}
    if step.model:
        data["model"] = step.model
    if closed.status == "completed":
        data |= result(closed)
    if closed.failure:
        data["error"] = {"class": closed.failure.error_class, "message": closed.failure.message}
    late = step.open and 0 < step.until < now  # in-process, where nobody can end a call from outside
    if used.usd > step.hold.usd or used.tokens > step.hold.tokens or late:
        data["overrun"] = True
    return Note(f"step_{closed.status}", step.path, closed.attempt, data)


def completed(step: Step) -> Note:
    """Return the event of a step that completes without an attempt's end: by a person's word, or by what was found."""
    return Note("step_completed", step.path, step.attempt, result(step))


def result(step: Step) -> dict[str, Any]:
    """Return what a completed step came to: its output's digest, a router's route, and who gave it if not the step."""
    data: dict[str, Any] = {"output": step.output.digest if step.output else None}
    if step.route is not None:
        data["route"] = step.route
    if step.by not in {None, "step"}:
        data["by"] = step.by
    return data
