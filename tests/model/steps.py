"""The step protocol: sources that open, call and close, and one step that awaits them all.

``Sound`` is the protocol of the design: open and close are one transaction each. ``Naive`` does the same with one
write after the other (reserve, intent, execute, commit, settle). Every attempt reserves and costs 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.explorer import LOST, Actor, Model, Move, State, lapse, put

if TYPE_CHECKING:
    from collections.abc import Iterator

AWAIT = "W"
LATER = {"error", "refused"}
"""Ends of a program after which the engine delivers again, as it does after ``later``."""


class Step(NamedTuple):
    """A step's item. ``over`` says that its holder's lease is over; ``effects`` is what the far side has seen."""

    status: str = "new"
    fence: int = 0
    holder: int = 0
    over: bool = False
    held: bool = False
    effects: int = 0
    closed_by: int = 0
    redispatched: bool = False


class Task(NamedTuple):
    """What the engine knows: which attempt is the valid one, and how the task stands."""

    attempt: int = 1
    status: str = "running"


class World(NamedTuple):
    """The head, the step items, the log, the await's registered token, and the engine's tasks."""

    steps: tuple[Step, ...]
    tasks: tuple[Task, ...]
    limit: int
    reserved: int = 0
    spent: int = 0
    open: int = 0
    seq: int = 0
    log: frozenset[int] = frozenset()
    token: int = 0

    def step(self, index: int, **changes: Any) -> World:
        return self._replace(steps=put(self.steps, index, **changes))

    def task(self, index: int, **changes: Any) -> World:
        return self._replace(tasks=put(self.tasks, index, **changes))

    def event(self) -> World:
        return self._replace(seq=self.seq + 1, log=self.log | {self.seq + 1})

    def fits(self) -> bool:
        return self.spent + self.reserved < self.limit

    def reserve(self) -> World:
        return self._replace(reserved=self.reserved + 1, open=self.open + 1)

    def charge(self) -> World:
        return self._replace(reserved=self.reserved - 1, spent=self.spent + 1, open=self.open - 1)


class Protocol(Model):
    """What both protocols share: the await, the engine, the person, the invariants."""

    unrepeated = frozenset({"call"})

    def __init__(self, risk: str, sources: int = 1, limit: int = 9) -> None:
        self.risk, self.sources, self.limit = risk, sources, limit
        self.programs = {"step": self.run_step, "await": self.run_await}

    def start(self):
        tasks = (Task(),) * (self.sources + 1)
        actors = tuple(Actor("step", str(index), 1) for index in range(self.sources))
        return World((Step(),) * self.sources, tasks, self.limit), (*actors, Actor("await", AWAIT, 1))

    def index(self, actor: Actor) -> int:
        return self.sources if actor.task == AWAIT else int(actor.task)

    # Programs

    def run_step(self, actor: Actor):
        raise NotImplementedError

    def wake(self):
        """After a commit: answer the await if all its sources have settled."""
        token = yield ("read token",)
        if token and (yield ("all settled",)):
            yield ("send", token)

    def run_await(self, actor: Actor):
        """Register first, then look: whoever settles afterwards finds the token."""
        if (yield ("register",)) == "newer":
            return "parked"
        if (yield ("all settled",)):
            yield ("send", actor.attempt)
        return "parked"

    # Operations

    def call(self, world: World, actor: Actor, fence: int):
        index = self.index(actor)
        step = world.steps[index]
        if self.risk == "reversible" and step.effects:
            return world, "result"  # the far side knows the idempotency key
        return world.step(index, effects=step.effects + 1), "result"

    def read_token(self, world: World, actor: Actor):
        return world, world.token

    def all_settled(self, world: World, actor: Actor):
        return world, all(step.status == "completed" for step in world.steps)

    def register(self, world: World, actor: Actor):
        if world.token > actor.attempt:
            return world, "newer"
        return world._replace(token=actor.attempt), "registered"

    def send(self, world: World, actor: Actor, token: int):
        task = world.tasks[self.sources]
        valid = task.attempt == token and task.status in {"running", "parked"}
        return (world.task(self.sources, status="done") if valid else world), None

    # Engine, person, clock

    def returned(self, world: World, actor: Actor, value: str):
        index = self.index(actor)
        task = world.tasks[index]
        valid = task.attempt == actor.attempt and task.status == "running"
        return world.task(index, status="later" if value in LATER else value) if valid else world

    def died(self, world: World, actor: Actor):
        index = self.index(actor)
        task = world.tasks[index]
        valid = task.attempt == actor.attempt and task.status == "running"
        return world.task(index, status="again") if valid else world

    def environment(self, state: State) -> Iterator[Move]:
        for index, task in enumerate(state.world.tasks):
            yield from self.engine(state, index, task)
        for index, step in enumerate(state.world.steps):
            yield from lapse(state, index, step)
            yield from self.person(state, index, step)

    def engine(self, state: State, index: int, task: Task) -> Iterator[Move]:
        name = AWAIT if index == self.sources else str(index)
        if task.status == "again" or (task.status == "later" and self.worth_a_try(state.world.steps[index])):
            yield Move(f"{name} delivered again", self.deliver(state, index, name))
        if task.status == "running" and state.faults:
            given_up = self.deliver(state, index, name)._replace(faults=state.faults - 1)
            yield Move(f"{name} given up by the engine, its process lives on", given_up, optional=True)

    def worth_a_try(self, step: Step) -> bool:
        return step.over or step.status != "intent" or self.risk == "read"

    def deliver(self, state: State, index: int, name: str) -> State:
        attempt = state.world.tasks[index].attempt + 1
        actor = Actor("await" if name == AWAIT else "step", name, attempt)
        world = state.world.task(index, attempt=attempt, status="running")
        return state._replace(world=world, actors=(*state.actors, actor))

    def person(self, state: State, index: int, step: Step) -> Iterator[Move]:
        """A person answers an unknown outcome with what is true at that moment."""
        if step.status != "unknown" or state.world.tasks[index].status != "unknown" or step.redispatched:
            return
        happened = step.effects > 0
        changes = {"status": "completed"} if happened else {"status": "new", "redispatched": True}
        world = state.world.step(index, **changes).task(index, status="again")
        yield Move(
            f"person: {index} did {'' if happened else 'not '}happen", state._replace(world=world), act=("person",)
        )

    # Invariants

    def always(self, world: World) -> Iterator[str]:
        if world.reserved < 0 or world.open < 0:
            yield "released twice"
        if world.spent + world.reserved > world.limit:
            yield "over the limit"
        if self.risk == "irreversible" and any(step.effects > 1 for step in world.steps):
            yield "irreversible effect twice"

    def at_rest(self, world: World) -> Iterator[str]:
        if world.reserved:
            yield "reserved at rest"
        if world.open:
            yield "open at rest"
        if world.log != frozenset(range(1, world.seq + 1)):
            yield "gap in the log"
        if all(step.status == "completed" for step in world.steps) and world.tasks[-1].status != "done":
            yield "await asleep although all has settled"
        yield from self.tasks_at_rest(world)

    def tasks_at_rest(self, world: World) -> Iterator[str]:
        for step, task in zip(world.steps, world.tasks, strict=False):
            if task.status not in {"done", "unknown", "paused"}:
                yield "step stuck"
            if task.status == "done" and step.effects == 0:
                yield "completed without effect"
            if task.status == "paused" and world.spent < world.limit:
                yield "paused although the work fits"


class Sound(Protocol):
    """open · call · close, each transaction on HEAD, STEP and EVENT at once."""

    def run_step(self, actor: Actor):
        fence = yield ("open_step",)
        if fence == "completed":
            yield from self.wake()
            return "done"
        if fence in {"later", "unknown", "paused"}:
            return fence
        if (yield ("call", fence)) in {LOST, "lease over"}:
            return "error"
        if (yield ("close", fence)) == "refused":
            return "refused"
        yield from self.wake()
        return "done"

    def open_step(self, world: World, actor: Actor):
        index = self.index(actor)
        step = world.steps[index]
        if step.status in {"completed", "unknown"}:
            return world, step.status
        if step.status == "intent":
            if step.holder == actor.attempt:
                return world, step.fence
            return self.take_over(world, index, actor)
        return self.admit(world, index, actor)

    def take_over(self, world: World, index: int, actor: Actor):
        step = world.steps[index]
        if not step.over and self.risk != "read":
            return world, "later"
        if self.risk == "irreversible":
            lost = {"status": "unknown", "held": False, "fence": step.fence + 1}
            return world.charge().step(index, **lost).event(), "unknown"
        # Whether or not the next attempt fits, what the lost one holds is charged, and its fence is over.
        return self.admit(world.charge().step(index, status="new", held=False, fence=step.fence + 1), index, actor)

    def admit(self, world: World, index: int, actor: Actor):
        if not world.fits():
            return world, "paused"
        fence = world.steps[index].fence + 1
        changes = {"status": "intent", "fence": fence, "holder": actor.attempt, "over": False, "held": True}
        return world.reserve().step(index, **changes).event(), fence

    def call(self, world: World, actor: Actor, fence: int):
        step = world.steps[self.index(actor)]
        stale = step.fence != fence and self.risk == "irreversible"
        if stale or (step.over and step.holder == actor.attempt):
            return world, "lease over"
        return super().call(world, actor, fence)

    def close(self, world: World, actor: Actor, fence: int):
        index = self.index(actor)
        step = world.steps[index]
        if step.status == "completed" and step.closed_by == actor.attempt:
            return world, "closed"
        if step.status != "intent" or step.fence != fence:
            return world, "refused"
        return world.charge().step(index, status="completed", held=False, closed_by=actor.attempt).event(), "closed"


class Naive(Protocol):
    """The same steps as separate writes, as one would write them first."""

    def run_step(self, actor: Actor):
        status = yield ("look",)
        if status in {"completed", "unknown"}:
            return "done" if status == "completed" else "unknown"
        seq = yield ("reserve",)
        if not seq:
            return "paused"
        fence = yield ("intend",)
        if fence in {"later", "unknown"}:
            return fence
        if (yield ("call", fence)) == LOST:
            return "error"
        if (yield ("commit", fence, seq)) == "refused":
            return "refused"
        yield ("settle",)
        yield from self.wake()
        return "done"

    def look(self, world: World, actor: Actor):
        return world, world.steps[self.index(actor)].status

    def reserve(self, world: World, actor: Actor):
        if not world.fits():
            return world, 0
        return world.reserve()._replace(seq=world.seq + 1), world.seq + 1

    def intend(self, world: World, actor: Actor):
        index = self.index(actor)
        step = world.steps[index]
        if step.status != "intent":
            known = {"completed": "later", "unknown": "unknown"}
            return (world, known[step.status]) if step.status in known else self.take(world, index, actor)
        if step.holder == actor.attempt:
            return world, step.fence
        if not step.over:
            return world, "later"
        if self.risk == "irreversible":
            return world.step(index, status="unknown"), "unknown"
        return self.take(world, index, actor)

    def take(self, world: World, index: int, actor: Actor):
        fence = world.steps[index].fence + 1
        return world.step(index, status="intent", fence=fence, holder=actor.attempt, over=False), fence

    def commit(self, world: World, actor: Actor, fence: int, seq: int):
        index = self.index(actor)
        step = world.steps[index]
        if step.status != "intent" or step.fence != fence:
            return world, "refused"
        done = world.step(index, status="completed", closed_by=actor.attempt)
        return done._replace(log=world.log | {seq}), "committed"

    def settle(self, world: World, actor: Actor):
        return world.charge(), None
