"""The engines in this process and thread: the interpreter, and the walker of compiled machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from behaviour import TOOLS, behave, reply
from family import Generated, family
from graphs import given
from invariants import check_run
from machine import UNWIND, Execution, World
from order import disorder
from outcome import Result, Stuck, result_of
from people import act
from specs import SOON

from shared.compiler import unwind_machine
from shared.errors import UnknownOutcome
from shared.inprocess.engine import InProcess
from shared.inprocess.handlers import UNWIND as UNWIND_HERE
from shared.inprocess.handlers import Handlers
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.unwinding import PATIENCE as LONGEST_WAIT
from shared.testing import FakeModels, FakeTools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.compiler import Unit
    from shared.manifest import Manifest

PATIENCE = 30.0
"""Seconds of this process that a run of a few steps may take on an engine with real threads.

Not of the clock: a process that gets no core is not stuck.
"""
BRIEF = 30.0
"""Seconds that a run may sleep before people act; an unwinding sleeps longer."""
ROUNDS = 200


@dataclass(frozen=True)
class Hold:
    """A step whose first attempt does not return before all of ``others`` have settled.

    ``delayed`` may wait for it where a map is split into parts, though they need not in one execution.
    """

    path: str
    others: frozenset[str]
    delayed: frozenset[str]
    patience: float


def patience(manifest: Manifest) -> float:
    """Return the seconds of this process that a run may take on an engine with real threads."""
    return PATIENCE + len(manifest.order) / 5


def world_of(unit: Unit, tool: Callable[..., Any], **ports: Any) -> World:
    return World(unit, FakeModels(reply), FakeTools(TOOLS | {"behave": tool}), **ports).define(Generated(unit))


def start(world: World, seed: int) -> str:
    published = world.steps.definitions.published(world.unit.manifest.workflow)
    world.run, _ = start_run(
        world.steps, published, StartRequest(world.tenant, "alex@example.test", "api", given(seed), None)
    )
    return world.run


def finished(world: World) -> Result:
    members = list(family(world.steps, world.journal))
    for member in members:
        assert member.head.ended, f"the run has ended, but below it {member.prefix} is {member.head.state}"
        # A part is stopped when its map has failed; what it did then stands, as it does in one execution.
        stopped = member.head.ended == "stopped" and not member.records.run.part
        assert not stopped, f"the run ended as stopped: {member.head.reason}"
        check_run(member)
        wrong = disorder(member, world.blobs)
        assert not wrong, "; ".join(wrong)
    return result_of(members, world.blobs)


# --- the interpreter ---------------------------------------------------------------------------------------------


def interpret(unit: Unit, seed: int, held: str | None = None) -> Result:
    """Run on the interpreter, in one thread. With ``held``, that step parks for ever; the rest goes on without it."""

    def tool(arguments: dict[str, Any], call: Any) -> Any:
        if call.path == held:
            raise UnknownOutcome("held")
        return behave(arguments, call)

    engine = InProcess(workers=0, tenant="acme")
    world = world_of(unit, tool, engine=engine)
    engine.open(Handlers(world.steps, world.gates))
    start(world, seed)
    for _ in range(ROUNDS):
        engine.drain(patience=BRIEF)
        said = act(world.steps, world.journal, seed, UNWIND_HERE, {held}, timers=True)
        if not (said or _later(engine, world)):
            break
    assert engine.failure is None, engine.failure
    if held:
        return result_of(family(world.steps, world.journal), world.blobs)
    if not world.head.ended:
        raise Stuck(f"the interpreter stands still in state {_states(world)}")
    return finished(world)


def _states(world: World) -> list[str]:
    """Return where the runs of a family stand, and which of their steps have not settled."""
    found: list[str] = []
    for member in family(world.steps, world.journal):
        open_ = [f"{step.path} {step.status}" for step in member.records.steps() if not step.settled]
        found.append(f"{member.prefix} {member.head.state} {member.head.unwinding or ''} {open_}")
    return found


def _later(engine: InProcess, world: World) -> bool:
    """Jump to where an unwinding looks again, else to where the time of a gate or an event is over."""
    before = world.clock.now()
    for patience in (2 * LONGEST_WAIT, SOON + BRIEF):
        if world.clock.now() == before and not world.head.ended:
            engine.drain(patience=patience)
    return world.clock.now() > before


# --- the walker --------------------------------------------------------------------------------------------------


def walk(unit: Unit, seed: int, held: str | None = None) -> Result:
    """Run the compiled machines on the walker. With ``held``, that step parks for ever; the rest goes on without it."""

    def tool(arguments: dict[str, Any], call: Any) -> Any:
        if call.path == held:
            raise UnknownOutcome("held")
        return behave(arguments, call)

    world = world_of(unit, tool)
    world.patient = True
    start(world, seed)
    running: dict[tuple[str, str], Execution] = {}
    for _ in range(ROUNDS):
        moved = _round(world, running)
        if not (act(world.steps, world.journal, seed, UNWIND, {held}) or moved):
            break
    if held:
        return result_of(family(world.steps, world.journal), world.blobs)
    if not world.head.ended:
        last = [(each.status, each.visited[-6:]) for each in running.values()]
        raise Stuck(f"the walker stands still: {_states(world)}; {last}")
    return finished(world)


def _round(world: World, running: dict[tuple[str, str], Execution]) -> bool:
    """Let every execution go as far as it can, and begin those that were asked for. Returns whether one has moved."""
    before = sum(len(each.visited) for each in running.values())
    for key in list(world.engine.executions):
        if key not in running:
            running[key] = Execution(world, _machine(world, key[0]), world.engine.executions[key])
        elif running[key].status == "RUNNING":
            running[key].go()
    return before < sum(len(each.visited) for each in running.values())


def _machine(world: World, name: str) -> Mapping[str, Any]:
    definitions = world.steps.definitions
    assert isinstance(definitions, Generated)
    return unwind_machine() if name == UNWIND else definitions.unit(name.split(":")[1]).asl
