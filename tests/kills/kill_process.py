"""Many runs in a process of the in-process host that is killed again and again, whatever it is doing."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

from sink import PRICE, Sink, SinkTools
from work import APPROVED, AT_REST, MANIFESTS, Tally, inconsistent, workflow_of

from shared.budget import tenant
from shared.inprocess.workspace import TENANT, Workspace
from shared.ledger.records import Run
from shared.runtime.gates import decide_gate
from shared.runtime.journal import Journal
from shared.runtime.runs import StartRequest, start_run
from shared.testing import FakeModels, FixedDefinitions

if TYPE_CHECKING:
    from pathlib import Path

FORK = multiprocessing.get_context("fork")
RUNS = 50
PATIENCE = 60.0
"""Seconds that the last process may take to let the runs end."""
LIMITS = {"usd": 10**7 * PRICE, "tokens": 10**9, "steps": 10**7}


class Driver:
    """One process: it drives ``RUNS`` runs at once, and as many more when they rest, until it is told or killed."""

    def __init__(self, folder: Path) -> None:
        self._wave = folder / "wave"
        self._workspace = workspace(folder)
        self._engine = self._workspace.engine(8)
        self._handlers = self._workspace.handlers(
            self._engine, FakeModels(lambda _: ""), SinkTools(Sink(folder / "sink"))
        )
        self._engine.open(self._handlers)

    def live(self, *, last: bool) -> None:
        """Drive runs for ever, or as the ``last`` process only those that have been begun."""
        number = int(self._wave.read_text()) if self._wave.exists() else 0
        while True:
            self._drive([self._start(f"{number}-{place}", workflow_of(place)) for place in range(RUNS)])
            if last:
                return
            number += 1
            fresh = self._wave.with_suffix(".new")
            fresh.write_text(str(number))
            fresh.replace(self._wave)

    def _start(self, key: str, workflow: str) -> Journal:
        published = self._workspace.definitions.published(workflow)
        request = StartRequest(TENANT, "alex@example.test", "cli", {}, key)
        run, _ = start_run(self._handlers.steps, published, request)
        journal = Journal(self._workspace.store, self._workspace.clock, TENANT, run)
        if not journal.read([]).head.ended:
            self._engine.host(run)
        return journal

    def _drive(self, journals: list[Journal]) -> None:
        while journals:
            journals = [journal for journal in journals if not self._rests(journal)]
            time.sleep(0.01)

    def _rests(self, journal: Journal) -> bool:
        seen = journal.read(["GATE#review"])
        gate = seen.gate("review")
        if gate and gate.status == "open":
            decide_gate(self._handlers.steps, journal, "review", APPROVED)
            return False
        return seen.head.state in AT_REST


def workspace(folder: Path) -> Workspace:
    """Open the store, with the workflows beside it."""
    made: Any = Workspace(folder / "runs.db")
    made.definitions = FixedDefinitions(*MANIFESTS.values())
    return made


def play(folder: Path, seconds: float, seed: int = 1) -> Tally:
    """Kill the process for so many seconds, let the runs end, and look at them."""
    tally, rolled, begun = Tally(), random.Random(seed), time.monotonic()  # noqa: S311 - reproducible, no secret
    _limit(folder)
    while time.monotonic() - begun < seconds:
        child = _begin(folder, last=False)
        child.join(rolled.uniform(0.02, 0.4))
        tally.kills += _kill(child)
        tally.violations += look(folder)
    child = _begin(folder, last=True)
    child.join(PATIENCE)
    if _kill(child) or child.exitcode:
        tally.violations.append(f"the runs do not come to rest within {PATIENCE:.0f} s")
    _settle(folder, tally)
    return tally


def _begin(folder: Path, *, last: bool) -> Any:
    child = FORK.Process(target=_life, args=(folder,), kwargs={"last": last})
    child.start()
    return child


def _life(folder: Path, *, last: bool) -> None:
    Driver(folder).live(last=last)
    os._exit(0)


def _kill(child: Any) -> bool:
    """Kill the process with -9. Returns whether it was alive."""
    if child.exitcode is None:
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    return child.exitcode == -signal.SIGKILL


def _limit(folder: Path) -> None:
    opened = workspace(folder)
    tenant.set_limits(opened.store, TENANT, LIMITS, monthly=False, now=opened.clock.now())
    opened.close()


def journals(opened: Workspace) -> list[Journal]:
    """Return all runs of a store."""
    names = [
        Run.from_item(item).id
        for name in MANIFESTS
        for item in opened.store.index("by_workflow", f"TENANT#{TENANT}#WORKFLOW#{name}", limit=0)
    ]
    return [Journal(opened.store, opened.clock, TENANT, name) for name in names]


def look(folder: Path) -> list[str]:
    """Return what is wrong, right after a kill, with the records of runs that are not over."""
    opened = workspace(folder)
    found: list[str] = []
    for journal in journals(opened):
        if not journal.read([]).head.ended:
            seen = journal.read_all()
            found += [f"{seen.run.id}, just killed: {what}" for what in inconsistent(seen, journal.events())]
    opened.close()
    return found


def _settle(folder: Path, tally: Tally) -> None:
    opened, sink = workspace(folder), Sink(folder / "sink")
    runs = journals(opened)
    for journal in runs:
        tally.add(journal, sink)
    tally.violations += _tenant(opened, runs)
    strangers = set(sink.runs()) - {journal.read(["RUN"]).run.id for journal in runs}
    tally.violations += [f"an effect of {run}, which does not exist" for run in strangers]
    opened.close()


def _tenant(opened: Workspace, runs: list[Journal]) -> list[str]:
    """Return how the tenant's budget differs from what its runs hold and have spent."""
    account, found = tenant.read(opened.store, TENANT), list[str]()
    seen = [journal.read(["RUN"]) for journal in runs]
    for name in LIMITS:
        limits = {one.run.id: getattr(one.run, f"limit_{name}") for one in seen}
        held = sum(limits[one.run.id] for one in seen if name in one.run.drawn)
        spent = sum(limits[one.run.id] - getattr(one.head, f"left_{name}") for one in seen if not one.run.drawn)
        if (account.held[name], account.spent[name]) != (held, spent):
            found.append(f"{name}: the tenant holds {account.held[name]}, its runs {held}; spent {spent}")
    return [*found, *[f"{one.run.id} has ended and draws" for one in seen if one.head.ended and one.run.drawn]]
