"""Walks compiled machines over fakes, in one thread, with a clock that jumps: whole runs in milliseconds.

It knows what our machines use (Task, Choice, Wait, Parallel, Succeed, Fail; Retry for infrastructure errors; Catch;
task tokens), and nothing more. A machine that waits for tokens stops at them and goes on when one is answered.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.runtime.breaker import Breakers
from shared.runtime.gates import run_gate
from shared.runtime.host import StepHost
from shared.runtime.journal import Journal, Snapshot
from shared.runtime.mailing import GateHost
from shared.runtime.operations import control
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.steps import run_step
from shared.runtime.task import parse_task
from shared.runtime.tiers import why
from shared.settings import Person
from shared.testing import (
    Bulletin,
    FakeEngine,
    FakeModels,
    FakeTools,
    FixedDefinitions,
    FrozenClock,
    MemoryBlobs,
    MemoryStore,
    Outbox,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Walk = Generator[tuple[str, ...], None, Any]

    from shared.compiler import Unit
    from shared.ledger.records import Head
    from shared.runtime.host import Definitions

UNWIND = "machine:unwind"
LAMBDA_SECONDS = 900
LEADS = (Person("Lena Lead", "LL", "lena@example.test"),)
FINANCE = (Person("Fatima Ortiz", "FO", "fatima@example.test"), Person("Ben Kim", "BK", "ben@example.test"))


NEW_STORE: list[Callable[[], Any]] = [MemoryStore]
"""What makes a world's store: the last one. ``stores`` adds the product's own."""


def _new_store() -> Any:
    return NEW_STORE[-1]()


class Killed(BaseException):
    """The process died: nothing after this point happened, and the engine sees ``Runtime.ExitError``."""


class TimedOut(BaseException):
    """The engine gave the task up; what its process does later is another matter."""


class TaskError(Exception):
    """A state failed with an error name."""

    def __init__(self, name: str, cause: str = "") -> None:
        super().__init__(f"{name}: {cause}")
        self.name, self.cause = name, cause


@dataclass
class Context:
    """Lambda's context object."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        return LAMBDA_SECONDS * 1000


@dataclass
class World:
    """Everything a deployment has, as fakes, with one published workflow.

    ``patient`` = executions stop at their waits as well, so that others can go on meanwhile. ``breaks`` = runs share
    circuit breakers.
    """

    unit: Unit
    models: FakeModels
    tools: FakeTools
    store: MemoryStore = field(default_factory=_new_store)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    clock: FrozenClock = field(default_factory=FrozenClock)
    engine: FakeEngine = field(default_factory=FakeEngine)
    mail: Outbox = field(default_factory=Outbox)
    bus: Bulletin = field(default_factory=Bulletin)
    tenant: str = "acme"
    run: str = ""
    patient: bool = False
    breaks: bool = False
    _ids: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        definitions = FixedDefinitions(self.unit.manifest)
        ports = {name: getattr(self, name) for name in ("store", "blobs", "clock", "engine")} | {
            "definitions": definitions
        }
        breakers = Breakers(self.store, self.clock) if self.breaks else None
        self.steps = StepHost(**ports, models=self.models, tools=self.tools, breakers=breakers)
        people = {"finance": FINANCE, "finance_lead": LEADS}
        self.gates = GateHost(**ports, mail=self.mail, letters=_letter, approvers=people)

    def define(self, definitions: Definitions) -> World:
        """Let the hosts know these definitions instead of only the world's own."""
        for host in (self.steps, self.gates):
            object.__setattr__(host, "definitions", definitions)
        return self

    def before_retry(self, seconds: float) -> None:
        """Let the pause pass after which the engine delivers a task once more."""
        self.clock.sleep(seconds)

    def start(self, data: dict[str, Any], key: str | None = None) -> Execution:
        published = self.steps.definitions.published(self.unit.manifest.workflow)
        self.run, _ = start_run(self.steps, published, StartRequest(self.tenant, "alex@example.test", "api", data, key))
        return self.execution()

    def execution(self) -> Execution:
        name = (f"machine:{self.unit.manifest.workflow}:1", f"{self.run}.{self.head.epoch}")
        return Execution(self, self.unit.asl, self.engine.executions[name])

    def unwind(self, word: Callable[[], object] | None = None) -> Execution:
        """Unwind the run; whenever that waits for a person, they say their ``word``, and it goes on at once."""
        from shared.compiler import unwind_machine  # noqa: PLC0415

        unwinding = Execution(self, unwind_machine(), self.engine.executions[UNWIND, f"{self.run}.{self.head.epoch}"])
        while word and unwinding.waiting:
            word()
            assert self.engine.answers[-1][0] in unwinding.waiting, "the word woke nobody"
            unwinding.go()
        return unwinding

    @property
    def journal(self) -> Journal:
        return Journal(self.store, self.clock, self.tenant, self.run)

    @property
    def head(self) -> Head:
        return self.records.head

    @property
    def records(self) -> Snapshot:
        return self.journal.read_all()

    def call(self, function: str, event: dict[str, Any]) -> Any:
        task = parse_task(event, Context(f"request-{next(self._ids)}"), self.clock.now())
        if function == "${StepFunction}":
            return run_step(self.steps, task)
        if function == "${GateFunction}":
            return run_gate(self.gates, task)
        return control(self.steps, task, UNWIND)


