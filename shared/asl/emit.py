"""From a layout to a state machine, by the contract that the handlers rely on.

Every task's payload names its operation (``op``), the run, the scope and which entry of which state this is. Whatever
goes wrong leaves a step through one ``Catch`` to its cascade; see ``trouble``. The body of a map or a loop is a machine
of its own inside a Map or Parallel state; what fails there ends the body and not the execution, since the step's
records say what happened and the map or loop decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, assert_never

from shared.asl import names
from shared.asl.fold import lane_steps
from shared.asl.jumps import Chain, Fork, Lanes, Routed, Switch, routers_read
from shared.asl.states import Choice, Fail, Machine, Map, Parallel, State, Succeed, Wait
from shared.asl.tasks import Steps, finish_task
from shared.asl.turns import turn_states
from shared.graph.tree import Await, Sequence, Step
from shared.graph.tree import Parallel as ParallelTree
from shared.manifest import ALONE, part_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.asl.layout import Layout
    from shared.graph.tree import Tree
    from shared.manifest import Body, Manifest, StepPlan

RUN_FAILED = "Signalbox.RunFailed"
_CAUSE = "A step failed and its policy is to fail the run; the run's events say which step and why."


def emit(layout: Layout, manifest: Manifest) -> Machine:
    """Return the machine of one definition."""
    known = _Names(names.labels(manifest.steps))
    scope = _Scope(failed=names.FAILED, done=names.FINISH)
    start = _Emitter.of(layout, manifest, (), known).emit(layout.routed, names.FINISH, scope)
    parts = tuple(_parts(layout, manifest, (), known, scope))
    if parts:
        scope.states[names.START] = Choice("$.part", parts, start)
        start = names.START
    scope.states[names.FINISH] = finish_task(names.COMPLETED)
    scope.states[names.COMPLETED] = Succeed()
    deadline = None if manifest.deadline is None else round(manifest.deadline)
    return Machine(start, scope.states, manifest.description, deadline)


def _parts(
    layout: Layout, graph: Manifest | Body, around: names.Path, known: _Names, scope: _Scope
) -> Iterator[tuple[str, str]]:
    """Add what child executions do for each map and loop that has some; yield which of them begin at which state."""
    for name, inner in layout.bodies.items():
        plan, path = graph.steps[name], (*around, name)
        for begins, there in _in_child_executions("/".join(path), plan):
            other = replace(graph, steps={**graph.steps, name: there})
            yield begins, _Emitter.of(layout, other, around, known.apart(path)).part(name, scope)
        if plan.body:
            yield from _parts(inner, plan.body, path, known, scope)


def _in_child_executions(path: str, plan: StepPlan) -> Iterator[tuple[str, StepPlan]]:
    """Yield where a map or loop begins in child executions, and by which plan: in a run of its own, and in a part."""
    if plan.apart:
        yield f"{path}{ALONE}", replace(plan, apart=False)
    if plan.split:
        spec = {**plan.spec, "max_concurrency": plan.split.inside}
        yield path, replace(plan, apart=False, split=None, spec=spec)


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of the whole machine: by path those of steps, and which others are taken."""

    labels: Mapping[names.Path, str]
    taken: set[str] = field(default_factory=set[str])

    def apart(self, part: names.Path) -> _Names:
        """Return other names for a map or loop and all inside it, for the states of its child executions."""
        inside = {path: label for path, label in self.labels.items() if path[: len(part)] == part}
        return replace(self, labels=names.apart(inside, {*self.labels.values(), *self.taken}, self.taken))

    def inside(self, around: names.Path) -> dict[str, str]:
        """Return the names of the steps of one graph by id."""
        return {path[-1]: label for path, label in self.labels.items() if path[:-1] == around}


@dataclass(frozen=True, slots=True)
class _Scope:
    """The states of one machine or branch, and what its ways out are called.

    Inside a body a failure only ends the ``body``.
    """

    failed: str
    done: str
    body: bool = False
    states: dict[str, State] = field(default_factory=dict[str, State])

    def fail(self) -> str:
        """Return the name of the way out for failure, made at first use."""
        self.states.setdefault(self.failed, Succeed() if self.body else Fail(RUN_FAILED, _CAUSE))
        return self.failed

    def after(self, following: str | None) -> str:
        """Return a state's name for what follows, also where the branch ends."""
        if following is not None:
            return following
        self.states.setdefault(self.done, Succeed())
        return self.done


