"""The tasks of a machine: which function does what, with which payload, and what follows when it fails."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.asl import names
from shared.asl.states import Catcher, Choice, Retrier, State, Task, Wait
from shared.manifest import YEAR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.manifest import StepPlan

STEP_FUNCTION = "${StepFunction}"
CONTROL_FUNCTION = "${ControlFunction}"
GATE_FUNCTION = "${GateFunction}"

MARGIN = 5
"""Seconds that the engine grants beyond a step's own time-out, for start and close."""
CONTROL_TIMEOUT = 60
"""Seconds for a task that only reads and writes state."""
_CONTROL = CONTROL_TIMEOUT - MARGIN
# Source: AWS Step Functions Developer Guide, "Handle Lambda service exceptions" and "Error names". Repeating the
# task is safe after each of them: the step protocol recognises a redelivery.
INFRASTRUCTURE_ERRORS = (
    "Lambda.AWSLambdaException",
    "Lambda.ClientExecutionTimeoutException",
    "Lambda.SdkClientException",
    "Lambda.ServiceException",
    "Lambda.TooManyRequestsException",
    "Lambda.Unknown",
    "Sandbox.Timedout",
)
RETRY = (Retrier(INFRASTRUCTURE_ERRORS, attempts=6),)

_ANSWERS = ("NotOpened", "Signalbox.Unwinding")
"""Errors that are answers: the run is ending."""


def repeated(attempts: int, longest: int) -> tuple[Retrier, ...]:
    """Return the retry of a task that only reads and writes state: no cascade stands behind it, so it is repeated.

    A parked one registers again when it has waited for a year.
    """
    return (Retrier(_ANSWERS, attempts=0), Retrier(("States.ALL",), attempts, longest))


CONTROL_RETRY = repeated(attempts=8, longest=60)

_ENTRY: Mapping[str, Any] = {
    "run.$": "$$.Execution.Input.run",
    "scope.$": "$.scope",
    "entered.$": "$$.State.EnteredTime",
    "retry.$": "$$.State.RetryCount",
}
TOKEN = {"token.$": "$$.Task.Token"}
_ERROR = {"error.$": "$.error"}
_DECISION = {"action": "$.Payload.action", "seconds": "$.Payload.seconds"}


def payload(op: str) -> dict[str, Any]:
    """Return the payload of a task: its operation, the run, and which entry of which state it is."""
    return {"op": op, **_ENTRY}


def finish_task(following: str) -> Task:
    """Return the task that ends the run well."""
    return Task(CONTROL_FUNCTION, payload("finish"), CONTROL_TIMEOUT, following, retry=CONTROL_RETRY)


