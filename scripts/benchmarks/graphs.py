"""Graphs to measure with: a recorded corpus, or generated ones of the shapes that workflows have."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.manifest import Edge, Limits, Manifest, StepPlan

Needs = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """A graph of tasks: how long each takes in seconds, and by number the tasks that each depends on."""

    name: str
    seconds: tuple[float, ...]
    needs: Needs

    @property
    def depths(self) -> tuple[int, ...]:
        """How many tasks stand before each one at most."""
        found: list[int] = []
        for sources in self.needs:
            found.append(1 + max((found[source] for source in sources), default=-1))
        return tuple(found)

    @property
    def critical_path(self) -> float:
        """How long the tasks take if each starts the moment its own dependencies have ended."""
        ends: list[float] = []
        for sources, seconds in zip(self.needs, self.seconds, strict=True):
            ends.append(seconds + max((ends[source] for source in sources), default=0.0))
        return max(ends)

    def manifest(self) -> Manifest:
        """Return the graph as a workflow of steps without retries."""
        dependents: list[list[str]] = [[] for _ in self.needs]
        for task, sources in enumerate(self.needs):
            for source in sources:
                dependents[source].append(step(task))
        plans = {
            step(task): StepPlan(
                id=step(task),
                type="transform",
                needs=tuple(Edge(step(source)) for source in sources),
                dependents=tuple(dependents[task]),
                spec={"set": {}},
            )
            for task, sources in enumerate(self.needs)
        }
        return Manifest("bench", "", {}, Limits(), plans, tuple(plans))


def step(task: int) -> str:
    """Return the id of a task's step."""
    return f"task_{task}"


def task(step_id: str) -> int:
    """Return the number of a step's task."""
    return int(step_id.removeprefix("task_"))


def read(corpus: Path) -> list[Flow]:
    """Read a corpus: a JSON list of ``{name, seconds, needs}`` in which the tasks may come in any order."""
    return [_sorted(graph["name"], graph["seconds"], graph["needs"]) for graph in json.loads(corpus.read_text())]


def _sorted(name: str, seconds: list[float], needs: list[list[int]]) -> Flow:
    depth: dict[int, int] = {}
    open_ = list(range(len(needs)))
    while open_:
        ready = [task for task in open_ if all(source in depth for source in needs[task])]
        if not ready:
            raise ValueError(f"{name}: its tasks wait for each other")
        for task in ready:
            depth[task] = 1 + max((depth[source] for source in needs[task]), default=-1)
        open_ = [task for task in open_ if task not in depth]
    order = sorted(depth, key=lambda task: (depth[task], task))
    place = {task: index for index, task in enumerate(order)}
    sources = tuple(tuple(sorted({place[source] for source in needs[task]})) for task in order)
    return Flow(name, tuple(seconds[task] for task in order), sources)


def generate(count: int = 60, seed: int = 7) -> list[Flow]:
    """Return graphs of six shapes and many sizes, always the same ones."""
    rng = random.Random(seed)  # noqa: S311 - graphs, not secrets
    shapes = (chain, fork_join, layers, scattered, pipelines, pairs)
    flows: list[Flow] = []
    for number in range(count):
        shape = shapes[number % len(shapes)]
        needs = shape(rng, rng.randint(5, 400))
        flows.append(Flow(f"{shape.__name__} {number}", tuple(rng.uniform(1, 60) for _ in needs), needs))
    return flows


def chain(_rng: random.Random, size: int) -> Needs:
    """Return one task after the other."""
    return tuple((task - 1,) if task else () for task in range(size))


def fork_join(rng: random.Random, size: int) -> Needs:
    """Return a fork over most tasks, and a join."""
    width = max(2, size - rng.randint(2, 4))
    return ((), *((0,) for _ in range(width)), tuple(range(1, width + 1)))


def layers(rng: random.Random, size: int) -> Needs:
    """Return layers in which every task needs a few of the layer before."""
    width = rng.randint(2, 20)
    found: list[tuple[int, ...]] = []
    for task in range(size):
        start = task - task % width
        before = range(max(0, start - width), start)
        found.append(tuple(sorted(rng.sample(before, min(len(before), rng.randint(1, 3))))))
    return tuple(found)


def scattered(rng: random.Random, size: int) -> Needs:
    """Return a random graph."""
    return tuple(
        tuple(sorted({rng.randrange(max(0, task - 40), task) for _ in range(rng.randint(0, 2))})) if task else ()
        for task in range(size)
    )


def pipelines(rng: random.Random, size: int) -> Needs:
    """Return pipelines side by side between a split and a merge."""
    length = rng.randint(2, 6)
    count = max(2, size // length)
    tasks = range(count * length)
    lanes = tuple((0,) if task % length == 0 else (task,) for task in tasks)
    return ((), *lanes, tuple(range(length, count * length + 1, length)))


def pairs(rng: random.Random, size: int) -> Needs:
    """Return sources, tasks that compare neighbouring ones, and a merge: mostly prime blocks."""
    sources = max(3, size // 3)
    found: list[tuple[int, ...]] = [() for _ in range(sources)]
    found += [tuple(sorted({place, (place + rng.randint(1, 3)) % sources})) for place in range(sources)]
    return (*found, tuple(range(sources, 2 * sources)))


def thousand() -> Iterator[Flow]:
    """Yield graphs of 1,000 tasks, for compile times."""
    rng = random.Random(7)  # noqa: S311 - graphs, not secrets
    for shape in (chain, fork_join, layers, scattered, pipelines, pairs):
        needs = shape(rng, 1500 if shape is pairs else 1000)
        yield Flow(f"{shape.__name__} of {len(needs)}", tuple(1.0 for _ in needs), needs)