@dataclass(frozen=True, slots=True)
class _Emitter:
    """Emits one graph; ``around`` are the steps in whose bodies it stands."""

    layout: Layout
    steps: Steps
    around: names.Path
    names: _Names

    @classmethod
    def of(cls, layout: Layout, graph: Manifest | Body, around: names.Path, known: _Names) -> _Emitter:
        steps = Steps(graph.steps, known.inside(around), routers_read(layout.routed))
        return cls(layout, steps, around, known)

    def emit(self, node: Routed, following: str | None, scope: _Scope) -> str:
        """Add the states of ``node`` and return the name of the one to enter."""
        match node:
            case Step(step):
                return self._step(step, following, scope)
            case Await(step):
                name = names.await_of(self.steps.labels[step])
                scope.states[name] = self.steps.awaiting(step, following)
                return name
            case Switch():
                return self._switch(node, following, scope)
            case Sequence(items) | Chain(items):
                return self._chain(items, following, scope)
            case Fork(branches) | ParallelTree(branches):
                return self._fork(branches, following, scope)
            case Lanes():
                return self._lanes(node, following, scope)
            case _:
                assert_never(node)

    def part(self, step: str, scope: _Scope) -> str:
        """Add the states by which a child execution runs its items or iterations; return the first one's name."""
        return self._step(step, names.FINISH, scope)

    def _step(self, step: str, following: str | None, scope: _Scope) -> str:
        label, plan = self.steps.labels[step], self.steps.plans[step]
        more = {} if plan.apart else self._more(step, label, following, scope)
        scope.states[label] = self.steps.task(step, next(iter(more), following))
        scope.states.update(more)
        scope.states.update(self.steps.trouble(step, scope.after(following), scope.fail()))
        if self.steps.plans[step].slot:
            scope.states[names.slot(label)] = self.steps.slot(step)
        return self.steps.entry(step)

    def _more(self, step: str, label: str, following: str | None, scope: _Scope) -> dict[str, State]:
        """Return the states that a step has besides its task on the happy path, the first one first."""
        plan = self.steps.plans[step]
        match plan.type:
            case "map" | "loop" if plan.split:
                return self._split(step, label, following, scope)
            case "map":
                return self._items(step, label) | {names.collect(label): self.steps.collect(step, following)}
            case "loop":
                again = Choice("$.loop.again", (("yes", names.body(label)),), scope.after(following))
                return {names.again(label): again, names.body(label): self._iteration(step, label)}
            case "turns" if plan.turns:
                return turn_states(plan.turns, label, scope.after(following), scope.fail(), self.names.taken)
            case "wait" if "event" not in plan.spec:
                waited = Choice("$.wait.done", (("yes", scope.after(following)),), names.pause(label))
                return {names.waited(label): waited, names.pause(label): Wait("$.wait.seconds", label)}
            case _:
                return {}

    def _items(self, step: str, label: str) -> dict[str, State]:
        following, limit = names.collect(label), _limit(self.steps.plans[step].spec)
        return {names.items(label): Map("$.map.items", _item(step), self._body(step, label), limit, following)}

    def _split(self, step: str, label: str, following: str | None, scope: _Scope) -> dict[str, State]:
        """Return the states behind a map that may be long, and behind a loop: child executions run its parts."""
        plan = self.steps.plans[step]
        assert plan.split is not None  # noqa: S101 - for the type checker
        one = names.unique(names.part(label), self.names.taken, names.MAX_STEP_ID)
        if plan.type == "loop":
            again = Choice("$.loop.again", (("yes", one),), scope.after(following))
            return {names.again(label): again, **self._part(one, "$.loop.part", label, label, scope.fail())}
        how = Choice("$.map.how", (("parts", names.parts(label)),), names.items(label))
        inside = _Scope(failed=f"{label} · part failed", done=f"{label} · part done", body=True)
        inside.states.update(self._part(one, "$.part", None, inside.after(None), inside.fail()))
        body = Machine(one, inside.states)
        parts = Map("$.map.parts", _PART, body, plan.split.at_once, names.collect(label))
        inline = {names.how(label): how, **self._items(step, label)} if plan.split.inline else {}
        collect = {names.collect(label): self.steps.collect(step, following)}
        return {**inline, names.parts(label): parts, **collect}

    def _part(self, name: str, path: str, following: str | None, after: str, failed: str) -> dict[str, State]:
        """Return the states that have a child execution run the part whose name stands at ``path``."""
        steps = Steps({_ONE: part_plan(_ONE)}, {_ONE: name}, frozenset(), {_ONE: path})
        return {name: steps.task(_ONE, following), **steps.trouble(_ONE, after, failed)}

    def _iteration(self, step: str, label: str) -> Parallel:
        return Parallel((self._body(step, label),), label, {"run.$": "$.run", "scope.$": "$.loop.scope", "routes": {}})

    def _body(self, step: str, label: str) -> Machine:
        layout, body = self.layout.bodies[step], self.steps.plans[step].body
        assert body is not None, "the layout has a body where the plan has none"  # noqa: S101 - a fault of ours
        scope = _Scope(failed=f"{label} · body failed", done=f"{label} · body done", body=True)
        inner = _Emitter.of(layout, body, (*self.around, step), self.names)
        return Machine(inner.emit(layout.routed, None, scope), scope.states)

    def _chain(self, items: tuple[Routed, ...], following: str | None, scope: _Scope) -> str:
        entry = following
        for item in reversed(items):
            entry = self.emit(item, entry, scope)
        return scope.after(entry)

    def _switch(self, switch: Switch, following: str | None, scope: _Scope) -> str:
        routes = [self.steps.labels[route] for route, _ in switch.cases]
        name = names.unique(names.switch(self.steps.labels[switch.router], routes), self.names.taken)
        cases = tuple((route, self.emit(case, following, scope)) for route, case in switch.cases)
        scope.states[name] = Choice(f"$.routes.{switch.router}.route", cases, scope.after(following))
        return name

    def _fork(self, branches: tuple[Routed, ...], following: str | None, scope: _Scope) -> str:
        firsts = [self.steps.labels[names.first(branch)] for branch in branches]
        name = names.unique(names.fork(firsts), self.names.taken)
        machines = tuple(self._branch(branch, f"{name} · {n}", scope) for n, branch in enumerate(branches, 1))
        scope.states[name] = Parallel(machines, following, self._given(branches))
        return name

    def _given(self, branches: tuple[Routed, ...]) -> dict[str, Any]:
        """Return the data for a Parallel with lanes: their items besides what there is."""
        lanes = {
            _key(branch): [_lane(lane) for lane in branch.branches] for branch in branches if isinstance(branch, Lanes)
        }
        return {**_DATA, "lanes": lanes} if lanes else {}

    def _lanes(self, lanes: Lanes, following: str | None, scope: _Scope) -> str:
        """Add the Map that runs every lane by the states of the first one, with the names from its item."""
        firsts = [self.steps.labels[names.first(lane)] for lane in lanes.branches]
        name = names.unique(names.lanes(firsts), self.names.taken)
        steps = lane_steps(lanes.branches[0])
        labels = {step: names.lane_step(name, number) for number, step in enumerate(steps, 1)}
        given = {step: f"$.lane.s{number}" for number, step in enumerate(steps, 1)}
        lane = replace(self, steps=replace(self.steps, labels=labels, given=given))
        body = lane._branch(lanes.branches[0], name, scope)  # noqa: SLF001 - of the same class
        scope.states[name] = Map(f"$.lanes.{_key(lanes)}", _LANE, body, 0, following)
        return name

    def _branch(self, branch: Routed, name: str, around: _Scope) -> Machine:
        scope = _Scope(failed=f"{name} failed", done=f"{name} done", body=around.body)
        start = self.emit(branch, None, scope)
        return Machine(start, scope.states)


_DATA = {"run.$": "$.run", "scope.$": "$.scope", "routes.$": "$.routes"}
_PART = {"run.$": "$.run", "scope.$": "$.scope", "part.$": "$$.Map.Item.Value"}
_ONE = "part"
_LANE = {**_DATA, "lane.$": "$$.Map.Item.Value"}


def _key(lanes: Lanes) -> str:
    return names.first(lanes)


def _lane(lane: Tree) -> dict[str, str]:
    return {f"s{number}": step for number, step in enumerate(lane_steps(lane), 1)}


def _item(step: str) -> dict[str, Any]:
    scope = f"States.Format('{{}}{step}[{{}}]/', $.scope, $$.Map.Item.Value)"
    return {"run.$": "$.run", "scope.$": scope, "routes": {}}


def _limit(spec: Mapping[str, Any]) -> int:
    return int(spec.get("max_concurrency", 0))
