"""What a person may say of a parked step, as it stands at this moment: one rule for who carries it out and who asks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

from shared.errors import Conflict, NotFound
from shared.ledger.record import replace
from shared.ledger.records import Failure
from shared.runtime import protocol
from shared.runtime.journal import Note
from shared.runtime.scopes import COMPENSATE, FALLBACK, closed, scope_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.ledger.records import Step
    from shared.runtime.journal import Snapshot

Resumption = Literal["retry", "accept", "did_not_happen", "skip", "fail"]
_BODIES = frozenset({"map", "loop"})


def possible(seen: Snapshot, step: Step) -> tuple[Resumption, ...]:
    """Return what a person may say of a step now; nothing where none is waited for."""
    if step.status not in protocol.PARKED or step.settled or seen.head.ended:
        return ()
    if seen.head.unwinding and not _is_waited_for(step):
        return ()
    return tuple(_possible(seen, step))


def _possible(seen: Snapshot, step: Step) -> Iterator[Resumption]:
    beside = seen.step(f"{step.path}{FALLBACK}")
    if step.type not in _BODIES and (step.status != "unknown" or _repeatable(seen, step, beside)):
        yield "retry"
    yield "accept"
    if protocol.in_doubt(beside) or (protocol.in_doubt(step) and step.call):
        yield "did_not_happen"
    yield "skip"
    if not step.path.endswith(COMPENSATE):
        yield "fail"


def _is_waited_for(step: Step) -> bool:
    """Tell whether unwinding waits for a word on the step: what became of a call, or of a compensation."""
    return step.status == "unknown" or step.path.endswith(COMPENSATE)


def _repeatable(seen: Snapshot, step: Step, beside: Step | None) -> bool:
    """Tell whether a call that may have happened may be made again: it can be undone, and its key makes it one.

    Where its item has failed or its run ends, nothing is called any more, and a fallback's call is not made again by
    its step.
    """
    reversible = step.call is not None and step.call.risk == "reversible"
    over = seen.head.unwinding or closed(seen, scope_of(step.path))
    return reversible and not protocol.in_doubt(beside) and not over


def parked(seen: Snapshot, path: str, action: Resumption) -> Step:
    """Return the parked step of which a person says ``action``. Raises NotFound, or Conflict when that is not possible.

    That a call did not happen is refused where it is carried out: by then its gate has to be known.
    """
    step = seen.step(path)
    if step is None:
        raise NotFound(f"The run has no step {path} yet.")
    if step.status not in protocol.PARKED or step.settled:
        raise Conflict(f"Step {path} is {step.status}, not paused.", code="not_paused")
    found = possible(seen, step)
    if not found:
        raise _over(seen)
    if action not in found and action != "did_not_happen":
        raise _refusal(seen, step, action, found)
    return step


def _refusal(seen: Snapshot, step: Step, action: Resumption, found: tuple[Resumption, ...]) -> Conflict:
    if seen.head.unwinding:
        what = f"The run ends as {seen.head.unwinding}: of {step.path}, say {_listed(found)}."
        return Conflict(what, code="not_possible")
    if step.status == "unknown":
        what = f"The outcome of {step.path} is unknown, so it is not called again. Look at the far side, then say"
        return Conflict(f"{what} {_listed(found)}.", code="unknown_outcome")
    if step.type in _BODIES:
        what = f"Step {step.path} is a {step.type}: accept a result, skip it or fail the run. Its failed parts stay"
        return Conflict(f"{what} failed.", code="not_retryable")
    return Conflict(f"Of {step.path}, say {_listed(found)}, not {action}.", code="not_possible")


def _over(seen: Snapshot) -> Conflict:
    what = f"The run is {seen.head.ended or seen.head.unwinding}: only what it waits for is decided."
    return Conflict(what, code="run_ended")


_SHOWN = {"accept": "accept with its result"}


def _listed(found: tuple[Resumption, ...]) -> str:
    *others, last = (_SHOWN.get(each, each) for each in found)
    return f"{', '.join(others)} or {last}"


def given_up(step: Step, beside: Step | None, by: str, now: int, seq: int) -> tuple[tuple[Step, ...], list[Note]]:
    """Settle as what it is a step whose call nobody will find out about any more, as ``by`` says: it stays unknown.

    So does the fallback ``beside`` it, if that made the call. Records and events say that it is left as it is: what it
    may have done is not undone either. Events are numbered from ``seq``.
    """
    doubtful = beside if beside and protocol.in_doubt(beside) else step
    undoable = doubtful.call is not None and doubtful.call.risk == "reversible"
    reason = f"given up by {by}: whether its call happened is not known"
    reason += ", and what it may have done is not undone" if undoable else ""
    failure = dataclasses.replace(doubtful.failure or Failure("unknown_outcome", reason), uncertain=True)
    left = [step, replace(doubtful, failure=failure)] if doubtful is beside else [replace(step, failure=failure)]
    made = tuple(_left(one, by, reason, now, number) for number, one in enumerate(left, seq))
    data = {"by": by, "not_undone": undoable}
    return made, [Note("call_given_up", one.path, one.attempt, data) for one in made]


def _left(step: Step, by: str, reason: str, now: int, seq: int) -> Step:
    return replace(step, status="unknown", settled=True, given_up=by, reason=reason, ended=now, settled_seq=seq)
