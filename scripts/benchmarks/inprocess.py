"""What the in-process host costs: durable steps beside this disk's own flush, fan-out, a thousand parked runs.

Everything is durable: SQLite with full synchronisation, nothing is counted that is not on the disk. The disk's bare
flush is measured before and after in the same folder, since it decides half of the figures.
"""

import gc
import os
import shutil
import statistics
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scripts.commands.output import JsonOption, console, print_json, table
from shared.inprocess.workspace import TENANT, Workspace
from shared.ledger.records import run_partition
from shared.manifest import Edge, Limits, Manifest, StepPlan
from shared.ports import Key
from shared.runtime.gates import Word, decide_gate
from shared.runtime.journal import Journal
from shared.runtime.runs import StartRequest, start_run
from shared.testing import FakeModels, FakeTools, FixedDefinitions

if TYPE_CHECKING:
    from shared.inprocess.engine import InProcess

PARKED_BYTES, PARKED_SECONDS = 2_500, 2.0
FlushOption = Annotated[Path | None, typer.Option("--folder", help="Where to keep the files; the disk matters.")]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: what, the value with its unit, and the figure to reach (None = none is set)."""

    what: str
    value: float
    unit: str
    limit: float | None
    at_least: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the figure is reached."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("in-process")(in_process)


def in_process(
    *,
    folder: FlushOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of everything.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the in-process host: durable steps, throughput, fan-out, parked runs."""
    shown_rows(measure(folder, scale=10 if quick else 1), as_json=as_json)


def shown_rows(rows: Sequence[Row], *, as_json: bool) -> None:
    """Print the figures beside those to reach."""
    if as_json:
        return print_json({"rows": [asdict(row) | {"reached": row.reached} for row in rows]})
    table(("FIGURE", "MEASURED", "TO REACH", ""), [_shown(row) for row in rows], right=("MEASURED",), empty="")
    console().print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", style="dim")
    return None


def main(arguments: Sequence[str]) -> None:
    """Run this benchmark alone."""
    app = typer.Typer(add_completion=False)
    app.command()(in_process)
    app(list(arguments), prog_name="bench in-process")


def _shown(row: Row) -> tuple[str, str, str, str]:
    goal = "" if row.limit is None else f"{'≥' if row.at_least else '≤'} {row.limit:,.2f} {row.unit}"
    mark = {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}[row.reached]
    return row.what, f"{row.value:,.2f} {row.unit}", goal, mark


