"""What a step costs on AWS: round trips one after the other, fifty closing at once, and its time beside a bare Lambda.

Round trips are counted at the ports of a real run. The fan-out runs on a store in memory whose transactions take 6 ms
and conflict as DynamoDB's do: two that touch the same item at once, and one is refused. The last figures are measured
on the local cloud: a chain of steps, and beside it, in the same minute, a chain of Lambda tasks that do nothing, and
one of tasks that only make a step's three round trips, over plain HTTP and without an SDK. What these take is the
least that a step can take on that emulator, whatever its own code does.
"""

import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from scripts.benchmarks.inprocess import Row, graph, shown_rows
from scripts.commands.output import JsonOption
from shared.compiler import compile_manifest
from shared.errors import StoreConflict
from shared.manifest import Edge, Manifest, StepPlan
from shared.ports import Key, Write
from shared.runtime.runs import StartRequest, start_run
from shared.testing import FakeModels, FakeTools, MemoryStore

ROOT = Path(__file__).resolve().parents[2]
CHAIN = 20
"""Steps of the chains that are compared."""
FAN = 50
LATENCY = 0.006
"""Seconds that a transaction takes."""
ROUNDS = 7
MOST_TRIPS, MOST_SECONDS, MOST_RATIO = 3.0, 1.0, 2.0


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("step")(step)


def step(
    *,
    cloud: Annotated[bool, typer.Option(help="Measure on the local cloud as well (half a minute).")] = True,
    as_json: JsonOption = False,
) -> None:
    """Measure a step: round trips, fan-out, and its time on the local cloud beside a bare Lambda task."""
    rows = [round_trips(), Row("fan-out of 50, last close, transactions of 6 ms", fan_out(), "s", MOST_SECONDS)]
    shown_rows([*rows, *(on_the_local_cloud() if cloud else ())], as_json=as_json)


# --- round trips ---------------------------------------------------------------------------------------------------


def chain(length: int, tool: str, arguments: dict[str, Any]) -> Manifest:
    """Return a manifest of tool steps one after the other."""
    spec = {"tool": tool, "with": arguments, "compensate": None, "reconcile": None}
    needs = [(), *((Edge(f"s{number - 1}"),) for number in range(1, length))]
    plans = [StepPlan(f"s{number}", "tool", needs[number], spec=spec, timeout=60.0) for number in range(length)]
    return graph(*_linked(plans))


def _linked(plans: Sequence[StepPlan]) -> Iterator[StepPlan]:
    for plan in plans:
        after = tuple(other.id for other in plans if plan.id in {edge.source for edge in other.needs})
        yield replace(plan, dependents=after)


