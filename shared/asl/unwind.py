"""The machine that ends a run which must not go on: one an environment, the same for every definition."""

from __future__ import annotations

from typing import Any

from shared.asl.states import Catcher, Choice, Machine, Retrier, Succeed, Task, Wait
from shared.asl.tasks import CONTROL_FUNCTION, CONTROL_TIMEOUT, RETRY, STEP_FUNCTION, TOKEN, payload, repeated

CALL_TIMEOUT = 900
"""Seconds; no Lambda function runs longer. Source: Lambda quotas, "Function timeout"."""

_PATIENT = repeated(attempts=20, longest=300)
"""Over an hour; should it end, another execution is started when this one's end is heard of."""


_CALLS = ("compensate", "probe")
_AFTER = (*((call, call) for call in (*_CALLS, "word")), ("done", "unwound"))
WORD_TIMEOUT = 24 * 3600
"""Seconds after which a machine that waits for a person's word looks by itself, should nobody have woken it."""


def unwind_machine() -> dict[str, Any]:
    """Return the ASL of the unwind machine.

    It asks the control function again and again: ``wait`` some seconds, ``compensate`` a step, ``probe`` what became
    of its call, park until a person has said their ``word``, or ``done``. A failure leads back to the question, since
    the step's record says what to do about it.
    """
    states = {
        "unwind": Task(
            CONTROL_FUNCTION,
            payload("unwind"),
            CONTROL_TIMEOUT,
            "decided",
            select={name: f"$.Payload.{name}" for name in ("action", "seconds", "step")},
            result_path="$.unwind",
            retry=_PATIENT,
        ),
        "decided": Choice("$.unwind.action", _AFTER, "wait"),
        "wait": Wait("$.unwind.seconds", "unwind"),
        **{call: _call(call) for call in _CALLS},
        "word": _word(),
        "unwound": Succeed(),
    }
    comment = "Ends a run that must not go on: waits for what is under way, asks, compensates, writes the last event."
    return Machine("unwind", states, comment).to_json()


def _word() -> Task:
    retry = (Retrier(("States.Timeout",), attempts=0), *_PATIENT)
    asks, catch = payload("word") | TOKEN, (Catcher("unwind"),)
    return Task(CONTROL_FUNCTION, asks, WORD_TIMEOUT, "unwind", parks=True, retry=retry, catch=catch)


def _call(op: str) -> Task:
    asks = payload(op) | {"step.$": "$.unwind.step"}
    return Task(STEP_FUNCTION, asks, CALL_TIMEOUT, "unwind", retry=RETRY, catch=(Catcher("unwind"),))
