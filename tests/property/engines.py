"""The engines in this process: the interpreter, the walker of compiled machines, and moto's Step Functions."""

from __future__ import annotations

import functools
import gc
import json
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import boto3
from antlr4 import PredictionMode
from behaviour import behave
from graphs import given
from invariants import check
from machine import UNWIND, World
from moto import mock_aws
from moto.stepfunctions.parser.asl.antlr.runtime.ASLParser import ASLParser
from moto.stepfunctions.parser.asl.component.component import Component
from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.wait_function import WaitFunction
from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser
from moto.stepfunctions.parser.models import stepfunctions_parser_backends
from order import too_early
from outcome import Result, Stuck, result_of
from people import act

from shared.clock import SystemClock
from shared.engine.stepfunctions import StepFunctions
from shared.errors import UnknownOutcome
from shared.inprocess.engine import InProcess
from shared.inprocess.handlers import UNWIND as UNWIND_HERE
from shared.inprocess.handlers import Handlers
from shared.runtime.runs import StartRequest, start_run
from shared.testing import FakeModels, FakeTools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shared.compiler import Unit

PATIENCE = 30.0
"""Seconds that a run may stand still on an engine with real threads."""
ROLE = "arn:aws:iam::123456789012:role/any"
PACE = 200
"""How much faster than real time moto's clock runs; much more, and time runs out for threads that wait for a core."""


@dataclass(frozen=True)
class Hold:
    """A step whose first attempt does not return before all of ``others`` have settled."""

    path: str
    others: frozenset[str]
    patience: float = PATIENCE / 3


def _world(unit: Unit, tool: Callable[..., Any], **ports: Any) -> World:
    return World(unit, FakeModels(lambda _: "yes"), FakeTools({"behave": tool}), **ports)


def _start(world: World, seed: int) -> str:
    published = world.steps.definitions.published(world.unit.manifest.workflow)
    world.run, _ = start_run(
        world.steps, published, StartRequest(world.tenant, "alex@example.test", "api", given(seed), None)
    )
    return world.run


def _finished(world: World) -> Result:
    seen = world.records
    assert seen.head.ended != "stopped", f"the run ended as stopped: {seen.head.reason}"
    check(world)
    early = too_early(world.unit.manifest, seen, world.journal.events())
    assert not early, "; ".join(early)
    return result_of(world.unit.manifest, seen, world.blobs)


# --- the interpreter ---------------------------------------------------------------------------------------------


def interpret(unit: Unit, seed: int, held: str | None = None) -> Result:
    """Run on the interpreter, in one thread. With ``held``, that step parks for ever; the rest goes on without it."""

    def tool(arguments: dict[str, Any], call: Any) -> Any:
        if call.path == held:
            raise UnknownOutcome("held")
        return behave(arguments, call)

    engine = InProcess(workers=0, tenant="acme")
    world = _world(unit, tool, engine=engine)
    engine.open(Handlers(world.steps, world.gates))
    _start(world, seed)
    engine.drain(patience=600)
    while act(world.steps, world.journal, seed, UNWIND_HERE, {held}):
        engine.drain(patience=600)
    assert engine.failure is None, engine.failure
    if held:
        return result_of(unit.manifest, world.records, world.blobs)
    if not world.head.ended:
        raise Stuck(f"the interpreter stands still in state {world.head.state}")
    return _finished(world)


# --- the walker --------------------------------------------------------------------------------------------------


def walk(unit: Unit, seed: int) -> Result:
    """Run the compiled machine on the walker."""
    world = _world(unit, behave)
    _start(world, seed)
    execution = world.execution()
    steps = -1
    while execution.status == "RUNNING" and (
        act(world.steps, world.journal, seed, UNWIND) or steps < len(execution.visited)
    ):
        steps = len(execution.visited)
        execution.go()
    if world.head.unwinding and not world.head.ended:
        world.unwind()
    if not world.head.ended:
        raise Stuck(f"the walker stands still: {execution.status}, {world.head.state}; {execution.visited[-8:]}")
    return _finished(world)


# --- moto --------------------------------------------------------------------------------------------------------


class Hurried(SystemClock):
    """Real time at another pace; ``sleep`` is the runtime's own pause between conflicting writes."""

    def __init__(self) -> None:
        self._begun = time.time()

    def now(self) -> int:
        return int((self._begun + (time.time() - self._begun) * PACE) * 1000)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / 10)


class Executions(StepFunctions):
    """Moto's Step Functions; an unwinding that was asked for is left to the driver."""

    def __init__(self, client: Any, machine: str) -> None:
        super().__init__(client)
        self.machine = machine
        self.unwinding: dict[str, Any] | None = None

    def start(self, machine: str, name: str, data: Mapping[str, Any]) -> None:
        if machine == UNWIND:
            self.unwinding = dict(data)
            return
        super().start(self.machine, name, data)


class Moto:
    """Runs compiled machines on moto, one at a time in a process. Make it within ``with on_moto():``."""

    def __init__(self) -> None:
        self.client = boto3.client("stepfunctions", region_name="us-east-1")
        self.count = 0

    def run(self, unit: Unit, seed: int, hold: Hold | None = None) -> Result:
        """Run the machine to its end. Raises AssertionError when it gets stuck, waits needlessly, or breaks a rule."""
        self.count += 1
        asl = json.dumps(unit.asl)
        made = self.client.create_state_machine(name=f"m{self.count}", definition=asl, roleArn=ROLE)
        engine = Executions(self.client, made["stateMachineArn"])
        barred: list[str] = []

        def tool(arguments: dict[str, Any], call: Any) -> Any:
            if hold and call.path == hold.path and call.attempt == 1:
                barred.extend(_wait_for(world, hold))
            return behave(arguments, call)

        world = _world(unit, tool, engine=engine, clock=Hurried())
        with _invoking(world):
            _start(world, seed)
            execution = f"{engine.machine.replace(':stateMachine:', ':execution:')}:{world.run}.1"
            self._drive(world, engine, seed, execution)
        self.client.delete_state_machine(stateMachineArn=engine.machine)
        assert not barred, f"while {hold.path if hold else ''} does not return, these wait without need: {barred}"
        return _finished(world)

    def _drive(self, world: World, engine: Executions, seed: int, execution: str) -> None:
        """Be the people and the unwind machine until the run has ended."""
        deadline = time.monotonic() + PATIENCE
        status = "RUNNING"
        while status == "RUNNING" or not world.head.ended:
            act(world.steps, world.journal, seed, UNWIND)
            if engine.unwinding and not world.head.ended:
                _unwind(world, engine.unwinding)
            elif status != "RUNNING" or time.monotonic() > deadline:
                raise Stuck(f"moto: the execution is {status}, the run {world.head.state}")
            time.sleep(0.004)
            status = _status(execution)


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


def _unwind(world: World, data: dict[str, Any]) -> None:
    """Take one turn of the unwind machine."""
    event = {**data, "entered": f"{time.time_ns()}", "retry": 0}
    answer = world.call("${ControlFunction}", {**event, "op": "unwind"})
    if answer["action"] == "compensate":
        world.call("${StepFunction}", {**event, "op": "compensate", "step": answer["step"]})


def _done(world: World) -> frozenset[str]:
    return frozenset(step.path for step in world.records.steps() if step.settled)


def _wait_for(world: World, hold: Hold) -> list[str]:
    """Wait until the other steps have settled; return those that do not."""
    deadline = time.monotonic() + hold.patience
    while (missing := hold.others - _done(world)) and time.monotonic() < deadline:
        time.sleep(0.003)
    return sorted(missing)