class Counting(MemoryStore):
    """A store that counts what would be round trips."""

    def __init__(self) -> None:
        super().__init__()
        self.trips: Counter[str] = Counter()

    def read(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """Return the items that exist."""
        self.trips["read"] += 1
        return super().read(keys)

    def query(self, pk: str, prefix: str, *, after: str = "", limit: int = 0) -> list[Any]:
        """Return a partition's items under ``prefix``."""
        self.trips["query"] += 1
        return super().query(pk, prefix, after=after, limit=limit)

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none."""
        self.trips["commit"] += 1
        super().commit(writes)


def round_trips() -> Row:
    """Count the round trips that each further step of a chain adds."""
    counted = [_trips(length) for length in (2, 12)]
    return Row("sequential AWS round trips a step, happy path", (counted[1] - counted[0]) / 10, "", MOST_TRIPS)


def _trips(length: int) -> int:
    store = Counting()
    machine = _of_tests("machine")
    tools = FakeTools({"nothing": lambda _arguments, _call: {"ok": True}})
    unit = compile_manifest(chain(length, "nothing", {}))
    run = machine.World(unit, FakeModels(lambda _: ""), tools, store=store).start({})
    if run.status != "SUCCEEDED":
        raise RuntimeError(f"the chain ended as {run.status}")
    return sum(store.trips.values())


def _of_tests(name: str) -> Any:
    """Return a module of the tests, whose worlds and emulator are used here."""
    for folder in ("tests/property", "tests/flows"):
        if str(ROOT / folder) not in sys.path:
            sys.path.insert(0, str(ROOT / folder))
    return import_module(name)


# --- fan-out -------------------------------------------------------------------------------------------------------


class Slow(MemoryStore):
    """A store whose transactions take their time, and conflict with those that touch the same item meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._busy: set[Key] = set()
        self._guard = threading.Lock()

    def commit(self, writes: Sequence[Write]) -> None:
        """Apply all writes or none. Raises StoreConflict also when another transaction is at one of the items."""
        keys = {write.key for write in writes}
        with self._guard:
            if keys & self._busy:
                raise StoreConflict("TransactionConflict")
            self._busy |= keys
        try:
            time.sleep(LATENCY)
            super().commit(writes)
        finally:
            with self._guard:
                self._busy -= keys


def fan_out() -> float:
    """Return the median seconds from the moment at which 50 open steps close to the last close."""
    return statistics.median(_closing() for _ in range(3))


def _closing() -> float:
    machine, store = _of_tests("machine"), Slow()
    spec: dict[str, Any] = {"tool": "meet", "with": {}, "compensate": None, "reconcile": None}
    plans = [StepPlan(f"s{number}", "tool", (), spec=spec, timeout=60.0) for number in range(FAN)]
    meeting = threading.Barrier(FAN)
    met: list[float] = []

    def meet(_arguments: Any, _call: Any) -> dict[str, bool]:
        meeting.wait(60)
        met.append(time.perf_counter())
        return {"ok": True}

    unit = compile_manifest(graph(*plans, max_parallel=FAN))
    world = machine.World(unit, FakeModels(lambda _: ""), FakeTools({"meet": meet}), store=store)
    world.clock.sleep, world.clock.jitter = time.sleep, _jitter
    with _published(world) as run:
        threads = [threading.Thread(target=_deliver, args=(world, run, plan.id)) for plan in plans]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return time.perf_counter() - max(met)


def _jitter(upper: float) -> float:
    return random.random() * upper  # noqa: S311 - spreading, no secret


@contextmanager
def _published(world: Any) -> Generator[dict[str, Any]]:
    published = world.steps.definitions.published("bench")
    world.run, _ = start_run(world.steps, published, StartRequest(world.tenant, "bench@localhost", "api", {}))
    yield next(iter(world.engine.executions.values()))["run"]


def _deliver(world: Any, run: dict[str, Any], name: str) -> None:
    world.call("${StepFunction}", {"op": "run", "run": run, "scope": "", "step": name, "entered": "1", "retry": 0})


# --- on the local cloud --------------------------------------------------------------------------------------------


def on_the_local_cloud() -> list[Row]:
    """Measure a chain of steps, and beside it chains of Lambda tasks that do nothing, or no more than a step must."""
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1")  # noqa: S106
    with tempfile.TemporaryDirectory() as folder, _of_tests("cloud").on_cloud(Path(folder)) as cloud:
        bare, trips = cloud.bare_chain(CHAIN), cloud.trips_chain(CHAIN)
        ours = cloud.chain(compile_manifest(chain(CHAIN, "behave", {"seed": 1, "chance": 0})))
        # The first two start the functions' processes.
        rounds = [(ours(), trips(), bare()) for _ in range(ROUNDS + 2)][2:]
    step_, least, lambda_ = (statistics.median(column) / CHAIN * 1000 for column in zip(*rounds, strict=True))
    return [
        Row("a bare Lambda task on the local cloud", lambda_, "ms", None),
        Row("  with a step's 3 round trips, bare as well", least, "ms", None),
        Row("a step on the local cloud", step_, "ms", None),
        Row("  as a multiple of the bare task", _multiple(rounds, 0, 2), "x", MOST_RATIO),
        Row("  the least possible here: with 3 bare trips", _multiple(rounds, 1, 2), "x", None),
        Row("  as a multiple of that least", _multiple(rounds, 0, 1), "x", None),
    ]


def _multiple(rounds: Sequence[tuple[float, ...]], of: int, to: int) -> float:
    """Return the median ratio of two columns, each taken within its round: a busy machine slows both."""
    return statistics.median(one[of] / one[to] for one in rounds)
