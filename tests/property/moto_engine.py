"""Moto's Step Functions as an engine: compiled machines with real threads, in this process."""

from __future__ import annotations

import functools
import gc
import json
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import boto3
from antlr4 import PredictionMode
from behaviour import behave
from engines import finished, patience, start, world_of
from family import Generated, family, settled
from machine import UNWIND
from moto import mock_aws
from moto.stepfunctions.parser.asl.antlr.runtime.ASLParser import ASLParser
from moto.stepfunctions.parser.asl.component.component import Component
from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.wait_function import WaitFunction
from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser
from moto.stepfunctions.parser.models import stepfunctions_parser_backends
from outcome import Stuck
from people import act

from shared.clock import SystemClock
from shared.engine.stepfunctions import StepFunctions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from engines import Hold
    from machine import World
    from outcome import Result

    from shared.compiler import Unit

ROLE = "arn:aws:iam::123456789012:role/any"
PACE = 50
"""How much faster than real time moto's clock runs; much more, and time runs out for threads that wait for a core."""


BUSY = 0.02
"""Seconds that a call takes where a run has few places, so that others come meanwhile and find none."""


class Hurried(SystemClock):
    """Real time at another pace; ``sleep`` is the runtime's own pause between conflicting writes."""

    def __init__(self) -> None:
        self._begun = time.time()

    def now(self) -> int:
        return int((self._begun + (time.time() - self._begun) * PACE) * 1000)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / 10)


class Executions(StepFunctions):
    """Moto's Step Functions; unwindings that were asked for are left to the driver.

    A workflow's machine is made when it is first started.
    """

    def __init__(self, client: Any, definitions: Generated) -> None:
        super().__init__(client)
        self._states, self._definitions = client, definitions
        self._machines: dict[str, str] = {}
        self._lock = threading.Lock()
        self.unwinding: dict[str, dict[str, Any]] = {}
        self.started: list[str] = []

    def start(self, machine: str, name: str, data: Mapping[str, Any]) -> None:
        if machine == UNWIND:
            self.unwinding[data["run"]["id"]] = dict(data)
            return
        arn = self._made(machine.split(":")[1])
        super().start(arn, name, data)
        self.started.append(f"{arn.replace(':stateMachine:', ':execution:')}:{name}")

    def succeed(self, token: str, output: Mapping[str, Any]) -> bool:
        return _insisting(lambda: super(Executions, self).succeed(token, output))

    def fail(self, token: str, error: str, cause: str) -> bool:
        if error == "States.Timeout":
            return _insisting(lambda: _time_is_over(token))
        return _insisting(lambda: super(Executions, self).fail(token, error, cause))

    def _made(self, workflow: str) -> str:
        with self._lock:
            if workflow not in self._machines:
                asl = json.dumps(self._definitions.unit(workflow).asl)
                name = f"m{time.time_ns()}"
                made = self._states.create_state_machine(name=name, definition=asl, roleArn=ROLE)
                self._machines[workflow] = made["stateMachineArn"]
            return self._machines[workflow]

    def forget(self) -> None:
        for arn in self._machines.values():
            self._states.delete_state_machine(stateMachineArn=arn)


class Moto:
    """Runs compiled machines on moto, one at a time in a process. Make it within ``with on_moto():``."""

    def __init__(self) -> None:
        self.client = boto3.client("stepfunctions", region_name="us-east-1")

    def run(self, unit: Unit, seed: int, hold: Hold | None = None) -> Result:
        """Run the machine to its end. Raises AssertionError when it gets stuck, waits needlessly, or breaks a rule."""
        engine = Executions(self.client, Generated(unit))
        barred: list[str] = []

        def tool(arguments: dict[str, Any], call: Any) -> Any:
            if hold and call.path == hold.path and call.attempt == 1:
                barred.extend(_wait_for(world, hold))
            if unit.manifest.slots:
                time.sleep(BUSY)
            return behave(arguments, call)

        world = world_of(unit, tool, engine=engine, clock=Hurried())
        with _invoking(world):
            start(world, seed)
            self._drive(world, engine, seed)
        engine.forget()
        assert not barred, f"while {hold.path if hold else ''} does not return, these wait without need: {barred}"
        return finished(world)

    def _drive(self, world: World, engine: Executions, seed: int) -> None:
        """Be the people and the unwind machine until all runs have ended."""
        deadline = time.process_time() + patience(world.unit.manifest)
        running = True
        while running or not world.head.ended:
            act(world.steps, world.journal, seed, UNWIND)
            unwinding = [data for data in list(engine.unwinding.values()) if _unwind(world, data)]
            if time.process_time() > deadline or not (running or unwinding or world.head.ended):
                states = [_status(execution) for execution in engine.started]
                raise Stuck(f"moto: the executions are {states}, the run {world.head.state}")
            time.sleep(0.004)
            running = any(_status(execution) == "RUNNING" for execution in list(engine.started))


