"""A child run: its parent carves an envelope, starts it, and hears of its end, whatever ends first.

Beginning is one transaction on both heads; so is the child's end as the parent sees it: the step closes and the rest of
the envelope comes back. Who ends a child answers the parent's token then; who registers a token looks afterwards
whether the child has ended. A time-out or a cancel of the parent ends the child first. The parent's limit is
``LIMIT``, the envelope ``HOLD``, and the child's one step costs 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.explorer import Actor, Model, Move, State

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT, HOLD = 3, 2
LATER = {"wait", "recheck"}
"""Ends of a delivery after which the engine waits and asks again."""
TASKS = ("parent", "child", "unwind", "end child")


class Head(NamedTuple):
    """A run's head: what it has left, what its steps have cost, and how it ends."""

    left: int = 0
    spent: int = 0
    unwinding: bool = False
    ended: bool = False


class Task(NamedTuple):
    """What the engine knows of one task: which program it runs, and how its delivery stands."""

    program: str = ""
    attempt: int = 0
    status: str = ""


class World(NamedTuple):
    """Both heads, the parent's step, the child's step, and the engine's tasks in the order of ``TASKS``."""

    parent: Head = Head(LIMIT)
    step: str = "new"
    hold: int = 0
    token: int = 0
    answers: int = 0
    born: bool = False
    child: Head = Head()
    inner: str = "new"
    holder: int = 0
    over: bool = False
    tasks: tuple[Task, ...] = (Task("begin", 1, "running"), Task(), Task("unwind"), Task("end child"))
    timed_out: bool = False
    cancelled: bool = False

    def above(self, **changes: Any) -> World:
        return self._replace(parent=self.parent._replace(**changes))

    def below(self, **changes: Any) -> World:
        return self._replace(child=self.child._replace(**changes))

    def task(self, name: str, **changes: Any) -> World:
        place = TASKS.index(name)
        task = self.tasks[place]._replace(**changes)
        return self._replace(tasks=(*self.tasks[:place], task, *self.tasks[place + 1 :]))


