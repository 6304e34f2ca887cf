"""Resume: the execution of an epoch dies, what it had begun is seen to, and a person begins the next epoch.

``A`` has completed in epoch 1, ``B`` is about to open. An execution may die at any moment, and its processes live on:
they may still close on a valid fence. The event of its end comes once or, with a fault, later once more. The run is
unwound: what is under way is waited for, a call in doubt is for a person to say, and a cancelled run also undoes ``A``.
A request to resume that hears no answer is repeated with its key. Every epoch takes both steps again, with the ledger's
next dispatch where the last one has no result. A dispatch is paid for once, when it opens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.explorer import LOST, Actor, Model, Move, State, put

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = ("A", "B")


class Step(NamedTuple):
    """A step's item, what it was paid for, and per dispatch what the far side has seen of it and not undone."""

    status: str = "new"
    epoch: int = 1
    fence: int = 0
    holder: int = 0
    over: bool = False
    dispatch: int = 0
    doubt: bool = False
    effects: tuple[int, ...] = ()


class World(NamedTuple):
    """Head, steps, what each request has done, and the engine: where the execution stands, and what unwinds it.

    ``attempt`` numbers deliveries; ``wrong`` notes what no operation may do.
    """

    steps: tuple[Step, ...] = (Step("completed", fence=1, dispatch=1, effects=(1,)), Step())
    epoch: int = 1
    ending: str = ""
    ended: bool = False
    completed: bool = False
    keys: tuple[str, ...] = ()
    place: str = "B"
    status: str = "running"
    attempt: int = 1
    dead: int = 0
    events: tuple[int, ...] = ()
    todo: tuple[str, ...] = ()
    wrong: str = ""

    def step(self, name: str, **changes: Any) -> World:
        return self._replace(steps=put(self.steps, STEPS.index(name), **changes))

    def of(self, name: str) -> Step:
        return self.steps[STEPS.index(name)]

    @property
    def open(self) -> bool:
        return any(step.status == "intent" for step in self.steps)


