"""Slots: more steps than places. Each parks for a slot, opens with it, closes, and its closer gives the place on.

A slot is given by one transaction that counts it on the head and answers the one who waits; it is used by the next
write of its step, and nobody opens without one. Steps are numbered by the longest way to the end, which is served
first. A delivery that is given up goes to the cascade, which frees what the step holds, gives that on, and lets the
step wait for another slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.explorer import Actor, Model, Move, State, lapse, put

if TYPE_CHECKING:
    from collections.abc import Iterator

WAITING = {"running", "parked"}


class Step(NamedTuple):
    """A step's item, and what is registered for it: the valid token, and whether that was answered."""

    status: str = "new"
    slot: bool = False
    fence: int = 0
    holder: int = 0
    over: bool = False
    token: int = 0
    answered: bool = False


class Task(NamedTuple):
    """Where the engine is with a step: its state (slot, step, trouble, done), and how that delivery stands."""

    state: str = "slot"
    attempt: int = 1
    status: str = "running"


class World(NamedTuple):
    """The head's two counters, the steps' items, and the engine's tasks."""

    steps: tuple[Step, ...]
    tasks: tuple[Task, ...]
    open: int = 0
    slots: int = 0

    def step(self, index: int, **changes: Any) -> World:
        return self._replace(steps=put(self.steps, index, **changes))

    def task(self, index: int, **changes: Any) -> World:
        return self._replace(tasks=put(self.tasks, index, **changes))

    def count(self, *, open: int = 0, slots: int = 0) -> World:  # noqa: A002 - the head's name for it
        return self._replace(open=self.open + open, slots=self.slots + slots)


