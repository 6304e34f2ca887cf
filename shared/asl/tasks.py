"""The tasks of a machine: which function does what, with which payload, and what follows when it fails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.asl import names
from shared.asl.states import Catcher, Choice, Retrier, State, Task, Wait

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
YEAR = 31_536_000
"""Seconds; a standard execution lives no longer. Source: Step Functions quotas, "Maximum execution time"."""

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
RETRY = (Retrier(INFRASTRUCTURE_ERRORS, interval=1, attempts=6, max_delay=30),)

_ANSWERS = ("NotOpened", "Signalbox.Unwinding")
"""Errors that are answers: the run is ending."""


def repeated(attempts: int, max_delay: int) -> tuple[Retrier, ...]:
    """Return the retry of a task that only reads and writes state: no cascade stands behind it, so it is repeated."""
    return (
        Retrier(_ANSWERS, interval=1, attempts=0, max_delay=max_delay),
        Retrier(("States.ALL",), interval=1, attempts=attempts, max_delay=max_delay),
    )


CONTROL_RETRY = repeated(attempts=8, max_delay=60)

_ENTRY: Mapping[str, Any] = {
    "run.$": "$$.Execution.Input.run",
    "scope.$": "$.scope",
    "entered.$": "$$.State.EnteredTime",
    "retry.$": "$$.State.RetryCount",
}
_TOKEN = {"token.$": "$$.Task.Token"}
_ERROR = {"error.$": "$.error"}
_DECISION = {"action": "$.Payload.action", "seconds": "$.Payload.seconds"}


def payload(op: str, **more: str) -> dict[str, Any]:
    """Return the payload of a task: its operation, what else is given, and which entry of which state it is."""
    return {"op": op, **more, **_ENTRY}


def finish_task(following: str) -> Task:
    """Return the task that ends the run well."""
    return Task(CONTROL_FUNCTION, payload("finish"), CONTROL_TIMEOUT, following, retry=CONTROL_RETRY)


def await_task(step: str, name: str, following: str | None) -> Task:
    """Return the task that parks until the step may start; after a year without that it registers again."""
    return Task(
        CONTROL_FUNCTION,
        payload("await", step=step) | _TOKEN,
        YEAR,
        following,
        parks=True,
        retry=CONTROL_RETRY,
        catch=(Catcher(name, ("States.Timeout",)),),
    )


@dataclass(frozen=True, slots=True)
class Steps:
    """Makes the states of steps; ``read`` are the routers whose route a Choice reads."""

    plans: Mapping[str, StepPlan]
    read: frozenset[str]

    def task(self, step: str, following: str | None) -> Task:
        """Return the step's own task: one state on the happy path."""
        plan = self.plans[step]
        function = _function(plan)
        parks = function == GATE_FUNCTION
        reads = step in self.read
        return Task(
            function,
            payload("run", step=step) | (_TOKEN if parks else {}),
            math.ceil(plan.timeout) + MARGIN,
            following,
            parks=parks,
            select={"route": "$.Payload.route"} if reads else {},
            result_path=f"$.routes.{step}" if reads else None,
            retry=RETRY,
            catch=(Catcher(names.cascade(step)),),
        )

    def trouble(self, step: str, after: str, failed: str) -> dict[str, State]:
        """Return the states that a failure leads through: cascade, choice, waits, fallback, parking.

        ``after`` is what follows the step, ``failed`` the way out of the machine or branch.
        """
        if step in self.read:
            after = step  # a settled router answers again at once, and so stores the route that the Choice reads
        states: dict[str, State] = {
            names.cascade(step): self._cascade(step),
            names.cascaded(step): self._cascaded(step, after, failed),
            names.backoff(step): Wait("$.cascade.seconds", step),
            names.recheck(step): Wait("$.cascade.seconds", names.cascade(step)),
            names.parked(step): self._parked(step),
        }
        if template := self.plans[step].fallback:
            states[names.fallback(step)] = self._fallback(step, template, after)
        return states

    def _cascade(self, step: str) -> Task:
        return Task(
            CONTROL_FUNCTION,
            payload("cascade", step=step) | _ERROR,
            CONTROL_TIMEOUT,
            names.cascaded(step),
            select=_DECISION,
            result_path="$.cascade",
            retry=CONTROL_RETRY,
        )

    def _cascaded(self, step: str, after: str, failed: str) -> Choice:
        fallback = (("fallback", names.fallback(step)),) if self.plans[step].fallback else ()
        cases = (
            ("retry", names.backoff(step)),
            ("recheck", names.recheck(step)),
            *fallback,
            ("park", names.parked(step)),
            ("continue", after),
        )
        return Choice("$.cascade.action", cases, failed)

    def _parked(self, step: str) -> Task:
        return Task(
            CONTROL_FUNCTION,
            payload("park", step=step) | _TOKEN,
            YEAR,
            names.cascaded(step),
            parks=True,
            select={"action": "$.action", "seconds": "$.seconds"},
            result_path="$.cascade",
            retry=CONTROL_RETRY,
            catch=(Catcher(names.parked(step), ("States.Timeout",)),),
        )

    def _fallback(self, step: str, template: str, after: str) -> Task:
        return Task(
            STEP_FUNCTION,
            payload("fallback", step=step, template=template),
            math.ceil(self.plans[template].timeout) + MARGIN,
            after,
            retry=RETRY,
            catch=(Catcher(names.cascade(step)),),
        )


def _function(plan: StepPlan) -> str:
    match plan.type:
        case "agent" | "tool":
            return STEP_FUNCTION
        case "router":
            return STEP_FUNCTION if plan.spec.get("strategy") == "llm" else CONTROL_FUNCTION
        case "transform":
            return CONTROL_FUNCTION
        case "human_gate":
            return GATE_FUNCTION