class Resuming(Model):
    """The protocol of the design: ``deaths`` executions may die, ``people`` ask once each to resume.

    ``done``: ``B`` too has completed when exploration begins, and only the last state is left.
    """

    unrepeated = frozenset({"resume"})

    def __init__(
        self, ending: str = "stopped", *, deaths: int = 1, people: tuple[str, ...] = ("ops",), done: bool = False
    ) -> None:
        self.ending, self.deaths, self.people, self.done = ending, deaths, tuple(people), done
        self.programs = {"step": self.run_step, "resume": self.run_resume}

    def start(self):
        world = World(todo=self.people)
        if self.done:
            return world._replace(steps=world.steps[:1] * 2, place="end", status="due"), ()
        return world, (Actor("step", "B 1", 1),)

    # Programs

    def run_step(self, actor: Actor):
        fence = yield ("open",)
        if not isinstance(fence, int):
            return fence
        if (yield ("call", fence)) == "lease over" or (yield ("close", fence)) == "refused":
            return "later"
        return "completed"

    def run_resume(self, actor: Actor):
        """Ask until there is an answer: a client cannot tell a lost one from a request that never came."""
        while (yield ("resume",)) == LOST:
            pass
        return "done"

    # Operations

    def open(self, world: World, actor: Actor):
        name, epoch = placed(actor)
        step = world.of(name)
        if step.status == "completed":
            return world, "completed"
        if step.status == "intent" and step.holder == actor.attempt:
            return world, step.fence
        if self.is_stopped(world, epoch):
            return world, "stopped"
        if step.status == "intent" and not step.over:
            return world, "later"
        return self.opened(world, name, epoch, actor.attempt), step.fence + 1

    def is_stopped(self, world: World, epoch: int) -> bool:
        """Tell whether nothing opens for an execution of this epoch."""
        return bool(world.ending or world.ended) or self.is_earlier(world, epoch)

    def is_earlier(self, world: World, epoch: int) -> bool:
        return world.epoch != epoch

    def opened(self, world: World, name: str, epoch: int, attempt: int) -> World:
        step = world.of(name)
        # An attempt that died in this epoch is repeated with its key; a later epoch makes another call.
        dispatch = step.dispatch if step.epoch == world.epoch and step.dispatch else step.dispatch + 1
        wrong = world.wrong
        if epoch != world.epoch:
            wrong = "an earlier epoch has changed something"
        elif dispatch > step.dispatch and any(step.effects):
            wrong = "dispatched anew though it has happened"
        effects = (*step.effects, 0) if dispatch > step.dispatch else step.effects
        taken = Step("intent", world.epoch, step.fence + 1, attempt, dispatch=dispatch, effects=effects)
        return world.step(name, **taken._asdict())._replace(wrong=wrong)

    def call(self, world: World, actor: Actor, fence: int):
        """Call, which only a holder whose lease is not over does: so the fence is the holder's own still."""
        name, _ = placed(actor)
        step = world.of(name)
        if step.status != "intent" or step.fence != fence or step.over:
            return world, "lease over"
        return world.step(name, effects=(*step.effects[:-1], 1)), "result"  # the far side knows the key

    def close(self, world: World, actor: Actor, fence: int):
        name, _ = placed(actor)
        step = world.of(name)
        if step.status == "completed" and step.holder == actor.attempt:
            return world, "closed"
        if step.status != "intent" or step.fence != fence:
            return world, "refused"
        return world.step(name, status="completed"), "closed"

    def resume(self, world: World, actor: Actor):
        """Begin the next epoch, once for each request."""
        if self.is_repeated(world, actor.task) or not world.ended or world.completed:
            return world, "answer"
        wrong = "one request has resumed twice" if actor.task in world.keys else world.wrong
        world = world._replace(epoch=world.epoch + 1, keys=(*world.keys, actor.task), ended=False, ending="")
        return world._replace(place="A", status="due", wrong=wrong), "answer"

    def is_repeated(self, world: World, key: str) -> bool:
        return key in world.keys

    # Engine, people, clocks

    def returned(self, world: World, actor: Actor, value: str):
        if actor.program == "resume" or not self.is_valid(world, actor):
            return world
        if value != "completed":
            return world._replace(status=value)
        if world.place == "A":
            return world._replace(place="B", status="due")
        return world._replace(place="end", status="due")

    def died(self, world: World, actor: Actor):
        if actor.program == "resume":
            return world._replace(todo=(*world.todo, actor.task))  # who sees an error asks again
        return world._replace(status="due") if self.is_valid(world, actor) else world

    def is_valid(self, world: World, actor: Actor) -> bool:
        return (world.attempt, world.status) == (actor.attempt, "running")

    def environment(self, state: State) -> Iterator[Move]:
        yield from self.engine(state)
        yield from self.ends(state)
        yield from self.unwinding(state)
        for name in STEPS:
            yield from self.clock(state, name, state.world.of(name))
            yield from self.person(state, name, state.world.of(name))
        for key in state.world.todo if state.world.ended and not state.world.completed else ():
            left = tuple(one for one in state.world.todo if one != key)
            asks = State(state.world._replace(todo=left), (*state.actors, Actor("resume", key, 1)), state.faults)
            yield Move(f"{key} asks to resume", asks, optional=key not in state.world.keys)

    def engine(self, state: State) -> Iterator[Move]:
        world = state.world
        if world.place == "end" and world.status == "due":
            last = world._replace(status="done")
            if not self.is_stopped(world, world.epoch):
                last = last._replace(ended=True, completed=True)
            yield Move("the last state", state._replace(world=last))
        elif world.status == "due" or (world.status == "later" and self.worth_a_try(world)):
            yield Move(f"{world.place} is delivered in epoch {world.epoch}", deliver(state))
        if world.status == "running" and state.faults:
            again = deliver(state)._replace(faults=state.faults - 1)
            yield Move("given up by the engine, its process lives on", again, optional=True)

    def worth_a_try(self, world: World) -> bool:
        step = world.of(world.place)
        return step.over or step.status != "intent"

    def ends(self, state: State) -> Iterator[Move]:
        """An execution dies; the event of it is heard of, and perhaps once more."""
        world = state.world
        if world.dead < self.deaths and world.status in {"running", "due", "later"} and not world.ending:
            dead = world._replace(dead=world.dead + 1, status="dead", events=(*world.events, world.epoch))
            yield Move(f"the execution of epoch {world.epoch} dies", state._replace(world=dead), optional=True)
        for epoch in world.events:
            left = tuple(one for one in world.events if one != epoch)
            heard = self.heard(world, epoch)
            yield Move(f"the death of epoch {epoch} is heard of", state._replace(world=heard._replace(events=left)))
            if state.faults:
                twice = State(heard, state.actors, state.faults - 1)
                yield Move(f"the death of epoch {epoch} is heard of, and will be again", twice, optional=True)

    def heard(self, world: World, epoch: int) -> World:
        """Mark the head of a run whose execution has died, unless it is in another epoch by now."""
        if world.ended or world.ending or self.is_earlier(world, epoch):
            return world
        wrong = world.wrong if world.epoch == epoch else "an earlier epoch has changed something"
        return world._replace(ending=self.ending, wrong=wrong)

    def unwinding(self, state: State) -> Iterator[Move]:
        """What the unwind machine does next: give up who is dead, undo what is to be undone, write the end."""
        world = state.world
        if not world.ending:
            return
        if world.open:
            if any(step.over for step in world.steps):
                yield Move("who is dead is given up", state._replace(world=self.drained(world)))
        elif not any(step.doubt for step in world.steps):
            yield Move("undone, and ended", state._replace(world=self.over(world)))

    def drained(self, world: World) -> World:
        for name in STEPS:
            step = world.of(name)
            if step.status == "intent" and step.over:
                world = world.step(name, status="failed", fence=step.fence + 1, doubt=True)
        return world

    def over(self, world: World) -> World:
        for name in STEPS:
            step = world.of(name)
            if step.status == "completed" and world.ending == "cancelled":
                world = world.step(name, status="compensated", effects=(0,) * len(step.effects))
        status = "done" if world.status != "dead" else "dead"
        return world._replace(ended=True, ending="", status=status)

    def clock(self, state: State, name: str, step: Step) -> Iterator[Move]:
        if step.status != "intent" or step.over:
            return
        alive = any(actor.program == "step" and actor.attempt == step.holder for actor in state.actors)
        if not alive or state.faults:
            over = State(state.world.step(name, over=True), state.actors, state.faults - alive)
            yield Move(f"lease of {name} over{', holder stalled' if alive else ''}", over, optional=alive)

    def person(self, state: State, name: str, step: Step) -> Iterator[Move]:
        """A person says what has become of a call in doubt."""
        if step.doubt:
            happened = {"status": "completed"} if step.effects[-1] else {}
            world = state.world.step(name, doubt=False, **happened)
            yield Move(f"person: {name} did {'' if happened else 'not '}happen", state._replace(world=world))

    # Invariants

    def always(self, world: World) -> Iterator[str]:
        if world.wrong:
            yield world.wrong
        if any(sum(step.effects) > 1 for step in world.steps):
            yield "an effect twice"
        if any(step.status == "completed" and not sum(step.effects) for step in world.steps):
            yield "completed without effect"
        if world.ended and (world.open or any(step.doubt for step in world.steps)):
            yield "open at the end"

    def at_rest(self, world: World) -> Iterator[str]:
        if not world.ended:
            yield "it never ends"
        if world.completed and any(step.status != "completed" for step in world.steps):
            yield "completed without a step"


def placed(actor: Actor) -> tuple[str, int]:
    """Return the step and the epoch that a delivery is for."""
    name, epoch = actor.task.split()
    return name, int(epoch)


def deliver(state: State) -> State:
    """Have the engine begin the state at hand of the present execution."""
    world = state.world._replace(attempt=state.world.attempt + 1, status="running")
    actor = Actor("step", f"{world.place} {world.epoch}", world.attempt)
    return state._replace(world=world, actors=(*state.actors, actor))