@dataclass(frozen=True, slots=True)
class _Own:
    """A step's own task, by its type: its operation and function, and what control flow needs of its answer."""

    op: str
    function: str
    timeout: float
    parks: bool = False
    select: tuple[str, ...] = ()
    result_path: str | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """Makes the states of one graph's steps.

    ``labels`` are the names of their states, ``read`` the routers whose route a Choice reads, ``given`` the paths in
    the data at which the steps of a lane find their names. ``tool`` is what they call, where they are an agent's calls.
    """

    plans: Mapping[str, StepPlan]
    labels: Mapping[str, str]
    read: frozenset[str]
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    tool: str = ""

    def task(self, step: str, following: str | None) -> Task:
        """Return the step's own task: one state on the happy path."""
        own = _own(self.plans[step])
        reads = step in self.read
        select = ("route",) if reads else own.select
        return Task(
            own.function,
            self._payload(own.op, step) | (TOKEN if own.parks else {}),
            math.ceil(own.timeout) + MARGIN,
            following,
            parks=own.parks,
            select={name: f"$.Payload.{name}" for name in select},
            result_path=f"$.routes.{step}" if reads else own.result_path,
            retry=RETRY,
            catch=(Catcher(names.cascade(self.labels[step])),),
        )

    def _payload(self, op: str, step: str) -> dict[str, Any]:
        named = {"step.$": self.given[step]} if step in self.given else {"step": step}
        return payload(op) | named | ({"template": self.tool} if self.tool else {})

    def collect(self, step: str, following: str | None) -> Task:
        """Return the task that closes a map once all its items have ended."""
        catch = (Catcher(names.cascade(self.labels[step])),)
        asks = self._payload("collect", step)
        return Task(CONTROL_FUNCTION, asks, CONTROL_TIMEOUT, following, retry=RETRY, catch=catch)

    def awaiting(self, step: str, following: str | None) -> Task:
        """Return the task that parks until the step may start; after a year without that it registers again."""
        asks = self._payload("await", step) | TOKEN
        return Task(CONTROL_FUNCTION, asks, YEAR, following, parks=True, retry=CONTROL_RETRY)

    def slot(self, step: str) -> Task:
        """Return the task that parks until the step has a slot."""
        asks = self._payload("slot", step) | TOKEN
        return Task(CONTROL_FUNCTION, asks, YEAR, self.labels[step], parks=True, retry=CONTROL_RETRY)

    def entry(self, step: str) -> str:
        """Return the name of the state in which the step begins, also when it is tried again."""
        label = self.labels[step]
        return names.slot(label) if self.plans[step].slot else label

    def trouble(self, step: str, after: str, failed: str) -> dict[str, State]:
        """Return the states that a failure leads through: cascade, choice, waits, fallback, parking.

        ``after`` is what follows the step, ``failed`` the way out of the machine or branch.
        """
        label = self.labels[step]
        if step in self.read:
            after = label  # a settled router answers again at once, and so stores the route that the Choice reads
        states: dict[str, State] = {
            names.cascade(label): self._cascade(step),
            names.cascaded(label): self._cascaded(step, after, failed),
            names.backoff(label): Wait("$.cascade.seconds", self.entry(step)),
            names.recheck(label): Wait("$.cascade.seconds", names.cascade(label)),
            names.parked(label): self._parked(step),
        }
        if template := self.plans[step].fallback:
            states[names.fallback(label)] = self._fallback(step, template, after)
            if self.plans[template].slot:
                states[names.standby(label)] = self._standby(step, template)
        return states

    def _standby(self, step: str, template: str) -> Task:
        asks = self._payload("slot", step) | TOKEN | {"template": template}
        following = names.fallback(self.labels[step])
        return Task(CONTROL_FUNCTION, asks, YEAR, following, parks=True, retry=CONTROL_RETRY)

    def _cascade(self, step: str) -> Task:
        return Task(
            CONTROL_FUNCTION,
            self._payload("cascade", step) | _ERROR,
            CONTROL_TIMEOUT,
            names.cascaded(self.labels[step]),
            select=_DECISION,
            result_path="$.cascade",
            retry=CONTROL_RETRY,
        )

    def _cascaded(self, step: str, after: str, failed: str) -> Choice:
        label, template = self.labels[step], self.plans[step].fallback
        waits = template is not None and self.plans[template].slot
        stand_in = names.standby(label) if waits else names.fallback(label)
        fallback = (("fallback", stand_in),) if template else ()
        cases = (
            ("retry", names.backoff(label)),
            ("recheck", names.recheck(label)),
            *fallback,
            ("park", names.parked(label)),
            ("continue", after),
        )
        return Choice("$.cascade.action", cases, failed)

    def _parked(self, step: str) -> Task:
        return Task(
            CONTROL_FUNCTION,
            self._payload("park", step) | TOKEN,
            YEAR,
            names.cascaded(self.labels[step]),
            parks=True,
            select={"action": "$.action", "seconds": "$.seconds"},
            result_path="$.cascade",
            retry=CONTROL_RETRY,
        )

    def _fallback(self, step: str, template: str, after: str) -> Task:
        return Task(
            STEP_FUNCTION,
            self._payload("fallback", step) | {"template": template},
            math.ceil(self.plans[template].timeout) + MARGIN,
            after,
            retry=RETRY,
            catch=(Catcher(names.cascade(self.labels[step])),),
        )


def _own(plan: StepPlan) -> _Own:
    """Return the step's own task."""
    match plan.type:
        case "agent" | "turn" | "tool":
            return _Own("run", STEP_FUNCTION, plan.timeout)
        case "router":
            calls = plan.spec.get("strategy") == "llm"
            return _Own("run", STEP_FUNCTION if calls else CONTROL_FUNCTION, plan.timeout)
        case "transform":
            return _Own("run", CONTROL_FUNCTION, plan.timeout)
        case "human_gate":
            return _Own("run", GATE_FUNCTION, plan.timeout, parks=True)
        case "sub_workflow" | "part":
            op = "child" if plan.type == "sub_workflow" else "part"
            return _Own(op, CONTROL_FUNCTION, plan.timeout, parks=True)
        case _:
            return _own_control(plan)


_OWN_SPLIT = {
    "map": _Own("split", CONTROL_FUNCTION, _CONTROL, select=("items", "parts", "how"), result_path="$.map"),
    "loop": _Own("segment", CONTROL_FUNCTION, _CONTROL, select=("again", "part"), result_path="$.loop"),
}
"""The tasks of maps and loops that are split."""


_SELECTED = {
    "map": ("items",),
    "loop": ("again", "scope"),
    "turns": ("next", "step", "calls"),
    "wait": ("seconds", "done"),
}


def _own_control(plan: StepPlan) -> _Own:
    if plan.type == "wait" and "event" in plan.spec:
        return _Own("event", CONTROL_FUNCTION, plan.timeout, parks=True)
    if plan.apart:
        return _Own("apart", CONTROL_FUNCTION, plan.timeout, parks=True)
    if plan.split:
        return _OWN_SPLIT[plan.type]
    select = _SELECTED[plan.type]
    return _Own(plan.type, CONTROL_FUNCTION, _CONTROL, select=select, result_path=f"$.{plan.type}")
