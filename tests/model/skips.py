"""Skips of steps that a Choice jumps over: S1 and S2 settle, so X (join all of both) and Y behind it never run.

Nobody enters X and Y, yet both must be recorded once, and an await that needs Y must wake. Whoever settles a source
writes each skip that has become certain, if it is absent, and then wakes; a redelivery repeats this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.explorer import Actor, Model, Move, State

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = ("S1", "S2")
AWAIT = "W"


class Task(NamedTuple):
    """What the engine knows about one task."""

    attempt: int = 1
    status: str = "running"


class World(NamedTuple):
    """Which steps have a record, how often a skip was written, the await's token, and the engine's tasks."""

    settled: frozenset[str] = frozenset()
    writes: tuple[str, ...] = ()
    token: int = 0
    tasks: tuple[tuple[str, Task], ...] = tuple((name, Task()) for name in (*SOURCES, AWAIT))

    def task(self, name: str) -> Task:
        return dict(self.tasks)[name]

    def with_task(self, name: str, **changes: Any) -> World:
        return self._replace(
            tasks=tuple((key, task._replace(**changes) if key == name else task) for key, task in self.tasks)
        )


class Skips(Model):
    """``repeats``: a redelivered source that has settled already propagates again."""

    def __init__(self, *, propagates: bool = True, repeats: bool = True) -> None:
        self.propagates, self.repeats = propagates, repeats
        self.programs = {"step": self.run_step, "await": self.run_await}

    def start(self):
        return World(), (*(Actor("step", name, 1) for name in SOURCES), Actor("await", AWAIT, 1))

    def run_step(self, actor: Actor):
        if not (yield ("settle",)) and not self.repeats:
            return "done"
        if self.propagates and (yield ("settled", *SOURCES)):
            yield ("skip", "X")
            yield ("skip", "Y")
        token = yield ("read_token",)
        if token and (yield ("settled", "Y")):
            yield ("send", token)
        return "done"

    def run_await(self, actor: Actor):
        if (yield ("register",)) == "newer":
            return "parked"
        if (yield ("settled", "Y")):
            yield ("send", actor.attempt)
        return "parked"

    def settled(self, world: World, actor: Actor, *names: str):
        return world, world.settled.issuperset(names)

    def settle(self, world: World, actor: Actor):
        return world._replace(settled=world.settled | {actor.task}), actor.task not in world.settled

    def skip(self, world: World, actor: Actor, name: str):
        if name in world.settled:
            return world, None
        return world._replace(settled=world.settled | {name}, writes=(*world.writes, name)), None

    def read_token(self, world: World, actor: Actor):
        return world, world.token

    def register(self, world: World, actor: Actor):
        if world.token > actor.attempt:
            return world, "newer"
        return world._replace(token=actor.attempt), "registered"

    def send(self, world: World, actor: Actor, token: int):
        task = world.task(AWAIT)
        valid = task.attempt == token and task.status in {"running", "parked"}
        return (world.with_task(AWAIT, status="done") if valid else world), None

    def returned(self, world: World, actor: Actor, value: str):
        return self._if_valid(world, actor, value)

    def died(self, world: World, actor: Actor):
        return self._if_valid(world, actor, "again")

    def _if_valid(self, world: World, actor: Actor, status: str) -> World:
        valid = world.task(actor.task) == Task(actor.attempt, "running")
        return world.with_task(actor.task, status=status) if valid else world

    def environment(self, state: State) -> Iterator[Move]:
        for name, task in state.world.tasks:
            given_up = task.status == "running"
            if task.status == "again" or (given_up and state.faults):
                world = state.world.with_task(name, attempt=task.attempt + 1, status="running")
                actor = Actor("await" if name == AWAIT else "step", name, task.attempt + 1)
                after = State(world, (*state.actors, actor), state.faults - given_up)
                yield Move(f"{name} delivered again", after, optional=given_up)

    def always(self, world: World) -> Iterator[str]:
        if len(set(world.writes)) < len(world.writes):
            yield "skip recorded twice"

    def at_rest(self, world: World) -> Iterator[str]:
        if not world.settled.issuperset({"X", "Y"}):
            yield "skipped steps have no record"
        if world.task(AWAIT).status != "done":
            yield "await asleep"
