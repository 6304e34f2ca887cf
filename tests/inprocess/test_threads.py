"""The host with its threads: late calls, many runs at once, runs that are more than an id only while they move."""

from __future__ import annotations

import threading
import time

import pytest
from shapes import manifest, step

from shared.inprocess.workspace import TENANT, Workspace
from shared.manifest import Retry
from shared.runtime.journal import Journal
from shared.runtime.runs import StartRequest, start_run
from shared.testing import FakeModels, FakeTools, FixedDefinitions


class Machine:
    """A workspace with an engine for one manifest."""

    def __init__(self, path, definition, tools, workers=4):
        self.workspace = Workspace(path)
        self.workspace.definitions = FixedDefinitions(definition)
        self.engine = self.workspace.engine(workers)
        self.handlers = self.workspace.handlers(self.engine, FakeModels(lambda _: ""), FakeTools(tools))
        self.engine.open(self.handlers)

    def start(self, number=0):
        published = self.workspace.definitions.published("w")
        return start_run(self.handlers.steps, published, StartRequest(TENANT, "me@localhost", "cli", {"n": number}))[0]

    def finish(self, seconds=30.0):
        end = time.monotonic() + seconds
        while self.engine.places.runs():
            assert time.monotonic() < end
            assert self.engine.failure is None
            time.sleep(0.01)

    def journal(self, run):
        return Journal(self.workspace.store, self.workspace.clock, TENANT, run)

    def close(self):
        self.engine.close()
        self.workspace.close()


@pytest.fixture
def machine(tmp_path):
    made = []

    def make(definition, tools, **more):
        made.append(Machine(tmp_path / "runs.db", definition, tools, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_call_that_outlasts_its_time_is_given_up_from_outside_and_its_late_result_changes_nothing(machine):
    release, calls = threading.Event(), []

    def slow(_, call):
        calls.append(call.attempt)
        if len(calls) == 1:
            release.wait(30)
            return {"late": True}
        return {"late": False}

    again = Retry(max_retries=1, base_delay=0.0, jitter=False)
    host = machine(manifest(step("a", timeout=0.2, retry=again)), {"a": slow}, workers=1)
    run = host.start()
    host.finish()
    step_a = host.journal(run).read(["STEP#a"]).step("a")
    assert (step_a.status, step_a.attempt, step_a.output.text) == ("completed", 2, '{"late":false}')
    release.set()
    time.sleep(0.2)
    seen = host.journal(run).read_all()
    assert (seen.step("a"), seen.head.open, seen.head.ended) == (step_a, 0, "completed")
    kinds = [event.type for event in host.journal(run).events()]
    assert kinds[1:] == [
        "step_opened", "attempt_lost", "step_retrying", "step_opened", "step_completed", "run_completed"
    ]  # fmt: skip


def test_many_runs_and_a_fan_out_at_once_lose_no_event(machine):
    names = [f"s{n}" for n in range(12)]
    graph = (step("first"), *(step(name, "first") for name in names), step("last", *names))
    host = machine(manifest(*graph), dict.fromkeys(("first", *names, "last"), lambda *_: {}), workers=8)
    runs = [host.start(number) for number in range(6)]
    host.finish()
    for run in runs:
        head, events = host.journal(run).read([]).head, host.journal(run).events()
        assert (head.ended, head.open, [event.seq for event in events]) == ("completed", 0, [*range(1, head.seq + 1)])
        assert sum(event.type == "step_completed" for event in events) == 14


def test_no_more_than_max_parallel_steps_of_a_run_are_open_at_a_time(machine):
    guard, running, most = threading.Lock(), [0], [0]

    def busy(*_):
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.03)
        with guard:
            running[0] -= 1
        return {}

    names = [f"s{n}" for n in range(9)]
    host = machine(manifest(*(step(n) for n in names), max_parallel=3), dict.fromkeys(names, busy), workers=8)
    host.start()
    host.finish()
    assert most[0] == 3


def test_parked_runs_hold_no_thread_and_no_memory_but_an_id(machine):
    gate = step("g", type="human_gate", spec={"approvers": ["finance"], "on_expiry": "reject"}, timeout=3600.0)
    host = machine(manifest(gate), {}, workers=2)
    before = threading.active_count()
    runs = {host.start(number) for number in range(60)}
    end = time.monotonic() + 20
    while host.engine.places.in_memory():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert set(host.engine.places.runs()) == runs
    assert threading.active_count() == before