class Slots(Model):
    """The protocol of the design, with ``places`` for ``steps`` steps."""

    def __init__(self, steps: int, places: int) -> None:
        self.count, self.places = steps, places
        self.programs = {"slot": self.run_slot, "step": self.run_step, "trouble": self.run_trouble}

    def start(self):
        """As many as there are places have their slot by now; the others begin to ask."""
        first, rest = self.places, self.count - self.places
        steps = (Step(slot=True, answered=True, token=1),) * first + (Step(),) * rest
        tasks = (Task("step", 2),) * first + (Task(),) * rest
        actors = (Actor(task.state, str(index), task.attempt) for index, task in enumerate(tasks))
        return World(steps, tasks, slots=first), tuple(actors)

    # Programs

    def run_slot(self, actor: Actor):
        """Register first, then look: who registers gives what is free, to itself or to whoever is more urgent."""
        yield ("register",)
        yield from self.give_slots()
        return "parked"

    def give_slots(self):
        if waiting := (yield ("waiting",)):
            yield ("give", waiting)

    def run_step(self, actor: Actor):
        fence = yield ("open",)
        if fence == "later" or (fence != "completed" and (yield ("close", fence)) == "refused"):
            return "trouble"
        yield from self.give_slots()
        return "done"

    def run_trouble(self, actor: Actor):
        yield ("give up",)
        yield from self.give_slots()
        return "slot"

    # Operations

    def register(self, world: World, actor: Actor):
        index = int(actor.task)
        newer = world.steps[index].token > actor.attempt
        return world if newer else world.step(index, token=actor.attempt, answered=False), None

    def waiting(self, world: World, actor: Actor):
        """List who waits; who has just registered looks first whether it has been served already."""
        index = int(actor.task)
        own = world.steps[index]
        if actor.program == "slot" and (own.slot or own.status != "new"):
            return world.step(index, answered=True), ()
        return world, tuple(i for i, step in enumerate(world.steps) if step.token and not step.answered)

    def give(self, world: World, actor: Actor, waiting: tuple[int, ...]):
        """Go through a list that may be old: each is looked at again, until there is no place."""
        for index in waiting:
            step = world.steps[index]
            if step.answered:
                continue
            if step.slot or step.status != "new":
                world = world.step(index, answered=True)
            elif world.open + world.slots < self.places:
                world = self.given(world, index)
            else:
                break
        return world, None

    def given(self, world: World, index: int) -> World:
        return world.step(index, slot=True, answered=True).count(slots=1)

    def open(self, world: World, actor: Actor):
        index = int(actor.task)
        step = world.steps[index]
        if step.status == "intent" and step.holder == actor.attempt:
            return world, step.fence
        if step.status == "completed" or (step.status == "intent" and not step.over):
            return world, "completed" if step.status == "completed" else "later"
        if step.status == "new" and not self.may_open(step):
            return world, "later"
        world = world.count(open=step.status == "new", slots=-step.slot)
        taken = {"status": "intent", "slot": False, "fence": step.fence + 1, "holder": actor.attempt, "over": False}
        return world.step(index, **taken), step.fence + 1

    def may_open(self, step: Step) -> bool:
        """Tell whether the step has its slot: a delivery that was given up has none any more."""
        return step.slot

    def close(self, world: World, actor: Actor, fence: int):
        index = int(actor.task)
        step = world.steps[index]
        if step.fence != fence or step.status == "new":
            return world, "refused"
        if step.status == "completed":
            return world, "closed"
        return world.step(index, status="completed").count(open=-1), "closed"

    def give_up(self, world: World, actor: Actor):
        index = int(actor.task)
        step = world.steps[index]
        if step.status == "intent" and step.over:
            return world.step(index, status="new", fence=step.fence + 1).count(open=-1), None
        return (world.step(index, slot=False).count(slots=-1) if step.slot else world), None

    def sent(self, world: World, index: int) -> World:
        task = world.tasks[index]
        valid = task.state == "slot" and task.attempt == world.steps[index].token and task.status in WAITING
        return world.task(index, state="step", status="due") if valid else world

    # Engine and clocks

    def returned(self, world: World, actor: Actor, value: str):
        if not self.is_valid(world, actor):
            return world
        return world.task(
            int(actor.task), **({"status": value} if value == "parked" else {"state": value, "status": "due"})
        )

    def died(self, world: World, actor: Actor):
        return world.task(int(actor.task), status="due") if self.is_valid(world, actor) else world

    def is_valid(self, world: World, actor: Actor) -> bool:
        return world.tasks[int(actor.task)] == (actor.program, actor.attempt, "running")

    def environment(self, state: State) -> Iterator[Move]:
        for index, task in enumerate(state.world.tasks):
            if task.status == "due" and task.state != "done" and self.worth_a_try(state.world.steps[index], task):
                yield Move(f"{index} is delivered: {task.state}", deliver(state, index, task.state))
            if task.status == "running" and state.faults:
                # A step that takes too long goes to the cascade; anything else is tried again.
                following = deliver(state, index, "slot" if task.state == "slot" else "trouble")
                label = f"{index} given up by the engine, its process lives on"
                yield Move(label, following._replace(faults=state.faults - 1), optional=True)
            yield from lapse(state, index, state.world.steps[index])
            yield from self.stream(state, index)

    def stream(self, state: State, index: int) -> Iterator[Move]:
        """Whatever was answered is sent: by who answered it, or, if that one dies, by the table's stream."""
        if state.world.steps[index].answered and (world := self.sent(state.world, index)) != state.world:
            yield Move(f"the answer to {index} is sent", state._replace(world=world))

    def worth_a_try(self, step: Step, task: Task) -> bool:
        """Tell whether the cascade need not wait any more: it gives up nobody whose lease is not over."""
        return task.state != "trouble" or step.status != "intent" or step.over

    # Invariants

    def always(self, world: World) -> Iterator[str]:
        if sum(step.status == "intent" for step in world.steps) > self.places:
            yield "more open than places"
        counted = (sum(step.status == "intent" for step in world.steps), sum(step.slot for step in world.steps))
        if (world.open, world.slots) != counted:
            yield "the head counts wrong"

    def at_rest(self, world: World) -> Iterator[str]:
        if world.open or world.slots:
            yield "a place is lost"
        elif any(task.status == "parked" for task in world.tasks):
            yield "asleep while a place is free"
        if any(task.state != "done" for task in world.tasks):
            yield "a step never runs"


def deliver(state: State, index: int, what: str) -> State:
    """Have the engine begin a state of a step's task."""
    attempt = state.world.tasks[index].attempt + 1
    world = state.world.task(index, state=what, attempt=attempt, status="running")
    return state._replace(world=world, actors=(*state.actors, Actor(what, str(index), attempt)))
