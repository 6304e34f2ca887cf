"""The calls that a model proposes: which of them are made, and what is recorded of the others.

Whatever a model says is hostile until it has been checked here: it may name any tool, with any arguments, any number
of times. What passes is frozen as the record of a step that is ready to run; nothing of it is ever rendered. What looks
like a secret is taken out before: neither the records nor the tool get it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from shared import values
from shared.errors import PermanentFailure
from shared.ledger.records import Step
from shared.manifest import MOST_CALLS
from shared.redaction import redacted, redacted_text
from shared.runtime.journal import Note
from shared.runtime.offering import offered
from shared.runtime.outputs import fits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shared.manifest import StepPlan
    from shared.ports import Blobs, Proposal
    from shared.runtime.task import Task

MOST_ARGUMENTS = 32 * 1024
"""Bytes of one call's arguments."""
MOST_KEPT = 2_000
"""Bytes of the arguments of a call that is refused; larger ones are not kept."""
LONGEST_NAME = 64
LONGEST_REASON = 300


class Judged(NamedTuple):
    """A proposed call. ``refused`` says why it is not made; empty = it is."""

    tool: str
    arguments: Any
    refused: str = ""


def judge(proposed: Sequence[Proposal], tools: Mapping[str, StepPlan], *, last: bool) -> tuple[Judged, ...]:
    """Return the first calls with what becomes of them. After the ``last`` turn nobody would read their results."""
    return tuple(_judged(call, tools, last=last) for call in proposed[:MOST_CALLS])


def _judged(call: Proposal, tools: Mapping[str, StepPlan], *, last: bool) -> Judged:
    why = "this was the last turn" if last else _fault(call, tools)
    if not why:
        return Judged(call.tool, redacted(call.arguments))
    name = redacted_text(str(call.tool).encode(errors="backslashreplace").decode())[:LONGEST_NAME]
    return Judged(name, _kept(call.arguments), why[:LONGEST_REASON])


def _fault(call: Proposal, tools: Mapping[str, StepPlan]) -> str:
    """Return why a call cannot be made as it is proposed; empty = it can."""
    if not isinstance(call.tool, str) or call.tool not in tools:  # pyright: ignore[reportUnnecessaryIsInstance]
        return f"there is no such tool here, only {', '.join(map(offered, tools))}"
    size = _size(call.arguments)
    if size is None:
        return "its arguments are not JSON that every reader understands"
    if size > MOST_ARGUMENTS:
        return f"its arguments have {size:,} bytes; at most {MOST_ARGUMENTS:,} are possible"
    try:
        wrong = fits(redacted(call.arguments), tools[call.tool].spec["parameters"])
    except RecursionError:
        wrong = "they are nested too deeply"
    return f"its arguments do not fit: {wrong}" if wrong else ""


def _size(arguments: Any) -> int | None:
    try:
        return len(values.canonical(arguments))
    except PermanentFailure:
        return None


def _kept(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a refused call, or none where they are no small object."""
    if not isinstance(arguments, dict):
        return {}
    size = _size(arguments)
    try:
        return cast("dict[str, Any]", redacted(arguments)) if size is not None and size <= MOST_KEPT else {}
    except RecursionError:
        return {}


def ready(judged: Sequence[Judged], turn: str, task: Task, blobs: Blobs) -> tuple[Step, ...]:
    """Return the records of the calls that are made: their arguments are frozen by this, whatever comes later."""
    return tuple(
        Step(
            path=call_path(turn, number),
            step=call_path(turn, number).removeprefix(task.scope),
            type="tool",
            status="ready",
            epoch=task.epoch,
            tool=call.tool,
            arguments=values.store(call.arguments, blobs, task.tenant),
        )
        for number, call in enumerate(judged)
        if not call.refused
    )


def is_proposed(step: Step) -> bool:
    """Tell whether the step is a call that has been proposed in this epoch, and not made yet."""
    return step.status == "ready" and step.tool is not None and step.arguments is not None


def notes(judged: Sequence[Judged], turn: str, dropped: int) -> Iterator[Note]:
    """Yield the events of a turn's calls, one for each; those beyond the limit have one together."""
    for number, call in enumerate(judged):
        data = {"tool": call.tool}
        if call.refused:
            yield Note("call_refused", call_path(turn, number), None, {**data, "reason": call.refused})
        else:
            yield Note("call_proposed", call_path(turn, number), None, data)
    if dropped:
        yield Note("call_refused", call_path(turn, len(judged)), None, {"reason": too_many(dropped)})


def too_many(dropped: int) -> str:
    """Say that a turn proposed more calls than it may."""
    return f"{dropped:,} more calls were proposed; a turn makes {MOST_CALLS} at most"


def call_path(turn: str, number: int) -> str:
    """Return the path of a turn's call, counted from 0."""
    return f"{turn}/call[{number}]"
