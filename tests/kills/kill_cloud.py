"""Runs on the local cloud whose worker processes are killed, and whose executions are stopped from outside."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from cloud import FOLDERS, HANDLER, TENANT, UNWIND, Cloud, on_cloud
from cloud_function import ports
from sink import Sink
from work import APPROVED, AT_REST, MANIFESTS, Tally, workflow_of

from shared.compiler import compile_manifest
from shared.errors import Conflict
from shared.runtime.ending import execution_name
from shared.runtime.finalise import finalise
from shared.runtime.gates import decide_gate
from shared.runtime.host import Host
from shared.runtime.journal import Journal
from shared.runtime.mending import mend
from shared.runtime.parking import Order, resume_step
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.task import run_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE = Path(__file__).parent
PATIENCE = 300.0
"""Seconds that runs may take to come to rest."""
SWEEP = 2.0
"""Seconds between two rounds of the sweeper."""
AT_ONCE = 12
BUSY = 4
"""Workers at once, above which no further run is begun: each takes a core while it starts."""


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
        """Be the person whom a run waits for; tell whether nothing goes on any more."""
        seen = journal.read(["GATE#review"])
        gate = seen.gate("review")
        if seen.head.unwinding and seen.head.state == "paused":
            self._answer_doubts(journal)
            return False
        if gate and gate.status == "open" and not seen.head.unwinding:
            with suppress(Conflict):  # the run is stopped just now
                decide_gate(self.host, journal, "review", APPROVED)
            return False
        return bool(seen.head.ended) or (seen.head.state in AT_REST and not seen.head.unwinding)

    def _answer_doubts(self, journal: Journal) -> None:
        """Look at the far side for every call in doubt that a run's unwinding waits for, and say what has happened."""
        seen = journal.read_all()
        for step in seen.steps():
            if step.status == "unknown" and step.call:
                task = run_task(seen.run, seen.head.epoch, step.path)
                done = any(effect["key"] == step.call.key for effect in self.sink.effects(seen.run.id))
                accept = Order("accept", "ops", result={"document": step.call.key})
                with suppress(Conflict):  # it was answered just now
                    resume_step(self.host, task, accept if done else Order("did_not_happen", "ops"), UNWIND)

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

    def look_after(self, journals: list[Journal]) -> None:
        """Decide open gates until there is room for one more run."""
        time.sleep(0.1)
        while len(self.busy()) >= BUSY:
            time.sleep(0.05)
        for journal in journals:
            self.rests(journal)

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

    def busy(self) -> list[int]:
        """Return the worker processes that are at work."""
        marked = list((self.folder / "busy").iterdir())
        for mark in marked:
            if not self._mine(int(mark.name)):
                mark.unlink(missing_ok=True)  # it had no time to do that itself
        return [int(mark.name) for mark in marked if mark.exists()]

    def kill(self, rolled: random.Random) -> bool:
        """Kill a worker process with -9 while it is busy. Returns whether there was one."""
        busy = self.busy()
        if busy:
            with suppress(ProcessLookupError):
                os.kill(rolled.choice(busy), signal.SIGKILL)
        return bool(busy)

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
        with suppress(ClientError):  # it has not begun, or has ended by itself
            self._states.stop_execution(executionArn=arn, cause="stopped by hand")
            return True
        return False

    def ended(self, journal: Journal) -> dict[str, Any]:
        """Return what the bus would say of the end of a run's execution."""
        seen = journal.read(["RUN"])
        name = execution_name(seen)
        arn = f"{seen.run.machine.replace(':stateMachine:', ':execution:')}:{name}"
        found = self._states.describe_execution(executionArn=arn)
        known = {key: found[key] for key in ("executionArn", "stateMachineArn", "status", "input")}
        return {**known, "name": name, "cause": found.get("cause")}

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


def at_each_call(cloud: KillCloud, **moments: tuple[str, ...]) -> Tally:
    """Let a process die at each call of a run that changes something outside, ``before`` or ``after`` it or both.

    ``moments`` are those by workflow. One run for each call and moment.
    """
    journals = [cloud.begin(workflow) for workflow in moments]
    late = cloud.settle(journals)
    lengths = zip(moments, map(cloud.calls, list(journals)), strict=True)
    before, calm = cloud.killed(), len(journals)
    for workflow, length in lengths:
        for number, moment in product(range(1, length + 1), moments[workflow]):
            cloud.look_after(journals[calm:])
            journals.append(cloud.begin(workflow, f"{number} {moment}"))
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
        time.sleep(rolled.uniform(0.02, 0.12))
        kills += cloud.kill(rolled)
        if rolled.random() < 0.05:
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


def stopped(cloud: KillCloud, count: int) -> Tally:
    """Stop runs' executions, and what unwinds them, from outside, at different moments; resume what has stopped.

    Of every other one the end is told, as by the bus; the rest is found by the sweeper.
    """
    journals, stops = list[Journal](), 0
    for number in range(count):
        journals.append(cloud.begin(workflow_of(number)))
        stops += _stop_at(cloud, journals[-1], 1 + number)
    for journal in journals[::2]:
        finalise(cloud.host, cloud.ended(journal), UNWIND)
        cloud.stop(journal, UNWIND)
    late = cloud.settle(journals)
    resumed = [journal for journal in journals if cloud.resume(journal)]
    late += cloud.settle(resumed)
    tally = tallied(cloud, journals, late)
    tally.stops = stops
    if len(resumed) < stops:
        tally.violations.append(f"{stops} executions were stopped, and {len(resumed)} runs")
    return tally


def killed_and_stopped(cloud: KillCloud, numbers: Iterable[int]) -> Tally:
    """Kill a run's process after each call of these numbers, stop its execution at once, resume what has stopped.

    What was under way is in doubt while the run ends.
    """
    before, stops, journals = cloud.killed(), 0, list[Journal]()
    for number in numbers:
        cloud.look_after(journals)
        journals.append(cloud.begin("plain", f"{number} after"))
        until, died = time.monotonic() + PATIENCE, cloud.killed() + 1
        while cloud.killed() < died and time.monotonic() < until and not cloud.rests(journals[-1]):
            time.sleep(0.02)
        stops += cloud.stop(journals[-1])
    late = cloud.settle(journals)
    late += cloud.settle([journal for journal in journals if cloud.resume(journal)])
    tally = tallied(cloud, journals, late)
    tally.kills, tally.stops = cloud.killed() - before, stops
    return tally


def _stop_at(cloud: KillCloud, journal: Journal, event: int) -> bool:
    """Stop a run's execution once its log is so long."""
    until = time.monotonic() + PATIENCE
    while journal.read([]).head.seq < event and time.monotonic() < until and not cloud.rests(journal):
        time.sleep(0.02)
    return cloud.stop(journal)


def tallied(cloud: KillCloud, journals: Iterable[Journal], late: Iterable[Journal]) -> Tally:
    """Look at runs that rest."""
    tally = Tally()
    for journal in journals:
        tally.add(journal, cloud.sink)
    tally.violations += [f"{journal.pk} does not come to rest within {PATIENCE:.0f} s" for journal in late]
    return tally
