"""Plays a route with everybody at once: branches, children, people, streams, processes that were given up.

Before each of its calls to the outside, reads included, everybody gives way to whom the lot falls on. So decisions and
completions come before, during and after the registration that waits for them, twice, and after its time-out; with
faults, answers are lost and processes die besides. Nobody but the engine's own retries repeats anything.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from faults import KINDS, Tap
from invariants import check
from machine import LAMBDA_SECONDS, Execution, Killed, TaskError, _filled, _get
from matrix import done
from play import PAUSE, Play
from routes import ROUTES, SecondTime
from stage import Actor, Stage

from shared.runtime.resuming import Resume, resume_run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Walk = Generator[tuple[str, ...], None, Any]

Mood = Literal["calm", "faulty", "late"]
"""``calm``: nothing but the order, and no stream helps; ``faulty``: calls are struck; ``late``: and slow besides."""
TIMED = ("expire", "time-out", "pay, by expiry", "retried sub-workflow")
"""Routes in which a time-out has its part."""
READS = ("read", "query", "index")
"""Calls that are not struck, but may come at any time."""


@dataclass
class Chance(Tap):
    """Strikes at so many calls, wherever the lot falls."""

    lots: random.Random = field(default_factory=random.Random)
    left: int = 0
    struck: list[str] = field(default_factory=list)
    stage: Stage | None = None
    slow: bool = False

    def kind_of(self, name: str) -> str:
        """Return what strikes at this call, if anything does; first, others may move."""
        assert self.stage
        self.stage.give_way()
        if self.slow and name in {"invoke", "complete"} and self.lots.random() < 0.3:
            self.stage.sleep(self.lots.choice((30, 70, 850)))
        if not self.left or self.lots.random() > 0.03:
            return ""
        self.left -= 1
        self.struck.append(self.lots.choice([kind for kind in KINDS[name] if kind != "stalls"]))
        return self.struck[-1]


class Scattered(Execution):
    """An execution whose branches, and the functions it calls, are actors of their own."""

    def __init__(self, crowd: Crowd, machine: dict[str, Any], data: dict[str, Any]) -> None:
        self.crowd, self.stage, self.machine = crowd, crowd.stage, machine
        super().__init__(crowd.play.world, machine, data)

    def go(self) -> Execution:
        """Begin; from then on the execution goes on by itself."""
        self.stage.spawn("execution", self._run)
        return self

    def _run(self) -> None:
        try:
            list(self._walk)
            self.status = "SUCCEEDED"
        except TaskError as error:
            self.status = f"FAILED {error.name}"
        self.crowd.look()

    def _together(self, running: list[Walk], limit: int = 0) -> Walk:
        yield from ()
        waiting, begun = list(running), list[Actor]()
        try:
            while waiting or not all(actor.over for actor in begun):
                while waiting and (not limit or sum(not actor.over for actor in begun) < limit):
                    begun.append(self.stage.spawn("branch", partial(list, waiting.pop(0)), heard=True))
                ended = sum(actor.over for actor in begun)
                self.stage.until(lambda ended=ended: sum(actor.over for actor in begun) > ended)
                for actor in begun:
                    if actor.error:
                        raise actor.error
        finally:  # of a state that has failed, the other branches are stopped
            for actor in begun:
                actor.stopped = True

    def _wait(self, _name: str, state: dict[str, Any], data: dict[str, Any]) -> Walk:
        yield from ()
        self.stage.sleep(_get(data, state["SecondsPath"]))
        return state["Next"]

    def _tried(self, state: dict[str, Any], data: dict[str, Any], entered: str, retries: int) -> Walk:
        yield from ()
        token = f"token-{id(self)}-{next(self._tokens)}" if "waitForTaskToken" in state["Resource"] else ""
        there = {"run": self.input["run"], "entered": entered, "token": token, "retries": retries}
        due = self.world.clock.now() + state["TimeoutSeconds"] * 1000
        result = self._called(state, data, there, due)
        return self._answered(token, due) if token else result

    def _called(self, state: dict[str, Any], data: dict[str, Any], there: dict[str, Any], due: int) -> Any:
        """Call a function. It goes on when the engine gives it up, until its own time is over."""
        parameters = state["Parameters"]
        event = json.loads(json.dumps(_filled(parameters["Payload"], data, there)))
        name = parameters["FunctionName"]
        call = self.stage.spawn(name, partial(self.world.call, name, event), LAMBDA_SECONDS, heard=True)
        self.stage.until(lambda: call.over, due)
        if not call.over:
            call.rank -= 1  # who is late may well be later still
            self.world.engine.gone.add(there["token"])
            raise TaskError("States.Timeout")
        if isinstance(call.error, Killed):
            raise TaskError("Runtime.ExitError", "the process ended") from call.error
        if call.error:
            raise TaskError(type(call.error).__name__, str(call.error)) from call.error
        return {"Payload": call.result}

    def _answered(self, token: str, due: int) -> Any:
        answers = self.crowd.answers
        self.stage.until(lambda: token in answers(), due)
        if token not in answers():
            self.crowd.overslept.append(token)
            self.world.engine.gone.add(token)
            raise TaskError("States.Timeout")
        kind, data = answers()[token]
        if kind == "failure":
            raise TaskError(data["error"], data["cause"])
        return data


class Crowd:
    """One route, its actors and what is found wrong when nobody can move any more."""

    def __init__(self, route: str, mood: Mood, seed: int) -> None:
        self.route, self.mood = route, mood
        self.lots = random.Random(f"{route} {mood} {seed}")  # noqa: S311 - an order that can be played again
        self.chance = Chance(lots=self.lots, left={"calm": 0, "faulty": self.lots.randint(1, 3), "late": 1}[mood])
        self.play, self.far_side = ROUTES[route].make(self.chance)
        world = self.play.world
        self.stage = Stage(world.clock, self.lots, leaps=0.01 if mood == "late" else 0.0)
        self.chance.stage, self.chance.slow = self.stage, mood == "late"
        for name in READS:
            setattr(world.store, name, self._after_others(getattr(world.store, name)))
        world.store.before_commit = lambda _: self.look()
        self.overslept: list[str] = []
        self._answers: dict[str, tuple[str, Any]] = {}
        self._heard = self._version = 0
        self._asked: tuple[int, set[tuple[str, int]]] = (-1, set())

    def look(self) -> None:
        """Let those look who wait for something to change."""
        self._version += 1

    def _after_others(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            self.stage.give_way()
            return call(*given, **named)

        return called

    def answers(self) -> dict[str, tuple[str, Any]]:
        """Return what the engine was told, by token; of several answers the first counts."""
        told = self.play.world.engine.answers
        for token, kind, data in told[self._heard :]:
            self._answers.setdefault(token, (kind, data))
        self._heard = len(told)
        return self._answers

    def violation(self) -> str | None:
        """Play it, and return what is wrong; None = every promise was kept."""
        self.stage.spawn("caller", self._caller)
        self.stage.spawn("finaliser", self._at_changes(self.play.finalise))
        self.stage.spawn("desk", self._at_changes(self.play.attend, self.play.parked))
        if self.mood != "calm":
            self.stage.spawn("stream", self._at_changes(self.play.stream))
        if isinstance(self.play, SecondTime):
            self.stage.spawn("person below", self._at_changes(self.play.answer_below))
        for number in (1, 2):
            if self.play.act is not Play.expire:
                self.stage.spawn(f"person {number}", self._person)
            if self.play.sends:
                self.stage.spawn(f"sender {number}", self._sender)
            if self.play.resumes:
                self.stage.spawn(f"resumer {number}", self._resumer)
        try:
            self.stage.play(self._launch)
            return self._judged()
        except AssertionError as error:
            return str(error) or repr(error)

    def _caller(self) -> None:
        self.play.start()
        self.look()

    def _launch(self) -> None:
        engine, known = self.play.world.engine, self.play.executions
        for name in [name for name in engine.executions if name not in known]:
            known[name] = Scattered(self, self.play.machine(name[0]), engine.executions[name])

    def _at_changes(self, work: Callable[[], Any], pending: Callable[[], Any] = list) -> Callable[[], None]:
        """Return an actor that works whenever something has changed, and later once more while something is pending."""

        def act() -> None:
            seen = -1
            while True:
                later = self.play.world.clock.now() + PAUSE * 1000 if self.play.world.run and pending() else None
                self.stage.until(lambda seen=seen: self._version != seen, later)
                seen = self._version
                work()

        return act

    def _person(self) -> None:
        known = set[tuple[str, int]]()
        while True:
            self.stage.until(lambda known=frozenset(known): bool(self._open() - known))
            known |= self._open()
            self.play.safely(lambda: self.play.act(self.play))

    def _open(self) -> set[tuple[str, int]]:
        """Return the requests that are open: they are asked once for each call."""
        version, asked = self._asked
        if version != self._version:
            gates = self.play.world.records.gates() if self.play.world.run else ()
            asked = {(gate.id, gate.dispatch) for gate in gates if gate.status == "open"}
            self._asked = self._version, asked
        return asked

    def _sender(self) -> None:
        self.stage.until(lambda: bool(self.play.world.run) and (self.play.early or self.play.awaited()))
        self.play.send()

    def _resumer(self) -> None:
        world = self.play.world
        while True:
            version = self._version
            if world.run and world.head.ended == "failed" and world.head.epoch <= 2:
                self.play.safely(lambda: resume_run(world.steps, world.journal, Resume("ops")))
            self.stage.until(lambda version=version: self._version != version)

    def _judged(self) -> str | None:
        play, struck = self.play, self.chance.struck
        if not play.world.run:
            return None if struck else "there is no run"
        for run in play.runs():
            check(play.seen(run))
            assert play.seen(run).head.ended, f"stuck: {play.seen(run).head}"
        if self.overslept and self.mood != "late" and self.route not in TIMED:
            return f"{len(self.overslept)} waits were ended by their time-out"
        allowed = {ROUTES[self.route].ends} | ({"cancelled"} if "cancel" in struck else set())
        allowed |= {"failed"} if self.mood == "late" or len(struck) > 1 else set()
        if play.world.head.ended not in allowed:
            return f"ended as {play.world.head.ended}: {play.world.head.reason}"
        expected = done(play)
        return None if self.far_side.live == expected else f"{self.far_side.live} effects, by the records {expected}"


def violation(route: str, mood: Mood, seed: int) -> str | None:
    """Play a route in one order, and return what is wrong then; None = every promise was kept."""
    return Crowd(route, mood, seed).violation()