@contextmanager
def on_moto() -> Iterator[Moto]:
    """Yield moto's Step Functions, with waits that take no time."""
    settings: Any = {"stepfunctions": {"execute_state_machine": True}, "lambda": {"use_docker": False}}
    parse = functools.lru_cache(maxsize=1)(_quickly(AmazonStateLanguageParser.parse))
    with (
        mock_aws(config=settings),
        mock.patch.object(WaitFunction, "_wait_interval", _wait),
        mock.patch.object(AmazonStateLanguageParser, "parse", parse),
        # Moto names its threads after whole programs, written out; and those of a branch that was cut off end loudly.
        mock.patch.object(Component, "__str__", lambda self: type(self).__name__),
        mock.patch.object(threading, "excepthook", _quiet),
    ):
        yield Moto()


def _quickly(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Parse without garbage collection and with ANTLR's fast prediction: parsing is most of moto's time.

    Moto parses twice, to validate and to execute, hence the cache around this.
    """

    def parsed(definition: str) -> Any:
        gc.disable()
        try:
            with mock.patch.object(ASLParser, "__init__", _fast):
                return parse(definition)
        finally:
            gc.enable()

    return parsed


_MADE = ASLParser.__init__


def _fast(parser: Any, *arguments: Any) -> None:
    _MADE(parser, *arguments)
    parser._interp.predictionMode = PredictionMode.SLL


def _status(execution: str) -> str:
    """Return an execution's status, as DescribeExecution would, but without the cost of a request."""
    account, region = execution.split(":")[4], execution.split(":")[3]
    found = stepfunctions_parser_backends[account][region].describe_execution(execution)
    return str(found.exec_status.value)


def _insisting(send: Callable[[], bool]) -> bool:
    """Send an answer again while moto, which looks for its token in all executions, trips over one just starting."""
    for _ in range(500):
        try:
            return send()
        except AttributeError:
            time.sleep(0.002)
    return send()


def _time_is_over(token: str) -> bool:
    """Let a task's time be over: moto takes no failure that is named so, and its own timers run in real time."""
    for regions in stepfunctions_parser_backends.values():
        for backend in regions.values():
            for execution in backend._get_executions():
                endpoint = execution.exec_worker.env.callback_pool_manager.get(token)
                if endpoint:
                    endpoint.interrupt_all()
                    return True
    return False


def _quiet(given: threading.ExceptHookArgs) -> None:
    if "ProgramStopped" not in str(given.exc_value):
        sys.__excepthook__(given.exc_type, given.exc_value or given.exc_type(), given.exc_traceback)


def _wait(_: Any, env: Any, wait_seconds: int) -> None:
    time.sleep((wait_seconds + 0.5) / PACE)


@contextmanager
def _invoking(world: World) -> Iterator[None]:
    """Let moto's Lambda tasks call the world's handlers."""

    def invoke(*, parameters: dict[str, Any], **_: Any) -> dict[str, Any]:
        try:
            answer = world.call(parameters["FunctionName"], json.loads(parameters["Payload"]))
        except Exception as error:  # noqa: BLE001 - as Lambda reports any error
            payload = {"errorType": type(error).__name__, "errorMessage": str(error)}
            return {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": payload}
        return {"StatusCode": 200, "Payload": json.loads(json.dumps(answer))}

    with mock.patch.object(lambda_eval_utils, "_invoke_lambda_function", invoke):
        yield


def _unwind(world: World, data: dict[str, Any]) -> bool:
    """Take one turn of the unwind machine. Returns whether there is more to do."""
    event = {**data, "entered": f"{time.time_ns()}", "retry": 0}
    answer = world.call("${ControlFunction}", {**event, "op": "unwind"})
    if answer["action"] in {"compensate", "probe"}:
        world.call("${StepFunction}", {**event, "op": answer["action"], "step": answer["step"]})
    return answer["action"] != "done"


def _done(world: World) -> frozenset[str]:
    return settled(family(world.steps, world.journal))


def _wait_for(world: World, hold: Hold) -> list[str]:
    """Wait until the other steps have settled; return those that do not."""
    deadline = time.process_time() + hold.patience
    while not world.run:
        time.sleep(0.001)  # the first step may be called before its run's id has come back
    while (missing := hold.others - _done(world)) and time.process_time() < deadline:
        time.sleep(0.003)
    return sorted(missing)
