"""Runs on the local cloud whose worker processes are killed, and whose executions are stopped from outside."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud import FOLDERS, HANDLER, TENANT, UNWIND, Cloud, on_cloud
from cloud_function import ports
from sink import Sink
from work import APPROVED, AT_REST, MANIFESTS, Tally, workflow_of

from shared.compiler import compile_manifest
from shared.errors import Conflict
from shared.runtime.ending import execution_name
from shared.runtime.gates import decide_gate
from shared.runtime.host import Host
from shared.runtime.journal import Journal
from shared.runtime.mending import mend
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.runs import StartRequest, start_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE = Path(__file__).parent
PATIENCE = 90.0
"""Seconds that runs may take to come to rest."""
SWEEP = 2.0
"""Seconds between two rounds of the sweeper."""
AT_ONCE = 12


class Planned:
    """The engine of who starts runs: before an execution begins, it is written down where its process dies."""

    def __init__(self, engine: Any, folder: Path) -> None:
        self._engine, self._folder = engine, folder
        self.plan = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def start(self, machine: str, name: str, data: Any) -> None:
        (self._folder / "plans" / data["run"]["id"]).write_text(self.plan)
        self._engine.start(machine, name, data)


class KillCloud(Cloud):
    """The local cloud with functions that die, and what a deployment has beside them: people, a sweeper."""

    handler = HANDLER.replace("cloud_function", "kill_function")
    folders = (*FOLDERS, HERE)
    timeout = 6
    pause = 0.05

    def __init__(self, emulator: Any) -> None:
        self.folder = emulator.log.parent
        for name in ("busy", "calls", "killed", "plans"):
            (self.folder / name).mkdir()
        self.sink = Sink(self.folder / "sink")
        super().__init__(emulator)
        known = ports(emulator.client)
        self.engine = Planned(known["engine"], self.folder)
        self.host = Host(**{**known, "engine": self.engine})
        for manifest in MANIFESTS.values():
            self._publish(compile_manifest(manifest))

    def variables(self) -> dict[str, str]:
        return {"KILLS": str(self.folder), "PAUSE": str(self.pause)}

    # --- runs --------------------------------------------------------------------------------------------------------

    def begin(self, workflow: str, plan: str = "0 ") -> Journal:
        """Start a run; ``plan`` says at which of its calls the process dies: ``7 after``."""
        self.engine.plan = plan
        request = StartRequest(TENANT, "alex@example.test", "api", {})
        run, _ = start_run(self.host, self.host.definitions.published(workflow), request)
        return Journal(self.host.store, self.host.clock, TENANT, run)

    def rests(self, journal: Journal) -> bool:
        """Decide an open gate; tell whether nothing goes on any more."""
        seen = journal.read(["GATE#review"])
        gate = seen.gate("review")
        if gate and gate.status == "open" and not seen.head.unwinding:
            with suppress(Conflict):  # the run is stopped just now
                decide_gate(self.host, journal, "review", APPROVED)
            return False
        return bool(seen.head.ended) or (seen.head.state in AT_REST and not seen.head.unwinding)

    def settle(self, journals: Iterable[Journal]) -> list[Journal]:
        """Wait until all rest; meanwhile the sweeper goes round. Returns those that do not in time."""
        moving, deadline, swept = list(journals), time.monotonic() + PATIENCE, time.monotonic()
        while moving and time.monotonic() < deadline:
            moving = [journal for journal in moving if not self.rests(journal)]
            if time.monotonic() - swept > SWEEP:
                self.sweep(moving)
                swept = time.monotonic()
            time.sleep(0.05)
        return moving

    def sweep(self, journals: Iterable[Journal]) -> list[str]:
        """Mend what has died with its execution. Returns what was found."""
        names = [journal.read(["RUN"]).run.id for journal in journals]
        return [found.what for name in names for found in mend(self.host, TENANT, name, UNWIND)]

    def resume(self, journal: Journal) -> bool:
        """Begin another epoch of a run that was stopped. Returns whether it was."""
        stopped = journal.read([]).head.ended == "stopped"
        if stopped:
            resume_run(self.host, journal, Resume("ops"))
        return stopped

    # --- trouble -----------------------------------------------------------------------------------------------------

    def kill(self, rolled: random.Random) -> bool:
        """Kill a worker process with -9 while it is busy. Returns whether there was one."""
        busy = sorted((self.folder / "busy").iterdir())
        if not busy:
            return False
        marked = rolled.choice(busy)
        killed = self._mine(int(marked.name))
        if killed:
            with suppress(ProcessLookupError):
                os.kill(int(marked.name), signal.SIGKILL)
        marked.unlink(missing_ok=True)
        return killed

    def _mine(self, pid: int) -> bool:
        """Tell whether a process is a worker of this cloud, and not another that was given its number."""
        with suppress(OSError):
            return f"KILLS={self.folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False

    def stop(self, journal: Journal, machine: str = "") -> bool:
        """Stop a run's execution from outside. Returns whether it was running."""
        seen = journal.read(["RUN"])
        machine = machine or seen.run.machine
        arn = f"{machine.replace(':stateMachine:', ':execution:')}:{execution_name(seen)}"
        running = self._states.describe_execution(executionArn=arn)["status"] == "RUNNING"
        if running:
            self._states.stop_execution(executionArn=arn, cause="stopped by hand")
        return running

    def killed(self) -> int:
        """Return how many processes have died as it was planned."""
        return len(list((self.folder / "killed").iterdir()))

    def calls(self, journal: Journal) -> int:
        """Return how many calls to the outside a run has made."""
        return len((self.folder / "calls" / journal.read(["RUN"]).run.id).read_text().splitlines())


