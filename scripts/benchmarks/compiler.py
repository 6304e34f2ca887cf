"""How good compiled machines are, beside two simple ways to compile the same graphs."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from scripts.benchmarks import graphs
from scripts.benchmarks.graphs import Flow
from scripts.benchmarks.simulate import makespan
from scripts.commands.output import JsonOption, console, print_json, table
from shared.compiler import compile_manifest
from shared.graph import Graph, Parallel, Step, Tree
from shared.graph import Sequence as SequenceTree
from shared.graph.dag import bits
from shared.graph.decompose import Decomposition
from shared.graph.forest import price
from shared.graph.tree import sequence

LARGEST = 700
"""Tasks; larger graphs do not count for transitions."""
AROUND = 2
"""The states after the last step: finish and completed."""

CorpusOption = Annotated[Path | None, typer.Option(help="Recorded graphs; without it, generated ones.")]


@dataclass(frozen=True, slots=True)
class Measured:
    """One graph compiled in one way: seconds it takes, and states that a happy run enters."""

    makespan: float
    transitions: int


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compiler")(compiler)


def compiler(*, corpus: CorpusOption = None, as_json: JsonOption = False) -> None:
    """Compare with a barrier a level, and with series and parallel with barriers where neither fits."""
    flows = graphs.read(corpus) if corpus else graphs.generate()
    measured = {name: [way(flow) for flow in flows] for name, way in WAYS.items()}
    found = {
        "graphs": {"source": str(corpus) if corpus else "generated", "count": len(flows), **_sizes(flows)},
        "makespan / critical path": {name: _makespans(flows, its) for name, its in measured.items()},
        "transitions a step": {name: _transitions(flows, its) for name, its in measured.items()},
        "transitions a step, chains and fork-joins": _simple(),
        "compile 1,000 steps, CPU s": _compile_times(),
    }
    if as_json:
        print_json(found)
    else:
        _show(found)


def _ours(flow: Flow) -> Measured:
    unit = compile_manifest(flow.manifest())
    return Measured(makespan(unit, flow), unit.summary.transitions)


def _by_level(flow: Flow) -> Measured:
    return _of_tree(flow, _levels(flow, range(len(flow.needs))))


def _series_parallel(flow: Flow) -> Measured:
    order = Graph.of(
        {graphs.step(task): [graphs.step(need) for need in needs] for task, needs in enumerate(flow.needs)}
    )
    return _of_tree(flow, _Barriers(order, flow).build(order.everything, 0))


class _Barriers(Decomposition):
    """Series and parallel parts as we do; what is neither, level by level with a barrier after each."""

    __slots__ = ("flow",)

    def __init__(self, graph: Graph, flow: Flow) -> None:
        super().__init__(graph)
        object.__setattr__(self, "flow", flow)

    def cover(self, block: int, depth: int) -> Tree:
        del depth
        return _levels(self.flow, [graphs.task(self.graph.names[node]) for node in bits(block)])


WAYS: dict[str, Callable[[Flow], Measured]] = {
    "signalbox": _ours,
    "a barrier a level": _by_level,
    "series-parallel with barriers": _series_parallel,
}


def _levels(flow: Flow, tasks: Iterable[int]) -> Tree:
    levels: dict[int, list[Tree]] = {}
    for task in tasks:
        levels.setdefault(flow.depths[task], []).append(Step(graphs.step(task)))
    parts = (levels[depth] for depth in sorted(levels))
    return sequence(tuple(part[0] if len(part) == 1 else Parallel(tuple(part)) for part in parts))


def _of_tree(flow: Flow, tree: Tree) -> Measured:
    return Measured(_duration(flow, tree), len(flow.needs) + price(tree)[0] + AROUND)


def _duration(flow: Flow, tree: Tree) -> float:
    match tree:
        case SequenceTree(items):
            return sum(_duration(flow, item) for item in items)
        case Parallel(branches):
            return max(_duration(flow, branch) for branch in branches)
        case Step(name):
            return flow.seconds[graphs.task(name)]
        case _:
            return 0.0


def _sizes(flows: Sequence[Flow]) -> dict[str, float]:
    sizes = [len(flow.needs) for flow in flows]
    return {"tasks, median": statistics.median(sizes), "tasks, max": max(sizes)}


def _makespans(flows: Sequence[Flow], measured: Sequence[Measured]) -> dict[str, float]:
    pairs = zip(flows, measured, strict=True)
    return _spread([its.makespan / flow.critical_path for flow, its in pairs])


def _transitions(flows: Sequence[Flow], measured: Sequence[Measured]) -> dict[str, float]:
    pairs = zip(flows, measured, strict=True)
    return _spread([its.transitions / len(flow.needs) for flow, its in pairs if len(flow.needs) <= LARGEST])


def _simple() -> dict[str, dict[str, float]]:
    flows = [flow for flow in graphs.thousand() if flow.name.startswith(("chain", "fork_join"))]
    return {name: _transitions_of(flows, way) for name, way in WAYS.items()}


def _transitions_of(flows: Sequence[Flow], way: Callable[[Flow], Measured]) -> dict[str, float]:
    return _spread([way(flow).transitions / len(flow.needs) for flow in flows])


def _compile_times() -> dict[str, dict[str, float]]:
    taken: list[float] = []
    for flow in graphs.thousand():
        manifest = flow.manifest()
        begun = time.process_time()
        compile_manifest(manifest)
        taken.append(time.process_time() - begun)
    return {"signalbox": _spread(taken)}


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"graphs": len(values), "median": round(statistics.median(values), 3), "max": round(max(values), 3)}


def _show(found: dict[str, Any]) -> None:
    about = found.pop("graphs")
    console().print(f"{about['count']} graphs ({about['source']}), {about['tasks, median']:g} tasks in the median\n")
    rows = [
        (what, way, str(its["graphs"]), f"{its['median']:.3f}", f"{its['max']:.3f}")
        for what, ways in found.items()
        for way, its in ways.items()
    ]
    table(("WHAT", "WAY", "GRAPHS", "MEDIAN", "MAX"), rows, right=("GRAPHS", "MEDIAN", "MAX"), empty="nothing")
