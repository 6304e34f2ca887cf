"""The semantics of a run, in one readable place: which step begins when, and what follows what happens to it.

This is the in-process host's control flow and the oracle that compiled machines are compared with. It knows nothing
of Step Functions: it takes the manifest's edges as they are drawn. What a step *does* stands in ``shared.runtime``,
the same handlers for every host; here stands only what is asked of them, in which order.

A *walk* is one step's way, as a generator: it yields what it needs next (``Do``, ``Sleep``, ``Within``) and is sent
the outcome. It returns whether what it belongs to goes on: False = the run, or the item around it, has failed.
A *graph* holds the steps of one scope: a step begins as soon as its own sources have settled and its join has decided.
Whoever drives them (``shared.inprocess.engine``) adds threads, timers and tokens, and no meaning.

Nothing here is remembered anywhere but in the records: after ``kill -9``, or when a parked run was dropped from memory,
``entry_of`` tells from a step's record where its walk goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared.frozen import frozen
from shared.manifest import Body
from shared.runtime.protocol import NEEDS_APPROVAL
from shared.runtime.scopes import FALLBACK, graph_at, scope_of
from shared.runtime.visits import stood_in_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from shared.ledger.records import Step
    from shared.manifest import Manifest, StepPlan

INTERRUPTED = "Signalbox.Interrupted"
"""Error name of a step whose process died before anybody had decided what follows its failure."""


@frozen
class Do:
    """Perform one operation of a step. With ``token``, the walk then parks until that token is answered."""

    op: str
    step: str
    scope: str = ""
    token: str = ""
    error: str = ""
    template: str = ""

    @property
    def path(self) -> str:
        """The step instance's path."""
        return f"{self.scope}{self.step}"


@frozen
class Sleep:
    """Go on after so many seconds."""

    seconds: float


@frozen
class Within:
    """Run these graphs, each in its scope, at most ``limit`` of them at a time (0 = all); go on when all ended."""

    graphs: tuple[tuple[str, Body], ...]
    limit: int


Effect = Do | Sleep | Within