def measure(folder: Path | None = None, scale: int = 1) -> list[Row]:
    """Return all figures; ``scale`` divides the sizes."""
    place = Path(tempfile.mkdtemp(prefix="signalbox-bench-", dir=folder))
    try:
        before = bare_flush(place)
        step = durable_step(place, 100 // scale)
        throughput = steps_per_second(place, 100 // scale, 20)
        wide = fan_out(place, 50)
        flush = (before + bare_flush(place)) / 2
        return [
            Row("bare flush of this disk (8 KiB, median)", flush, "ms", None),
            Row("durable step, one run", step, "ms", 0.5 + 2 * flush),
            Row(f"steps a second, {100 // scale} runs at once", throughput, "/s", 1200, at_least=True),
            Row("fan-out of 50, first open to last close", wide, "ms", 12 + 2 * flush),
            *parked(place, 1000 // scale),
        ]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def bare_flush(place: Path, times: int = 100) -> float:
    """Return the median milliseconds of appending 8 KiB and flushing them, as a commit must."""
    number = os.open(place / "flush", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    took: list[float] = []
    for _ in range(times):
        os.write(number, b"x" * 8192)
        begun = time.perf_counter()
        os.fdatasync(number)
        took.append((time.perf_counter() - begun) * 1000)
    os.close(number)
    return statistics.median(took)


class House:
    """A store with an engine and one published graph of tools that do nothing."""

    def __init__(self, path: Path, manifest: Manifest, workers: int) -> None:
        self.workspace = Workspace(path)
        self.workspace.definitions = FixedDefinitions(manifest)  # pyright: ignore[reportAttributeAccessIssue]
        self.engine: InProcess = self.workspace.engine(workers)
        tools = FakeTools({"nothing": lambda _arguments, _call: {"ok": True}})
        self.handlers = self.workspace.handlers(self.engine, FakeModels(lambda _: ""), tools)
        self.published = self.workspace.definitions.published(manifest.workflow)
        self.engine.open(self.handlers)

    def start(self, number: int) -> str:
        """Start a run."""
        request = StartRequest(TENANT, "bench@localhost", "cli", {"number": number})
        return start_run(self.handlers.steps, self.published, request)[0]

    def finish(self) -> None:
        """Wait until no run is driven any more."""
        self._until(lambda: not self.engine.places.runs())

    def rest(self) -> None:
        """Wait until every run is parked."""
        self._until(lambda: not self.engine.places.in_memory())

    def journal(self, run: str) -> Journal:
        """Return a run's journal."""
        return Journal(self.workspace.store, self.workspace.clock, TENANT, run)

    def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if self.engine.failure:
                raise self.engine.failure
            time.sleep(0.002)


@contextmanager
def house(path: Path, manifest: Manifest, workers: int) -> Generator[House]:
    """Open a house and close it."""
    opened = House(path, manifest, workers)
    try:
        yield opened
    finally:
        opened.engine.close()
        opened.workspace.close()


def graph(*steps: StepPlan, **more: Any) -> Manifest:
    """Return a manifest of these steps."""
    known = {step.id: step for step in steps}
    return Manifest("bench", "bench", {}, Limits(), known, tuple(known), **more)


def tool(name: str, needs: Sequence[str] = (), dependents: Sequence[str] = ()) -> StepPlan:
    """Return a step that calls the tool which does nothing."""
    spec = {"tool": "nothing", "with": {"number": "${ input.number }"}, "cost": 0}
    edges = tuple(Edge(need) for need in needs)
    return StepPlan(name, "tool", needs=edges, dependents=tuple(dependents), spec=spec)


def chain(length: int) -> Manifest:
    """Return a chain of steps."""
    names = [f"s{number}" for number in range(length)]
    return graph(*(tool(name, names[max(0, n - 1) : n], names[n + 1 : n + 2]) for n, name in enumerate(names)))


def durable_step(place: Path, length: int) -> float:
    """Return the milliseconds a step of one run takes, its two commits flushed each."""
    with house(place / "one.db", chain(length), 2) as opened:
        opened.start(0)
        opened.finish()
        begun = time.perf_counter()
        opened.start(1)
        opened.finish()
        return (time.perf_counter() - begun) * 1000 / length


def steps_per_second(place: Path, runs: int, length: int) -> float:
    """Return how many steps a second many runs complete together."""
    with house(place / "many.db", chain(length), 32) as opened:
        begun = time.perf_counter()
        for number in range(runs):
            opened.start(number)
        opened.finish()
        return runs * length / (time.perf_counter() - begun)


def fan_out(place: Path, width: int) -> float:
    """Return the milliseconds from the first open to the last close of steps that begin together."""
    names = [f"s{number}" for number in range(width)]
    steps = (tool("first", (), names), *(tool(name, ["first"], ["last"]) for name in names), tool("last", names))
    took: list[float] = []
    with house(place / "wide.db", graph(*steps, max_parallel=width), width) as opened:
        for number in range(5):
            run = opened.start(number)
            opened.finish()
            events = opened.journal(run).events()
            times = [event.at for event in events if event.path in names]
            took.append(float(max(times) - min(times)))
    return statistics.median(took)


def waiting() -> Manifest:
    """Return a graph that waits for a person and then does one thing."""
    spec = {"approvers": ["finance"], "subject": "Go on?", "on_expiry": "reject"}
    gate = StepPlan("gate", "human_gate", dependents=("after",), timeout=86_400.0, spec=spec)
    return graph(gate, tool("after", ["gate"]))


def parked(place: Path, count: int) -> list[Row]:
    """Return what parked runs cost in a process that has taken them over, and how fast they go on."""
    with house(place / "parked.db", waiting(), 8) as opened:
        runs = [opened.start(number) for number in range(count)]
        opened.rest()
    threads = threading.active_count()
    gc.collect()
    tracemalloc.start()
    with house(place / "parked.db", waiting(), 8) as opened:
        gc.collect()
        empty = tracemalloc.get_traced_memory()[0]
        for run in runs:
            opened.engine.host(run)
        opened.rest()
        gc.collect()
        held, extra = tracemalloc.get_traced_memory()[0] - empty, threading.active_count() - threads
    tracemalloc.stop()
    return [
        Row(f"{count:,} parked runs, bytes each", held / count, "B", PARKED_BYTES),
        Row("threads beside them, all in all", float(extra), "", None),
        *_resumed(place, runs),
    ]


def _resumed(place: Path, runs: list[str]) -> list[Row]:
    with house(place / "parked.db", waiting(), 16) as opened:
        begun = time.perf_counter()
        for run in runs:
            opened.engine.host(run)
        opened.rest()
        taken = time.perf_counter() - begun
        begun = time.perf_counter()
        for run in runs:
            decide_gate(opened.handlers.steps, opened.journal(run), "gate", Word("approved", "bench@localhost"))
        opened.finish()
        decided = time.perf_counter() - begun
        heads = opened.workspace.store.read([Key(run_partition(TENANT, run), "HEAD") for run in runs])
        completed = sum(head.get("ended") == "completed" for head in heads.values())
    if completed != len(runs):
        raise RuntimeError(f"only {completed} of {len(runs)} parked runs have completed")
    return [
        Row("  all taken over by another process", taken, "s", PARKED_SECONDS),
        Row("  all decided one by one and completed", decided, "s", None),
    ]


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
