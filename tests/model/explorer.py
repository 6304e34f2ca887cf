"""Exhaustive exploration of small protocols.

A protocol is a set of *programs* (generators that yield one atomic operation at a time and receive its answer), a
*world* that operations change, and an *environment* (engine, people, clocks). An actor is a program with the answers
it has received so far, so a state is plain hashable data and every interleaving can be visited once.

Faults, each at any operation of any actor, as many as the bound allows: the process dies before the operation (which
is also: after the one before it), or the operation is applied and its answer lost. Models add faults of their own.
"""

from __future__ import annotations

import gc
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOST = "answer lost"


class Actor(NamedTuple):
    """A running program: which one, for which task, started as which attempt, and the answers it has received."""

    program: str
    task: str
    attempt: int
    answers: tuple[Any, ...] = ()


class State(NamedTuple):
    """Everything there is at one moment."""

    world: Any
    actors: tuple[Actor, ...]
    faults: int


class Move(NamedTuple):
    """One thing that can happen. Faults, people and time-outs are optional: where nothing else is left, all rests.

    ``act`` says what is done to the world: ``applied`` or ``repeated`` with actor, operation and answer, or what the
    environment does; empty = nothing that the world's records show.
    """

    label: str
    state: State
    optional: bool = False
    act: tuple[Any, ...] = ()


class Model:
    """A protocol to explore. Subclasses define programs, operations, environment and invariants."""

    programs: Mapping[str, Any]
    """Generator functions by name: called with the actor, they yield operations and receive answers."""
    unrepeated: frozenset[str] = frozenset()
    """Operations that no client library repeats: the actor learns that the answer was lost. Others are repeated, see
    their own write, and answer as if nothing had happened."""

    def start(self) -> tuple[Any, tuple[Actor, ...]]:
        """Return the first world and its actors."""
        raise NotImplementedError

    def apply(self, world: Any, actor: Actor, operation: tuple[Any, ...]) -> tuple[Any, Any]:
        """Apply one atomic operation, the method of its name; return the next world and the answer."""
        name, *arguments = operation
        return getattr(self, name.replace(" ", "_"))(world, actor, *arguments)

    def returned(self, world: Any, actor: Actor, value: Any) -> Any:
        """The actor's program has ended with a value; return what the engine makes of it."""
        raise NotImplementedError

    def died(self, world: Any, actor: Actor) -> Any:
        """The actor's process has died; return what the engine makes of it."""
        raise NotImplementedError

    def environment(self, state: State) -> Iterator[Move]:
        """Yield what can happen without any actor."""
        raise NotImplementedError

    def always(self, world: Any) -> Iterator[str]:
        """Yield the invariants that this world violates."""
        raise NotImplementedError

    def at_rest(self, world: Any) -> Iterator[str]:
        """Yield what is wrong with a world in which nothing can happen any more."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Explored:
    """What exploration found: sizes, whether it was complete, and the first trace to each violation."""

    states: int
    resting: int
    complete: bool
    violations: Mapping[str, tuple[str, ...]]


@dataclass(slots=True)
class Exploration:
    model: Model
    came_from: dict[State, tuple[State | None, str]] = field(default_factory=dict)
    violations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pending: dict[Actor, tuple[bool, Any]] = field(default_factory=dict)
    resting: int = 0

    def note(self, faults: Iterator[str], state: State) -> None:
        for violation in faults:
            if violation not in self.violations:
                self.violations[violation] = self.trace(state)

    def trace(self, state: State | None) -> tuple[str, ...]:
        labels: list[str] = []
        while state is not None:
            state, label = self.came_from[state]
            labels.append(label)
        return tuple(label for label in reversed(labels) if label)

    def next_of(self, actor: Actor) -> tuple[bool, Any]:
        """Return (ended?, value or operation) of an actor, replaying its answers."""
        if actor not in self.pending:
            program = self.model.programs[actor.program](actor)
            try:
                operation = program.send(None)
                for answer in actor.answers:
                    operation = program.send(answer)
                self.pending[actor] = (False, operation)
            except StopIteration as end:
                self.pending[actor] = (True, end.value)
        return self.pending[actor]

    def moves(self, state: State) -> Iterator[Move]:
        for place, actor in enumerate(state.actors):
            yield from self.moves_of(state, actor, place)
        yield from self.model.environment(state)

    def moves_of(self, state: State, actor: Actor, place: int) -> Iterator[Move]:
        world, actors, faults = state
        others = actors[:place] + actors[place + 1 :]
        name = f"{actor.task}.{actor.attempt}"
        ended, value = self.next_of(actor)
        if faults:
            dead = State(self.model.died(world, actor), others, faults - 1)
            yield Move(f"{name} dies before {'returning' if ended else value}", dead, optional=True)
        if ended:
            yield Move(f"{name} returns {value}", State(self.model.returned(world, actor, value), others, faults))
            return
        after, answer = self.model.apply(world, actor, value)
        done = ("applied", actor, value, answer)
        yield Move(f"{name} {value} -> {answer}", State(after, _told(actors, place, answer), faults), act=done)
        if faults and value[0] in self.model.unrepeated:
            lost = State(after, _told(actors, place, LOST), faults - 1)
            yield Move(f"{name} {value}, answer lost", lost, optional=True, act=done)
        elif faults and (again := self.model.apply(after, actor, value)) != (after, answer):
            repeated = State(again[0], _told(actors, place, again[1]), faults - 1)
            label = f"{name} {value}, answer lost, repeated -> {again[1]}"
            yield Move(label, repeated, optional=True, act=("repeated", actor, value, again[1]))


def put(items: tuple[Any, ...], index: int, **changes: Any) -> tuple[Any, ...]:
    """Return named tuples with one of them changed."""
    return (*items[:index], items[index]._replace(**changes), *items[index + 1 :])


def lapse(state: Any, index: int, step: Any) -> Iterator[Move]:
    """Yield the move by which a step's lease is over: its holder is dead, or has stalled."""
    if step.status != "intent" or step.over:
        return
    alive = any(actor.task == str(index) and actor.attempt == step.holder for actor in state.actors)
    if not alive or state.faults:
        over = State(state.world.step(index, over=True), state.actors, state.faults - alive)
        yield Move(f"lease of {index} over{', holder stalled' if alive else ''}", over, optional=alive)


def _told(actors: tuple[Actor, ...], place: int, answer: Any) -> tuple[Actor, ...]:
    actor = actors[place]
    return (*actors[:place], actor._replace(answers=(*actor.answers, answer)), *actors[place + 1 :])


def explore(model: Model, faults: int, *, until: str | None = None, limit: int = 20_000_000) -> Explored:
    """Visit every state that at most ``faults`` faults can lead to.

    Stops early when the violation ``until`` has been found, and gives up at ``limit`` states.
    """
    gc.disable()  # a state never refers to itself, and there are many
    try:
        return _explore(model, faults, until, limit)
    finally:
        gc.enable()


def _explore(model: Model, faults: int, until: str | None, limit: int) -> Explored:
    world, actors = model.start()
    first = State(world, actors, faults)
    seen = Exploration(model, {first: (None, "")})
    queue = deque((first,))
    while queue and len(seen.came_from) <= limit and until not in seen.violations:
        state = queue.popleft()
        seen.note(model.always(state.world), state)
        moves = list(seen.moves(state))
        if all(move.optional for move in moves):
            seen.resting += 1
            seen.note(model.at_rest(state.world), state)
        for move in moves:
            if move.state not in seen.came_from:
                seen.came_from[move.state] = (state, move.label)
                queue.append(move.state)
    return Explored(len(seen.came_from), seen.resting, not queue, seen.violations)