class TaskFailed(Exception):
    """An operation failed; ``name`` is the error's name, as an engine would report it."""

    def __init__(self, name: str, cause: str = "") -> None:
        super().__init__(f"{name}: {cause}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a walk begins: ``retry`` (with its operation), ``fallback`` or ``park``; after how many seconds.

    ``failed`` = with the cascade, about this error.
    """

    op: str = "retry"
    seconds: float = 0.0
    failed: str = ""


FRESH = Entry()


# --- the way of one step -----------------------------------------------------------------------------------------


def walk_step(plan: StepPlan, scope: str, entry: Entry = FRESH) -> Generator[Effect, Any, bool]:
    """Take one step instance from its entry to where it has settled, through as many attempts as it takes."""
    if entry.seconds:
        yield Sleep(entry.seconds)
    action = yield from _first(plan, scope, entry)
    while action in {"retry", "fallback"}:
        try:
            yield from _attempt(plan, scope, action)
        except TaskFailed as failed:
            action = yield from _decide(plan, scope, failed.name)
        else:
            return True
    return action == "continue"


def _first(plan: StepPlan, scope: str, entry: Entry) -> Generator[Effect, Any, str]:
    if entry.op == "park":
        return (yield from _park(plan, scope))
    if entry.failed:
        return (yield from _decide(plan, scope, entry.failed))
    return entry.op


def _attempt(plan: StepPlan, scope: str, action: str) -> Generator[Effect, Any, None]:
    """Do what the step's type asks for, or let its fallback stand in. Raises TaskFailed."""
    if action == "fallback":
        yield Do("fallback", plan.id, scope, template=plan.fallback or "")
    elif plan.apart:
        yield Do("apart", plan.id, scope, token=f"child:{scope}{plan.id}")
    else:
        yield from _WAYS.get(plan.type, _call)(plan, scope)


def _call(plan: StepPlan, scope: str) -> Generator[Effect, Any, None]:
    yield Do("run", plan.id, scope)


def _gate(plan: StepPlan, scope: str) -> Generator[Effect, Any, None]:
    yield Do("run", plan.id, scope, token=f"gate:{scope}{plan.id}")


def _child(plan: StepPlan, scope: str) -> Generator[Effect, Any, None]:
    yield Do("child", plan.id, scope, token=f"child:{scope}{plan.id}")


def _map(plan: StepPlan, scope: str) -> Generator[Effect, Any, None]:
    """Freeze the items, run the body for each, collect. What failed inside is for ``collect`` to judge."""
    items = (yield Do("map", plan.id, scope))["items"]
    if items and plan.body:
        graphs = tuple((f"{scope}{plan.id}[{number}]/", plan.body) for number in items)
        yield Within(graphs, int(plan.spec.get("max_concurrency") or 0))
    yield Do("collect", plan.id, scope)


def _loop(plan: StepPlan, scope: str) -> Generator[Effect, Any, None]:
    while plan.body and (turn := (yield Do("loop", plan.id, scope)))["again"] == "yes":
        yield Within(((turn["scope"], plan.body),), 1)


def _turns(plan: StepPlan, scope: str) -> Generator[Effect, Any, None]:
    """Take an agent through its turns and their calls: steps of its own scope, as many as its records say."""
    while plan.turns and (due := (yield Do("turns", plan.id, scope)))["next"] != "done":
        if due["next"] == "turn":
            steps = [replace(plan.turns.turn, id=due["step"])]
        else:
            steps = [replace(plan.turns.tools[call["tool"]], id=call["step"]) for call in due["calls"]]
        yield Within(tuple((scope, Body({step.id: step}, (step.id,))) for step in steps), plan.turns.at_once)


def _wait(plan: StepPlan, scope: str) -> Generator[Effect, Any, None]:
    if plan.spec.get("event"):
        yield Do("event", plan.id, scope, token=f"event:{scope}{plan.id}")
        return
    while (answer := (yield Do("wait", plan.id, scope)))["done"] == "no":
        yield Sleep(answer["seconds"])


_WAYS: Mapping[str, Callable[[StepPlan, str], Generator[Effect, Any, None]]] = {
    "human_gate": _gate,
    "sub_workflow": _child,
    "map": _map,
    "loop": _loop,
    "turns": _turns,
    "wait": _wait,
}


def _decide(plan: StepPlan, scope: str, error: str) -> Generator[Effect, Any, str]:
    """Ask the cascade what follows a failed attempt, and wait or park as it says. Returns the action."""
    while True:
        answer = yield Do("cascade", plan.id, scope, error=error)
        if answer["seconds"]:
            yield Sleep(answer["seconds"])
        if answer["action"] == "park":
            return (yield from _park(plan, scope))
        if answer["action"] != "recheck":
            return answer["action"]


def _park(plan: StepPlan, scope: str) -> Generator[Effect, Any, str]:
    """Wait for a person's word on a paused step. Returns the action that it amounts to."""
    answer = yield Do("park", plan.id, scope, token=f"pause:{scope}{plan.id}")
    if answer["action"] == "recheck":
        return (yield from _decide(plan, scope, INTERRUPTED))
    return answer["action"]


# --- the ends of a run -------------------------------------------------------------------------------------------


def walk_finish() -> Generator[Effect, Any, bool]:
    """Write the run's end after its last step."""
    yield Do("finish", "")
    return True


_WAITING = "unwinding:"
_WORD = Do("word", "", token=_WAITING)


def walk_unwinding() -> Generator[Effect, Any, bool]:
    """End a run that must not go on: answer and wait, ask about calls in doubt, compensate, write the end."""
    while True:
        try:
            answer = yield Do("unwind", "")
            if answer["action"] in {"compensate", "probe"}:
                yield Do(answer["action"], answer["step"])
        except TaskFailed:
            # A compensation's record says what to do about its failure, and ``unwind`` reads it.
            yield Sleep(1)
        else:
            if answer["action"] == "done":
                return True
            yield _WORD if answer["action"] == "word" else Sleep(answer["seconds"])


# --- which step begins when --------------------------------------------------------------------------------------


class Graph:
    """The steps of one scope while they run; ``parent`` is the walk whose body this is, None for the run's own."""

    __slots__ = ("_ranks", "alive", "begun", "failed", "order", "parent", "plans", "scope", "settled")

    def __init__(
        self,
        plans: Mapping[str, StepPlan],
        order: tuple[str, ...],
        scope: str = "",
        parent: Any = None,
        settled: Iterable[str] = (),
    ) -> None:
        self.plans, self.order, self.scope, self.parent = plans, order, scope, parent
        self.settled = set(settled)
        self.begun = set(self.settled)
        self.alive = 0
        self.failed = False
        self._ranks: dict[str, int] | None = None

    def begin(self, after: str | None, over: Callable[[StepPlan], bool]) -> list[StepPlan]:
        """Return the steps that begin now that ``after`` has settled (None = at the start), and count them as begun.

        ``over`` tells from the records whether a step that need not wait for all its sources need wait any longer.
        """
        if self.failed:
            return []
        fresh = [plan for plan in self._concerned(after) if self._may_begin(plan, over)]
        self.begun.update(plan.id for plan in fresh)
        self.alive += len(fresh)
        return fresh

    def ended(self, name: str, *, goes_on: bool) -> None:
        """Note that a step's walk has ended: it has settled, or what it belongs to has failed."""
        self.alive -= 1
        if goes_on:
            self.settled.add(name)
        else:
            self.failed = True

    @property
    def over(self) -> bool:
        """Nothing is under way: all have settled, or the graph has failed and what was under way has closed."""
        return not self.alive

    def rank(self, name: str) -> int:
        """Return how many steps the longest way from this one to an end has: who has the longest goes first."""
        if self._ranks is None:
            self._ranks = {}
            for each in reversed(self.order):
                self._ranks[each] = 1 + max((self._ranks.get(d, 0) for d in self.plans[each].dependents), default=0)
        return self._ranks.get(name, 0)

    def _concerned(self, after: str | None) -> Iterator[StepPlan]:
        """Yield the steps whose turn may have come: the dependents of what has settled; at the start, all."""
        if after is None:
            names: Iterable[str] = self.order
        else:
            approved = self.plans[after].spec.get("approves")
            names = dict.fromkeys((*self.plans[after].dependents, *((approved,) if approved else ())))
        return (self.plans[name] for name in names if name not in self.begun)

    def _may_begin(self, plan: StepPlan, over: Callable[[StepPlan], bool]) -> bool:
        """Tell whether the step's sources have settled or, where its join need not wait for all, whether it decided.

        Whether it then runs or is skipped is decided on entry, by the same rules (``shared.runtime.joins``).
        """
        settled = (edge.source in self.settled for edge in plan.needs)
        if plan.join == "all":
            return all(settled)
        ready = list(settled)
        return all(ready) or (any(ready) and over(plan))


# --- where it goes on --------------------------------------------------------------------------------------------


def graph_of(manifest: Manifest, part: str | None, records: Mapping[str, Step]) -> Graph:
    """Return a run's graph, with what has settled: the workflow's own, or the map or loop at ``part``, alone."""
    if part is None:
        return Graph(manifest.steps, manifest.order, settled=settled_in(manifest.order, "", records))
    scope = scope_of(part)
    plan = replace(graph_at(manifest, scope)[part.removeprefix(scope)], apart=False, needs=(), dependents=())
    return Graph({plan.id: plan}, (plan.id,), scope, settled=settled_in((plan.id,), scope, records))


def settled_in(order: Iterable[str], scope: str, records: Mapping[str, Step]) -> set[str]:
    """Return the steps of a scope that have settled, from its records by path."""
    return {name for name in order if (step := records.get(f"{scope}{name}")) is not None and step.settled}


def entry_of(path: str, records: Mapping[str, Step], now: int) -> Entry:
    """Tell from the records where a step's walk goes on when nobody remembers it; ``now`` in milliseconds.

    A step found open was interrupted: it is entered again, takes over, and looks for what its call may have done.
    """
    step, stand_in = records.get(path), records.get(f"{path}{FALLBACK}")
    if step is None:
        return FRESH
    again = (step.action or {}).get("action") == "retry"
    if step.status == "paused" or (step.status == "unknown" and not again) or step.reason == NEEDS_APPROVAL:
        return Entry("park")
    if step.open:
        return FRESH
    if stood_in_for(step):
        return Entry("fallback") if stand_in is None or stand_in.open else Entry(failed=INTERRUPTED)
    if step.status in {"retrying", "unknown"} and again:
        due = max(step.ended or 0, step.probed or 0) + 1000 * (step.action or {})["seconds"]
        return Entry(seconds=max(0, due - now) / 1000)
    return Entry(failed=INTERRUPTED) if step.status in {"failed", "timed_out"} else FRESH