def _letter(gate: Any, run: Any, person: Person, shown: Any) -> Any:
    from shared.ports import Message  # noqa: PLC0415

    return Message(person.email, f"{why(gate, person.email)}: {gate.subject}", json.dumps(shown), "", {})


class Execution:
    """One execution: goes as far as it can; ``waiting`` are the tokens it then waits for."""

    def __init__(self, world: World, machine: dict[str, Any], data: dict[str, Any]) -> None:
        self.world = world
        self.input = data
        self.visited: list[str] = []
        self.waiting: tuple[str, ...] = ()
        self.status = "RUNNING"
        self._walk = self._machine(machine, data)
        self._tokens = itertools.count(1)
        self.go()

    def go(self) -> Execution:
        """Go on with the answers that have arrived."""
        try:
            self.waiting = next(self._walk)
        except StopIteration:
            self.status, self.waiting = "SUCCEEDED", ()
        except TaskError as error:
            self.status, self.waiting = f"FAILED {error.name}", ()
        return self

    def expire(self) -> Execution:
        """Let the waiting tokens time out."""
        self.world.engine.answers += [
            (token, "failure", {"error": "States.Timeout", "cause": ""}) for token in self.waiting
        ]
        self.world.engine.gone |= set(self.waiting)
        return self.go()

    def _machine(self, machine: dict[str, Any], data: dict[str, Any]) -> Walk:
        name, data = machine["StartAt"], dict(data)
        while name:
            state = machine["States"][name]
            self.visited.append(name)
            assert len(self.visited) < 5000, f"the machine runs in circles: {self.visited[-12:]}"
            try:
                following = yield from getattr(self, f"_{state['Type'].lower()}")(name, state, data)
            except TaskError as error:
                following = self._caught(state, error, data)
            name = following

    def _caught(self, state: dict[str, Any], error: TaskError, data: dict[str, Any]) -> str:
        for catcher in state.get("Catch", ()):
            if {"States.ALL", error.name} & set(catcher["ErrorEquals"]):
                _put(data, catcher.get("ResultPath"), {"Error": error.name, "Cause": error.cause})
                return catcher["Next"]
        raise error

    def _task(self, name: str, state: dict[str, Any], data: dict[str, Any]) -> Walk:
        entered, retries = f"{self.world.clock.now()}-{len(self.visited):04d}", 0
        while True:
            try:
                result = yield from self._tried(state, data, entered, retries)
                break
            except TaskError as error:
                seconds = _pause(state, error, retries)
                if seconds is None:
                    raise
                retries += 1
                self.world.before_retry(seconds)
        selected = {key[:-2]: _get(result, path) for key, path in state.get("ResultSelector", {}).items()}
        _put(data, state.get("ResultPath"), selected or result)
        return state.get("Next", "")

    def _tried(self, state: dict[str, Any], data: dict[str, Any], entered: str, retries: int) -> Walk:
        token = f"token-{id(self)}-{next(self._tokens)}" if "waitForTaskToken" in state["Resource"] else ""
        there = {"run": self.input["run"], "entered": entered, "token": token, "retries": retries}
        result = self._invoke(state, data, there)
        return (yield from self._answer(token)) if token else result

    def _invoke(self, state: dict[str, Any], data: dict[str, Any], there: dict[str, Any]) -> Any:
        parameters = state["Parameters"]
        try:
            event = json.loads(json.dumps(_filled(parameters["Payload"], data, there)))
            return {"Payload": self.world.call(parameters["FunctionName"], event)}
        except Killed as killed:
            raise TaskError("Runtime.ExitError", "the process ended") from killed
        except TimedOut as over:
            # A parked task outlasts its function, which then ends by Lambda's own time-out.
            raise TaskError("Sandbox.Timedout" if there["token"] else "States.Timeout") from over
        except Exception as error:
            raise TaskError(type(error).__name__, str(error)) from error

    def _answer(self, token: str) -> Walk:
        while True:
            for answered, kind, data in self.world.engine.answers:
                if answered == token:
                    if kind == "failure":
                        raise TaskError(data["error"], data["cause"])
                    return data
            yield (token,)

    def _choice(self, _name: str, state: dict[str, Any], data: dict[str, Any]) -> Walk:
        yield from ()
        for choice in state["Choices"]:
            if _get(data, choice["Variable"]) == choice["StringEquals"]:
                return choice["Next"]
        return state["Default"]

    def _wait(self, _name: str, state: dict[str, Any], data: dict[str, Any]) -> Walk:
        if self.world.patient:
            yield ()
        self.world.clock.sleep(_get(data, state["SecondsPath"]))
        return state["Next"]

    def _parallel(self, _name: str, state: dict[str, Any], data: dict[str, Any]) -> Walk:
        given = self._given(state.get("Parameters"), data)
        yield from self._together([self._machine(branch, given) for branch in state["Branches"]])
        return state.get("Next", "")

    def _map(self, _name: str, state: dict[str, Any], data: dict[str, Any]) -> Walk:
        body = state["ItemProcessor"]
        items = _get(data, state["ItemsPath"])
        walks = [self._machine(body, self._given(state["ItemSelector"], data, one)) for one in items]
        yield from self._together(walks, state["MaxConcurrency"])
        return state.get("Next", "")

    def _given(self, template: dict[str, Any] | None, data: dict[str, Any], item: Any = None) -> dict[str, Any]:
        there = {"run": self.input["run"], "entered": "", "token": "", "retries": 0, "item": item}
        return data if template is None else _filled(template, data, there)

    def _together(self, running: list[Walk], limit: int = 0) -> Walk:
        while running:
            tokens, before = list[str](), len(running)
            for branch in running[: limit or None]:
                try:
                    tokens += next(branch)
                except StopIteration:
                    running.remove(branch)
            # Who has ended makes room for the next one.
            if running and not self._any_answered(tokens) and not (limit and len(running) < before):
                yield tuple(tokens)

    def _any_answered(self, tokens: list[str]) -> bool:
        return bool({answer[0] for answer in self.world.engine.answers} & set(tokens))

    def _succeed(self, *_: Any) -> Walk:
        yield from ()
        return ""

    def _fail(self, _name: str, state: dict[str, Any], _data: dict[str, Any]) -> Walk:
        yield from ()
        raise TaskError(state["Error"], state["Cause"])


