"""The states we emit, as frozen data: the part of the Amazon States Language (JSONPath) that Signalbox uses.

A ``next`` of None ends the machine, or the branch.
Source: Amazon States Language specification, https://states-language.net/spec.html.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

INVOKE = "arn:aws:states:::lambda:invoke"
INVOKE_AND_PARK = "arn:aws:states:::lambda:invoke.waitForTaskToken"


@dataclass(frozen=True, slots=True)
class Retrier:
    """Repeats a task for some errors after a random time of up to 1, 2, 4, 8, ... seconds (full jitter).

    First interval and growth are the language's defaults, so they are not written. ``longest`` bounds one wait, in
    seconds.
    """

    errors: tuple[str, ...]
    attempts: int
    longest: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        again: dict[str, Any] = {"ErrorEquals": list(self.errors), "MaxAttempts": self.attempts}
        bound = {"MaxDelaySeconds": self.longest} if self.longest else {}
        return again | bound | {"JitterStrategy": "FULL"} if self.attempts else again


@dataclass(frozen=True, slots=True)
class Catcher:
    """Leads some errors to another state, with the error at ``$.error``, which it replaces."""

    next: str
    errors: tuple[str, ...] = ("States.ALL",)

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        return {"ErrorEquals": list(self.errors), "ResultPath": "$.error", "Next": self.next}


@dataclass(frozen=True, slots=True)
class Task:
    """Invokes ``function`` with ``payload``; parks until its token is answered when ``parks``.

    ``select`` maps names to paths in the invocation's answer, which go to ``result_path``; without a path the result
    is dropped. ``timeout`` in seconds.
    """

    function: str
    payload: Mapping[str, Any]
    timeout: int
    next: str | None
    parks: bool = False
    select: Mapping[str, str] = field(default_factory=dict[str, str])
    result_path: str | None = None
    retry: tuple[Retrier, ...] = ()
    catch: tuple[Catcher, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        state: dict[str, Any] = {
            "Type": "Task",
            "Resource": INVOKE_AND_PARK if self.parks else INVOKE,
            "Parameters": {"FunctionName": self.function, "Payload": dict(self.payload)},
            "TimeoutSeconds": self.timeout,
            "ResultPath": self.result_path,
        }
        if self.select:
            state["ResultSelector"] = {f"{name}.$": path for name, path in self.select.items()}
        if self.retry:
            state["Retry"] = [retrier.to_json() for retrier in self.retry]
        if self.catch:
            state["Catch"] = [catcher.to_json() for catcher in self.catch]
        return state | _onward(self.next)


@dataclass(frozen=True, slots=True)
class Choice:
    """Goes where ``cases`` says for the string at ``variable``, else to ``default``."""

    variable: str
    cases: tuple[tuple[str, str], ...]
    default: str

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        rules = [{"Variable": self.variable, "StringEquals": value, "Next": target} for value, target in self.cases]
        return {"Type": "Choice", "Choices": rules, "Default": self.default}


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits the number of seconds that stands at ``seconds_path``."""

    seconds_path: str
    next: str

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        return {"Type": "Wait", "SecondsPath": self.seconds_path, "Next": self.next}


@dataclass(frozen=True, slots=True)
class Machine:
    """A start and its states: a whole state machine, or a branch of a Parallel. ``timeout`` in seconds."""

    start: str
    states: Mapping[str, State]
    comment: str = ""
    timeout: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        machine: dict[str, Any] = {
            "StartAt": self.start,
            "States": {name: state.to_json() for name, state in self.states.items()},
        }
        if self.comment:
            machine["Comment"] = self.comment
        if self.timeout is not None:
            machine["TimeoutSeconds"] = self.timeout
        return machine


@dataclass(frozen=True, slots=True)
class Parallel:
    """Runs branches at once and drops their results. They get the data, or what ``given`` makes of it."""

    branches: tuple[Machine, ...]
    next: str | None
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        branches = [branch.to_json() for branch in self.branches]
        given = {"Parameters": dict(self.given)} if self.given else {}
        return {"Type": "Parallel", "Branches": branches, "ResultPath": None} | given | _onward(self.next)


@dataclass(frozen=True, slots=True)
class Map:
    """Runs ``body`` for every element of the list at ``items``, with the data that ``given`` makes; drops the results.

    ``limit`` bounds how many run at once; 0 does not.
    """

    items: str
    given: Mapping[str, Any]
    body: Machine
    limit: int
    next: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        return {
            "Type": "Map",
            "ItemsPath": self.items,
            "ItemSelector": dict(self.given),
            "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, **self.body.to_json()},
            "MaxConcurrency": self.limit,
            "ResultPath": None,
        } | _onward(self.next)


@dataclass(frozen=True, slots=True)
class Pass:
    """Goes on and does nothing."""

    next: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        return {"Type": "Pass"} | _onward(self.next)


@dataclass(frozen=True, slots=True)
class Succeed:
    """Ends the machine or branch well."""

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        return {"Type": "Succeed"}


@dataclass(frozen=True, slots=True)
class Fail:
    """Ends the whole execution as failed."""

    error: str
    cause: str

    def to_json(self) -> dict[str, Any]:
        """Return the ASL."""
        return {"Type": "Fail", "Error": self.error, "Cause": self.cause}


State = Task | Choice | Wait | Parallel | Map | Pass | Succeed | Fail


def _onward(following: str | None) -> dict[str, Any]:
    return {"End": True} if following is None else {"Next": following}
