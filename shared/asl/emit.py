"""From a tree with jumps to a state machine, by the contract that the handlers rely on.

Every task's payload names its operation (``op``), the run, the scope and which entry of which state this is. Whatever
goes wrong leaves a step through one ``Catch`` to its cascade; see ``trouble``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from shared.asl import names
from shared.asl.jumps import Chain, Fork, Routed, Switch, routers_read
from shared.asl.states import Choice, Fail, Machine, Parallel, State, Succeed
from shared.asl.tasks import Steps, await_task, finish_task
from shared.graph.tree import Await, Sequence, Step
from shared.graph.tree import Parallel as ParallelTree

if TYPE_CHECKING:
    from shared.manifest import Manifest

RUN_FAILED = "Signalbox.RunFailed"
_CAUSE = "A step failed and its policy is to fail the run; the run's events say which step and why."


def emit(routed: Routed, manifest: Manifest, *, deadline: float | None = None) -> Machine:
    """Return the machine of one definition; ``deadline`` is its wall-clock limit in seconds, if it has one."""
    emitter = _Emitter(Steps(manifest.steps, routers_read(routed)))
    scope = _Scope(failed="failed", done=names.FINISH)
    start = emitter.emit(routed, names.FINISH, scope)
    scope.states[names.FINISH] = finish_task(names.COMPLETED)
    scope.states[names.COMPLETED] = Succeed()
    return Machine(start, scope.states, manifest.description, None if deadline is None else round(deadline))


@dataclass(frozen=True, slots=True)
class _Scope:
    """The states of one machine or branch, and what its ways out are called."""

    failed: str
    done: str
    states: dict[str, State] = field(default_factory=dict[str, State])

    def fail(self) -> str:
        """Return the name of the way out for failure, made at first use."""
        self.states.setdefault(self.failed, Fail(RUN_FAILED, _CAUSE))
        return self.failed

    def after(self, following: str | None) -> str:
        """Return a state's name for what follows, also where the branch ends."""
        if following is not None:
            return following
        self.states.setdefault(self.done, Succeed())
        return self.done


@dataclass(frozen=True, slots=True)
class _Emitter:
    steps: Steps
    taken: set[str] = field(default_factory=set[str])

    def emit(self, node: Routed, following: str | None, scope: _Scope) -> str:
        """Add the states of ``node`` and return the name of the one to enter."""
        match node:
            case Step(step):
                return self._step(step, following, scope)
            case Await(step):
                name = names.await_of(step)
                scope.states[name] = await_task(step, name, following)
                return name
            case Switch():
                return self._switch(node, following, scope)
            case Sequence(items) | Chain(items):
                return self._chain(items, following, scope)
            case Fork(branches) | ParallelTree(branches):
                return self._fork(branches, following, scope)
            case _:
                assert_never(node)

    def _step(self, step: str, following: str | None, scope: _Scope) -> str:
        scope.states[step] = self.steps.task(step, following)
        scope.states.update(self.steps.trouble(step, scope.after(following), scope.fail()))
        return step

    def _chain(self, items: tuple[Routed, ...], following: str | None, scope: _Scope) -> str:
        entry = following
        for item in reversed(items):
            entry = self.emit(item, entry, scope)
        return scope.after(entry)

    def _switch(self, switch: Switch, following: str | None, scope: _Scope) -> str:
        name = names.unique(names.switch(switch.router, [route for route, _ in switch.cases]), self.taken)
        cases = tuple((route, self.emit(case, following, scope)) for route, case in switch.cases)
        scope.states[name] = Choice(f"$.routes.{switch.router}.route", cases, scope.after(following))
        return name

    def _fork(self, branches: tuple[Routed, ...], following: str | None, scope: _Scope) -> str:
        name = names.unique(names.fork([names.first(branch) for branch in branches]), self.taken)
        machines = tuple(self._branch(branch, name, number) for number, branch in enumerate(branches, 1))
        scope.states[name] = Parallel(machines, following)
        return name

    def _branch(self, branch: Routed, fork: str, number: int) -> Machine:
        scope = _Scope(failed=f"{fork} · {number} failed", done=f"{fork} · {number} done")
        start = self.emit(branch, None, scope)
        return Machine(start, scope.states)
