"""How walks follow each other: dependents, the next item of a map, the container around a body, the run's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.inprocess.live import Walk
from shared.interpreter import TaskFailed, walk_finish

if TYPE_CHECKING:
    from shared.inprocess.engine import InProcess
    from shared.inprocess.live import Live
    from shared.interpreter import Graph, Within


class Walks:
    """What begins when something ends. Everything here happens under the run's lock."""

    def __init__(self, engine: InProcess) -> None:
        self._engine = engine

    def enter(self, live: Live, walk: Walk, effect: Within) -> list[Walk]:
        """Begin a walk's body; the walk itself waits for it."""
        walks: list[Walk] = []
        with live.lock:
            for graph in live.bodies(walk, effect):
                walks += self._begin(live, graph)
            walks = walks if walk.inside else [walk]
            live.active += len(walks) - 1
        return walks

    def _begin(self, live: Live, graph: Graph | None) -> list[Walk]:
        """Begin one scope of a body; where everything has settled already, begin the next one."""
        while graph is not None:
            walks = self._turns(live, graph, None)
            if walks:
                return walks
            graph.parent.inside -= 1
            graph = live.next_body(graph.parent)
        return []

    def _turns(self, live: Live, graph: Graph, after: str | None) -> list[Walk]:
        return live.begun(
            graph, after, lambda plan: self._engine.join_over(live, graph.scope, plan), self._engine.now()
        )

    def ended(self, live: Live, walk: Walk, *, goes_on: bool) -> list[Walk]:
        """Note a walk's end; return the walks that begin thereby."""
        graph, plan = walk.graph, walk.plan
        if graph is None or plan is None:
            return self._last(live)
        with live.lock:
            graph.ended(plan.id, goes_on=goes_on)
            begun = self._turns(live, graph, plan.id) if goes_on else []
            if not begun and graph.over:
                begun = self._graph_over(live, graph)
            live.active += len(begun)
            self._engine.rest(live)
        return begun

    def _graph_over(self, live: Live, graph: Graph) -> list[Walk]:
        parent = graph.parent
        if parent is None:
            return [] if graph.failed or live.unwinding else [Walk(walk_finish())]
        parent.inside -= 1
        begun = self._begin(live, live.next_body(parent))
        return begun if begun or parent.inside else [parent]

    def _last(self, live: Live) -> list[Walk]:
        """After the last state of a run: it has ended, or its records say why not."""
        head = self._engine.places.journal(live.id).read([]).head
        if head.ended or head.epoch != live.facts.head.epoch:
            self._engine.hub.saved()
            self._engine.places.over(live)
            return []
        return self._engine.died(live, TaskFailed("Signalbox.Unfinished", "the run has not ended"))
