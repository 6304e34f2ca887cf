"""Unwinding: a run of two branches, ``B`` and an await of it before ``C``, is ended while they are under way.

``A`` has completed before; all three can be undone. Steps open, call and close as in ``steps``. Once the head is marked
nothing opens any more but compensations. The unwind machine asks again and again what is next: it answers who is
parked, waits until nothing is open or its lease is over, has a person say what became of calls in doubt, undoes what
has completed, the latest first, and writes the one terminal event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.explorer import Actor, Model, Move, State, put

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = ("A", "B", "C")
UNDOES = frozenset({"cancelled", "failed"})
"""Ends that undo what was done; a stopped run keeps it."""
LATER = {"later", "refused"}


class Step(NamedTuple):
    """A step's item: how it stands, when it settled, what the far side has seen of it, and of its compensation."""

    status: str = "new"
    fence: int = 0
    holder: str = ""
    over: bool = False
    seq: int = 0
    effects: int = 0
    undo: str = "new"
    undone: int = 0


class Task(NamedTuple):
    """What the engine knows of a task: its program, and how that delivery stands."""

    program: str
    status: str = "running"
    attempt: int = 1


class World(NamedTuple):
    """Head, steps and engine. ``late`` notes an opening after the mark, ``undos`` the order of compensations."""

    steps: tuple[Step, ...]
    tasks: tuple[tuple[str, Task], ...]
    open: int = 0
    seq: int = 1
    unwinding: str = ""
    ended: tuple[str, ...] = ()
    ended_at: int = 0
    token: int = 0
    late: bool = False
    undos: tuple[str, ...] = ()

    def step(self, name: str, **changes: Any) -> World:
        return self._replace(steps=put(self.steps, STEPS.index(name), **changes))

    def of(self, name: str) -> Step:
        return self.steps[STEPS.index(name)]

    def task(self, name: str, **changes: Any) -> World:
        known = dict(self.tasks)
        known[name] = known[name]._replace(**changes)
        return self._replace(tasks=tuple(known.items()))

    def event(self, opened: int = 0) -> World:
        return self._replace(seq=self.seq + 1, open=self.open + opened)