@contextmanager
def killing_cloud(folder: Path) -> Iterator[KillCloud]:
    """Yield a local cloud that lives as long as the block."""
    with on_cloud(folder, KillCloud) as cloud:
        yield cloud


def at_each_call(cloud: KillCloud, workflow: str) -> Tally:
    """Let a process die before and after each call of a run that changes something outside: one run for each."""
    calm = cloud.begin(workflow)
    late = cloud.settle([calm])
    plans = [f"{number} {moment}" for number in range(1, cloud.calls(calm) + 1) for moment in ("before", "after")]
    before, journals, begun = cloud.killed(), [calm], list[Journal]()
    for plan in plans:
        begun = [journal for journal in begun if not cloud.rests(journal)]
        while len(begun) >= AT_ONCE and time.sleep(0.05) is None:
            begun = [journal for journal in begun if not cloud.rests(journal)]
        begun.append(cloud.begin(workflow, plan))
        journals.append(begun[-1])
    late += cloud.settle(journals)
    tally = tallied(cloud, journals, late)
    tally.kills = cloud.killed() - before
    return tally


def at_random(cloud: KillCloud, seconds: float, seed: int = 1) -> Tally:
    """Kill busy workers of many runs at once for so many seconds, and stop an execution now and then."""
    rolled, until, kills = random.Random(seed), time.monotonic() + seconds, 0  # noqa: S311 - reproducible
    journals = [cloud.begin(workflow_of(number)) for number in range(AT_ONCE)]
    moving, stops = list(journals), 0
    while time.monotonic() < until:
        time.sleep(rolled.uniform(0.05, 0.3))
        kills += cloud.kill(rolled)
        if rolled.random() < 0.1:
            stops += cloud.stop(rolled.choice(moving))
            cloud.sweep(moving)
        moving = [journal for journal in moving if not cloud.rests(journal)]
        fresh = [cloud.begin(workflow_of(len(journals) + number)) for number in range(AT_ONCE - len(moving))]
        journals, moving = [*journals, *fresh], [*moving, *fresh]
    late = cloud.settle(journals)
    late += cloud.settle([journal for journal in journals if cloud.resume(journal)])
    tally = tallied(cloud, journals, late)
    tally.kills, tally.stops = kills, stops
    return tally


def tallied(cloud: KillCloud, journals: Iterable[Journal], late: Iterable[Journal]) -> Tally:
    """Look at runs that rest."""
    tally = Tally()
    for journal in journals:
        tally.add(journal, cloud.sink)
    tally.violations += [f"{journal.pk} does not come to rest within {PATIENCE:.0f} s" for journal in late]
    return tally