def _pause(state: dict[str, Any], error: TaskError, retries: int) -> float | None:
    """Return the seconds before the engine's own retry; None = it does not retry this."""
    for retrier in state.get("Retry", ()):
        if {"States.ALL", error.name} & set(retrier["ErrorEquals"]):
            within = retries < retrier["MaxAttempts"]
            return (
                min(retrier.get("IntervalSeconds", 1) * 2**retries, retrier.get("MaxDelaySeconds", 60))
                if within
                else None
            )
    return None


def _filled(template: dict[str, Any], data: dict[str, Any], there: dict[str, Any]) -> dict[str, Any]:
    context = {
        "$$.Execution.Input.run": there["run"],
        "$$.State.EnteredTime": there["entered"],
        "$$.State.RetryCount": there["retries"],
        "$$.Task.Token": there["token"],
        "$$.Map.Item.Value": there.get("item"),
    }

    def fill(key: str, value: Any) -> Any:
        if not key.endswith(".$"):
            return value
        if value.startswith("States.Format("):
            pattern, *paths = value.removeprefix("States.Format(").removesuffix(")").split(", ")
            return pattern.strip("'").format(*(fill(".$", path) for path in paths))
        return context[value] if value in context else _get(data, value)

    return {key.removesuffix(".$"): fill(key, value) for key, value in template.items()}


def _get(data: Any, path: str) -> Any:
    for part in path.split(".")[1:]:
        data = data[part]
    return data


def _put(data: dict[str, Any], path: str | None, value: Any) -> None:
    if path is None:
        return
    *parents, last = path.split(".")[1:]
    for part in parents:
        data = data.setdefault(part, {})
    data[last] = value