class Children(Model):
    """The protocol of the design. ``trouble`` may end what the child is for: ``time-out``, ``cancel``.

    ``begun``: the child is there and its parent parked when exploration begins.
    """

    def __init__(self, *trouble: str, begun: bool = False) -> None:
        self.trouble, self.begun = trouble, begun
        self.programs = {
            "begin": self.run_begin,
            "cascade": self.run_cascade,
            "work": self.run_work,
            "unwind": self.run_unwind,
            "end child": self.run_end_child,
        }

    def start(self):
        actor = Actor("begin", "parent", 1)
        if not self.begun:
            return World(), (actor,)
        return Children.carve(self, World(), actor)[0]._replace(token=1).task("parent", status="parked"), ()

    # Programs

    def run_begin(self, actor: Actor):
        """Begin once, register, and only then look whether the child has ended."""
        if (yield ("carve",)) == "stopped":
            return "stopped"
        yield ("register",)
        yield from self.answer()
        return "parked"

    def answer(self):
        """Close the parent's step by the child's end, if there is one, and answer the token that is valid then."""
        if (yield ("close",)):
            yield ("send",)

    def run_work(self, actor: Actor):
        said = yield ("open",)
        if said == "opened" and (yield ("close inner",)):
            yield ("end",)
            yield from self.answer()
        return "wait" if said == "held" else "done"

    def run_end_child(self, actor: Actor):
        """The child's unwinding: wait for what is open, end, answer."""
        if (yield ("end",)) == "open":
            return "wait"
        yield from self.answer()
        return "done"

    def run_cascade(self, actor: Actor):
        """The parent's token has timed out: the child ends first, and how it has ended is the step's outcome."""
        said = yield ("stop child",)
        if said == "ended":
            yield from self.answer()
        return "recheck" if said else (yield ("decide",))

    def run_unwind(self, actor: Actor):
        """The parent's unwinding: answer its token, see to it that the child ends, and only then end."""
        said = yield ("fail token",)
        if said == "asked":
            return "wait"
        if said == "ended":
            yield from self.answer()
        yield ("end parent",)
        return "done"

    # Operations on the parent

    def carve(self, world: World, actor: Actor):
        """Create the child and take its envelope; asked again, the child is there."""
        if world.step != "new":
            return world, "begun"
        if world.parent.unwinding or world.parent.ended:
            return world, "stopped"
        born = self.taken(world._replace(step="waiting", hold=HOLD, born=True, child=Head(HOLD)))
        return born.task("child", program="work", status="due"), "begun"

    def taken(self, world: World) -> World:
        return world.above(left=world.parent.left - HOLD)

    def register(self, world: World, actor: Actor):
        return world._replace(token=max(world.token, actor.attempt)), None

    def close(self, world: World, actor: Actor):
        """Close the step, unless that was done; tell whether there is something to send."""
        if not self.is_heard(world):
            return world, False
        if world.step != "waiting" or world.parent.ended:
            return world, True
        used, parent = world.child.spent, world.parent
        world = world.above(left=parent.left + world.hold - used, spent=parent.spent + used)
        status = "completed" if world.inner == "completed" and not world.child.unwinding else "failed"
        return world._replace(step=status, hold=0, answers=world.answers + 1), True

    def is_heard(self, world: World) -> bool:
        return world.child.ended

    def send(self, world: World, actor: Actor):
        task = world.tasks[0]
        valid = task.program == "begin" and task.attempt == world.token and task.status in {"running", "parked"}
        if not valid:
            return world, None
        return self.settled(world), None

    def settled(self, world: World) -> World:
        """Go on when the step has settled: to the last state, or, to decide first, to the cascade."""
        following = "finish" if world.step == "completed" else "cascade"
        return world.task("parent", program=following, status="due")

    def decide(self, world: World, actor: Actor):
        """Decide after the child has ended: the run goes on, whether its step failed or not."""
        return world, "stopped" if world.parent.unwinding else "go on"

    def cancel(self, world: World) -> World:
        return world if world.parent.ended else world.above(unwinding=True)

    def fail_token(self, world: World, actor: Actor):
        task = world.tasks[0]
        waits = task.program == "begin" and task.attempt == world.token and task.status in {"running", "parked"}
        return self.stop_child(world.task("parent", status="stopped") if waits else world, actor)

    def end_parent(self, world: World, actor: Actor):
        return world.above(ended=True), None

    def finished(self, world: World) -> World:
        """Write the run's own end, unless it unwinds."""
        return (world if world.parent.unwinding else world.above(ended=True)).task("parent", status="done")

    # Operations on the child

    def stop_child(self, world: World, actor: Actor):
        """Ask a child whose end is waited for to end: asked, or ended by now; nothing if none is waited for."""
        if world.step != "waiting":
            return world, ""
        return (world, "ended") if world.child.ended else (world.below(unwinding=True), "asked")

    def open(self, world: World, actor: Actor):
        if world.inner == "completed" or (world.inner == "intent" and world.holder == actor.attempt):
            return world, "opened"
        if world.child.unwinding or world.child.ended:
            return world, "stopped"
        if world.inner == "intent" and not world.over:
            return world, "held"
        left = world.child.left - (world.inner == "new")
        # The hold of one who died is charged, and this one takes another.
        spent = world.child.spent + (world.inner == "intent")
        left -= world.inner == "intent"
        return world._replace(inner="intent", holder=actor.attempt, over=False).below(left=left, spent=spent), "opened"

    def close_inner(self, world: World, actor: Actor):
        if world.inner == "intent" and world.holder == actor.attempt:
            world = world._replace(inner="completed").below(spent=world.child.spent + 1)
        return world, world.inner == "completed"

    def end(self, world: World, actor: Actor):
        """Write the child's end: its own last state's, or once it unwinds, that of its unwinding."""
        if world.child.ended:
            return world, "ended"
        if world.inner == "intent" and world.over:
            world = world._replace(inner="failed").below(spent=world.child.spent + 1)
        if world.inner == "intent":
            return world, "open"
        if world.child.unwinding != (actor.program == "end child"):
            return world, "ends otherwise"
        return world.below(ended=True), "ended"

    # Engine, people, clocks

    def returned(self, world: World, actor: Actor, value: str):
        if not self.is_valid(world, actor):
            return world
        if value == "go on":
            return world.task("parent", program="finish", status="due")
        return world.task(actor.task, status="later" if value in LATER else value)

    def died(self, world: World, actor: Actor):
        return world.task(actor.task, status="due") if self.is_valid(world, actor) else world

    def is_valid(self, world: World, actor: Actor) -> bool:
        return world.tasks[TASKS.index(actor.task)] == (actor.program, actor.attempt, "running")

    def environment(self, state: State) -> Iterator[Move]:
        world = state.world
        for name, task in zip(TASKS, world.tasks, strict=True):
            if (task.program, task.status) == ("finish", "due"):
                yield Move("the parent's last state", state._replace(world=self.finished(world)))
            elif task.status == "due" or (task.status == "later" and self.worth_a_try(world, name)):
                yield Move(f"{name} is delivered: {task.program}", deliver(state, name, task))
            if task.status == "running" and state.faults:
                following = deliver(state, name, task)._replace(faults=state.faults - 1)
                yield Move(f"{name} given up by the engine, its process lives on", following, optional=True)
        yield from self.trouble_above(state)
        yield from self.streams(state)
        yield from self.clock(state)

    def worth_a_try(self, world: World, name: str) -> bool:
        """Tell whether who waits would find something else than before."""
        return (world.inner != "intent" or world.over) if "child" in name else world.child.ended

    def trouble_above(self, state: State) -> Iterator[Move]:
        world, task = state.world, state.world.tasks[0]
        waits = task.program == "begin" and task.status == "parked"
        if "time-out" in self.trouble and waits and not world.timed_out:
            late = world._replace(timed_out=True).task("parent", program="cascade", status="due")
            yield Move("the parent's token times out", state._replace(world=late), optional=True)
        if "cancel" in self.trouble and not world.cancelled:
            after = self.cancel(world._replace(cancelled=True))
            yield Move("the parent is cancelled", state._replace(world=after), optional=True)

    def streams(self, state: State) -> Iterator[Move]:
        """The tables' streams see to it that whatever unwinds has its unwinding."""
        world = state.world
        for name, head in (("unwind", world.parent), ("end child", world.child)):
            if head.unwinding and not head.ended and world.tasks[TASKS.index(name)].status == "":
                yield Move(f"{name} is started", state._replace(world=world.task(name, status="due")))

    def clock(self, state: State) -> Iterator[Move]:
        world = state.world
        if world.inner != "intent" or world.over:
            return
        alive = any(actor.task == "child" and actor.attempt == world.holder for actor in state.actors)
        if not alive or state.faults:
            over = State(world._replace(over=True), state.actors, state.faults - alive)
            yield Move(f"the child's lease is over{', holder stalled' if alive else ''}", over, optional=alive)

    # Invariants

    def always(self, world: World) -> Iterator[str]:
        parent, child = world.parent, world.child
        if parent.left + world.hold + parent.spent != LIMIT:
            yield "the parent's limit does not add up"
        if world.born and child.left + child.spent + (world.inner == "intent") != HOLD:
            yield "the child's envelope does not add up"
        if world.answers > 1:
            yield "heard twice"
        if world.born and not child.ended and (parent.ended or world.answers):
            yield "over before its child has ended"

    def at_rest(self, world: World) -> Iterator[str]:
        if world.step == "waiting" or world.tasks[0].status not in {"done", "stopped"}:
            yield "the parent never hears of it"
        if not world.parent.ended or (world.born and not world.child.ended):
            yield "a run never ends"
        if world.hold:
            yield "reserved at rest"


def deliver(state: State, name: str, task: Task) -> State:
    """Have the engine begin a task's program."""
    world = state.world.task(name, attempt=task.attempt + 1, status="running")
    actor = Actor(task.program, name, task.attempt + 1)
    return state._replace(world=world, actors=(*state.actors, actor))