class Unwinding(Model):
    """The protocol of the design, with an end that is asked for while the run goes on."""

    def __init__(self, ending: str = "cancelled", *, branches: str = "BC") -> None:
        self.ending, self.branches = ending, branches
        self.programs = {
            "step": self.run_step,
            "await": self.run_await,
            "finish": self.run_finish,
            "unwind": self.run_unwind,
            "undo": self.run_undo,
        }

    def start(self):
        first = {"B": Task("step"), "C": Task("await")}
        tasks = {name: first[name] for name in self.branches} | {"run": Task("finish", ""), "end": Task("unwind", "")}
        actors = tuple(Actor(task.program, name, 1) for name, task in tasks.items() if task.status)
        return World((Step("completed", 1, seq=1, effects=1), Step(), Step()), tuple(tasks.items())), actors

    # Programs

    def run_step(self, actor: Actor):
        fence = yield ("open",)
        if fence == "completed":
            yield ("wake",)
        if not isinstance(fence, int):
            return "done" if fence == "completed" else fence
        if (yield ("call", fence)) == "lease over" or (yield ("close", fence)) == "refused":
            return "refused"
        yield ("wake",)
        return "done"

    def run_await(self, actor: Actor):
        yield ("register",)
        yield ("wake",)
        return "parked"

    def run_finish(self, actor: Actor):
        yield ("finish",)
        return "done"

    def run_unwind(self, actor: Actor):
        """One question of the unwind machine; what it is told is decided from what was read first."""
        yield ("answer",)
        seen = yield ("look",)
        if seen == "end":
            yield ("end",)
        return seen

    def run_undo(self, actor: Actor):
        """A compensation is a call like any other, with a key of its own; whatever becomes of it, it is asked again."""
        fence = yield ("open undo",)
        if isinstance(fence, int) and (yield ("call undo", fence)) == "result":
            yield ("close undo", fence)
        return "asks"

    # Operations: the run

    def open(self, world: World, actor: Actor):
        step = world.of(actor.task)
        if step.status == "completed":
            return world, "completed"
        if step.status == "intent" and step.holder == held_by(actor):
            return world, step.fence
        if self.nothing_opens(world) or step.status == "unknown":
            return world, "stopped"
        if step.status == "intent" and not step.over:
            return world, "later"
        # The hold of one who died is charged, and this one opens at once, with the same key.
        world = world.event(opened=step.status != "intent")
        taken = {"status": "intent", "fence": step.fence + 1, "holder": held_by(actor), "over": False}
        late = world.late or bool(world.unwinding or world.ended)
        return world.step(actor.task, **taken)._replace(late=late), step.fence + 1

    def nothing_opens(self, world: World) -> bool:
        return bool(world.unwinding or world.ended)

    def call(self, world: World, actor: Actor, fence: int):
        """Call, which only a holder whose lease is not over does: so the fence is the holder's own still."""
        step = world.of(actor.task)
        if step.status != "intent" or step.fence != fence or step.over:
            return world, "lease over"
        return world.step(actor.task, effects=1), "result"  # the far side knows the key

    def close(self, world: World, actor: Actor, fence: int):
        step = world.of(actor.task)
        if step.status == "completed" and step.holder == held_by(actor):
            return world, "closed"
        if step.status != "intent" or step.fence != fence:
            return world, "refused"
        return world.event(opened=-1).step(actor.task, status="completed", seq=world.seq + 1), "closed"

    def register(self, world: World, actor: Actor):
        return world._replace(token=max(world.token, actor.attempt)), None

    def wake(self, world: World, actor: Actor):
        """Answer the await if what it waits for has settled, or nothing opens any more."""
        over = world.of("B").status == "completed" or world.unwinding or world.ended
        return (self.sent(world) if over else world), None

    def sent(self, world: World) -> World:
        task = dict(world.tasks).get("C")
        if task is None or task.program != "await" or task.attempt != world.token:
            return world
        return world.task("C", program="step", status="due") if task.status in {"running", "parked"} else world

    def finish(self, world: World, actor: Actor):
        """Write the run's own end, unless it unwinds."""
        return (world if world.unwinding or world.ended else self.over(world, "completed")), None

    def over(self, world: World, how: str) -> World:
        after = world.event()._replace(ended=(*world.ended, how))
        return after._replace(ended_at=after.seq)

    # Operations: its unwinding

    def answer(self, world: World, actor: Actor):
        return (self.sent(world) if world.unwinding else world), None

    def look(self, world: World, actor: Actor):
        """Say what is next; give up whoever is surely dead."""
        if world.ended:
            return world, "done"
        if world.open:
            return self.drained(world), "wait"
        if any(step.status == "unknown" for step in world.steps):
            return world, "wait"
        return world, self.next_undo(world) or "end"

    def drained(self, world: World) -> World:
        for name in STEPS:
            step = world.of(name)
            if step.over and step.status == "intent":
                world = world.event(opened=-1).step(name, status="unknown", fence=step.fence + 1)
            elif step.over and step.undo == "intent":
                world = world.event(opened=-1).step(name, undo="retrying", fence=step.fence + 1)
        return world

    def next_undo(self, world: World) -> str:
        done = [name for name in STEPS if world.of(name).status == "completed" and world.unwinding in UNDOES]
        return max(done, key=lambda name: world.of(name).seq, default="")

    def end(self, world: World, actor: Actor):
        return (world if world.ended else self.over(world, world.unwinding)), None

    def open_undo(self, world: World, actor: Actor):
        step = world.of(actor.task)
        if step.undo == "intent" and step.holder == held_by(actor):
            return world, step.fence
        if step.undo not in {"new", "retrying"} or world.ended:
            return world, "held"
        taken = {"undo": "intent", "fence": step.fence + 1, "holder": held_by(actor), "over": False}
        return world.event(opened=1).step(actor.task, **taken), step.fence + 1

    def call_undo(self, world: World, actor: Actor, fence: int):
        step = world.of(actor.task)
        if step.undo != "intent" or step.fence != fence or step.over:
            return world, "lease over"
        return world.step(actor.task, undone=1), "result"

    def close_undo(self, world: World, actor: Actor, fence: int):
        step = world.of(actor.task)
        if step.undo != "intent" or step.fence != fence:
            return world, None
        after = world.event(opened=-1).step(actor.task, undo="completed", status="compensated")
        return after._replace(undos=(*world.undos, actor.task)), None

    # Engine, people, clocks

    def returned(self, world: World, actor: Actor, value: str):
        name = task_of(actor)
        if not self.is_valid(world, actor):
            return world
        if value in STEPS:
            return world.task(name, program=f"undo {value}", status="due")
        if value == "asks":
            return world.task(name, program="unwind", status="due")
        return world.task(name, status=value)

    def died(self, world: World, actor: Actor):
        if not self.is_valid(world, actor):
            return world
        return world.task(task_of(actor), status="due", program="unwind" if task_of(actor) == "end" else actor.program)

    def is_valid(self, world: World, actor: Actor) -> bool:
        task = dict(world.tasks)[task_of(actor)]
        return (task.program.split()[0], task.attempt, task.status) == (actor.program, actor.attempt, "running")

    def environment(self, state: State) -> Iterator[Move]:
        world = state.world
        for name, task in world.tasks:
            if task.status == "due" or (task.status in {*LATER, "wait"} and self.worth_a_try(world, name, task)):
                yield Move(f"{name} is delivered: {task.program}", deliver(state, name, task))
            if task.status == "running" and state.faults:
                following = deliver(state, name, task)._replace(faults=state.faults - 1)
                yield Move(f"{name} given up by the engine, its process lives on", following, optional=True)
        yield from self.whole(state)
        for name in STEPS:
            yield from self.clock(state, name, world.of(name))
            yield from self.person(state, name, world.of(name))

    def worth_a_try(self, world: World, name: str, task: Task) -> bool:
        """Tell whether who waits would find something else than before."""
        if task.status == "wait":
            doubt = any(step.status == "unknown" for step in world.steps)
            return any(map(is_over, world.steps)) if world.open else not doubt
        return is_over(world.of(name)) or world.of(name).status != "intent"

    def whole(self, state: State) -> Iterator[Move]:
        """Begin the last state, ask for the end, start the unwinding (whoever asked, or the table's stream)."""
        world, tasks = state.world, dict(state.world.tasks)
        if not tasks["run"].status and all(tasks[name].status == "done" for name in self.branches):
            yield Move("all is done", state._replace(world=world.task("run", status="due")))
        if not world.unwinding and not world.ended:
            marked = world.event()._replace(unwinding=self.ending)
            yield Move(f"it is to end as {self.ending}", state._replace(world=marked), optional=True)
        if world.unwinding and not tasks["end"].status:
            yield Move("its unwinding is started", state._replace(world=world.task("end", status="due")))

    def clock(self, state: State, name: str, step: Step) -> Iterator[Move]:
        if "intent" not in {step.status, step.undo} or step.over:
            return
        alive = any(actor.task == name and held_by(actor) == step.holder for actor in state.actors)
        if not alive or state.faults:
            over = State(state.world.step(name, over=True), state.actors, state.faults - alive)
            yield Move(f"lease of {name} over{', holder stalled' if alive else ''}", over, optional=alive)

    def person(self, state: State, name: str, step: Step) -> Iterator[Move]:
        """A person says what has become of a call in doubt."""
        if step.status == "unknown":
            happened = {"status": "completed", "seq": state.world.seq + 1} if step.effects else {"status": "failed"}
            world = state.world.event().step(name, **happened)
            yield Move(f"person: {name} {happened['status']}", state._replace(world=world))

    # Invariants

    def always(self, world: World) -> Iterator[str]:
        if world.late:
            yield "opened while it unwinds"
        if len(world.ended) > 1:
            yield "ended twice"
        if world.ended and world.seq != world.ended_at:
            yield "something happened after the end"
        if world.ended and (world.open or any(step.status in {"intent", "unknown"} for step in world.steps)):
            yield "open at the end"
        if world.ended and any(not self.as_it_should(world, step) for step in world.steps):
            yield "an effect is left, or undone for nothing"
        order = [world.of(name).seq for name in world.undos]
        if order != sorted(set(order), reverse=True):
            yield "not undone once each, the latest first"

    def as_it_should(self, world: World, step: Step) -> bool:
        """Tell whether the far side has seen what a run that ended so has kept, or undone, of a step."""
        return step.undone == (step.effects if world.ended[-1] in UNDOES else 0)

    def at_rest(self, world: World) -> Iterator[str]:
        if not world.ended:
            yield "it never ends"
        if any(task.status == "parked" for _, task in world.tasks):
            yield "asleep after the end"


def is_over(step: Step) -> bool:
    return step.over and "intent" in {step.status, step.undo}


def held_by(actor: Actor) -> str:
    """Return what names the process as the holder of a step."""
    return f"{actor.program} {actor.attempt}"


def task_of(actor: Actor) -> str:
    return "end" if actor.program == "undo" else actor.task


def deliver(state: State, name: str, task: Task) -> State:
    """Have the engine begin a task's program; a compensation is of the step that its name tells."""
    attempt = task.attempt + 1
    program, _, step = task.program.partition(" ")
    world = state.world.task(name, attempt=attempt, status="running")
    return state._replace(world=world, actors=(*state.actors, Actor(program, step or name, attempt)))
