"""What a run that is under way consists of, in memory. None of it is needed to go on after a crash."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from shared.interpreter import Graph, entry_of, graph_of, settled_in, walk_finish, walk_step, walk_unwinding

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from shared.interpreter import Do, Effect, Within
    from shared.ledger.records import Step
    from shared.manifest import Body, Manifest, StepPlan
    from shared.runtime.journal import Snapshot


class Walk:
    """A generator of the interpreter with its place: the step it walks (None = an end of the run) and its graph.

    ``do`` is its operation at hand and ``limit`` that one's time-out in seconds, None where it makes no call.
    ``ticket`` rises with every operation, so that an answer which comes after its time is recognised.
    ``graphs`` are those inside it that have not begun, each with its scope; ``inside`` counts those under way.
    """

    __slots__ = ("do", "graph", "graphs", "inside", "limit", "plan", "steps", "ticket")

    def __init__(
        self, steps: Generator[Effect, Any, bool], graph: Graph | None = None, plan: StepPlan | None = None
    ) -> None:
        self.steps, self.graph, self.plan = steps, graph, plan
        self.do: Do | None = None
        self.limit: float | None = None
        self.ticket = 0
        self.graphs: Iterator[tuple[str, Body]] = iter(())
        self.inside = 0


class Live:
    """One run under way. ``lock`` guards everything; ``active`` counts walks that neither wait nor sleep.

    ``parked`` holds the walks that wait for an answer, by token; ``early`` answers that came before their walk had
    parked, for the tokens in ``expected``. ``busy`` of at most ``max_parallel`` steps call; ``queue`` holds the rest.
    ``taken`` = the run was driven by a process that is dead. ``naps`` counts short sleeps, which keep it in memory.
    """

    def __init__(self, run: str, *, taken: bool) -> None:
        self.id = run
        self.taken = taken
        self.lock = threading.RLock()
        self.parked: dict[str, Walk] = {}
        self.expected: set[str] = set()
        self.early: dict[str, Any] = {}
        self.queue: list[Walk] = []
        self.active = 1
        self.busy = 0
        self.naps = 0
        self.ready = self.closed = self.unwinding = self.to_unwind = False
        self.records: Mapping[str, Step] = {}
        self.manifest: Manifest
        self.facts: Snapshot

    def adopt(self, seen: Snapshot, manifest: Manifest) -> None:
        """Take over what the records say."""
        self.facts, self.manifest, self.ready = seen, manifest, True
        self.records = {step.path: step for step in seen.steps()}

    def opening(self, over: Callable[[StepPlan], bool], now: int) -> list[Walk]:
        """Return the walks with which the run goes on: its first steps, or its unwinding."""
        if self.facts.head.unwinding or self.to_unwind:
            return self.unwind()
        root = graph_of(self.manifest, self.facts.run.part, self.records)
        return self.begun(root, None, over, now) or [Walk(walk_finish())]

    def unwind(self) -> list[Walk]:
        """Return the unwinding's walk, once; before the run has been adopted, leave word."""
        self.to_unwind = True
        if self.unwinding or not self.ready:
            return []
        self.unwinding = True
        return [Walk(walk_unwinding())]

    def begun(self, graph: Graph, after: str | None, over: Callable[[StepPlan], bool], now: int) -> list[Walk]:
        """Return walks for the steps of ``graph`` whose turn has come."""
        made: list[Walk] = []
        for plan in graph.begin(after, over):
            entry = entry_of(f"{graph.scope}{plan.id}", self.records, now)
            made.append(Walk(walk_step(plan, graph.scope, entry), graph, plan))
        return made

    def bodies(self, walk: Walk, effect: Within) -> Iterable[Graph]:
        """Yield graphs of a walk's body, as many as may run at a time."""
        walk.graphs = iter(effect.graphs)
        for _ in range(effect.limit or len(effect.graphs)):
            graph = self.next_body(walk)
            if graph is None:
                return
            yield graph

    def next_body(self, walk: Walk) -> Graph | None:
        """Return the next graph inside a walk; None = all have begun."""
        following = next(walk.graphs, None)
        if following is None:
            return None
        walk.inside += 1
        scope, body = following
        return Graph(body.steps, body.order, scope, walk, settled_in(body.order, scope, self.records))

    def take_place(self, walk: Walk) -> bool:
        """Count a step among those that call, or let it wait for its turn."""
        if self.busy < self.manifest.max_parallel:
            self.busy += 1
            return True
        self.queue.append(walk)
        self.active -= 1
        return False

    def free_place(self) -> Walk | None:
        """Give a place back; return who is next: the one that has the longest way before it."""
        self.busy -= 1
        if not self.queue:
            return None
        chosen = max(self.queue, key=_rank)
        self.queue.remove(chosen)
        self.active += 1
        return chosen

    @property
    def still(self) -> bool:
        """Nothing of the run moves, or will before an answer or a long sleep's end."""
        return not (self.active or self.naps or self.queue or self.closed) and bool(self.parked)


def _rank(walk: Walk) -> int:
    return walk.graph.rank(walk.plan.id) if walk.graph and walk.plan else 0
