"""The host with its threads: late calls, many runs at once, runs that are more than an id only while they move."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from shapes import manifest, step

from scripts.commands.doctor import services
from scripts.commands.local_runs import LocalRuns
from shared.clock import SystemClock
from shared.errors import TransientFailure
from shared.inprocess.handlers import UNWIND
from shared.inprocess.workspace import TENANT, Workspace
from shared.manifest import Retry
from shared.ports import Key, Write
from shared.runtime.breaker import FAILURES, Breaker, tripped
from shared.runtime.ending import request
from shared.runtime.journal import Journal
from shared.runtime.runs import StartRequest, start_run
from shared.testing import FakeModels, FakeTools, FixedDefinitions


class Ahead(SystemClock):
    """A clock that can be put forward."""

    ahead = 0

    def now(self):
        return super().now() + self.ahead


class Machine:
    """A workspace with an engine for one manifest."""

    def __init__(self, path, definition, tools, workers=4, seen_as=lambda store: store):
        self.workspace = Workspace(path)
        self.workspace.clock = self.clock = Ahead()
        self.workspace.store = seen_as(self.workspace.store)
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


class Slow:
    """A call that does not return before it is let."""

    def __init__(self):
        self.calls, self.undone, self.begun, self.let = [], [], threading.Event(), threading.Event()

    def do(self, given, call):
        if "undo" in given:
            self.undone.append(call.attempt)
            return {}
        self.calls.append(call.attempt)
        self.begun.set()
        assert self.let.wait(30)
        return {"done": True}


def changing(**more):
    made = replace(step("a", timeout=0.05, **more), risk="reversible")
    return replace(made, spec={**made.spec, "compensate": {"tool": "a", "with": {"undo": 1}}})


def slow_run(machine, caplog, **more):
    """A run whose call is late, and may change something."""
    slow = Slow()
    host = machine(manifest(changing(**more), step("b", "a")), {"a": slow.do, "b": lambda *_: {}}, workers=2)
    run = host.start()
    assert slow.begun.wait(30)
    host.clock.ahead = 60_000  # far beyond its time-out and its lease
    end = time.monotonic() + 30
    while "may still happen" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.01)
    return host, run, slow


def test_a_late_call_that_may_change_something_is_waited_for_as_long_as_its_thread_lives(machine, caplog):
    again = Retry(max_retries=1, base_delay=0.0, jitter=False)
    host, run, slow = slow_run(machine, caplog, retry=again)
    slow.let.set()
    host.finish()
    events = host.journal(run).events()
    assert [event.type for event in events][1:4] == ["step_opened", "step_completed", "step_opened"]
    assert (slow.calls, events[2].data["overrun"], caplog.text.count("may still happen")) == ([1], True, 1)
    assert host.journal(run).read([]).head.ended == "completed"


def test_a_run_is_not_undone_before_its_late_call_has_returned(machine, caplog):
    host, run, slow = slow_run(machine, caplog)
    asked, works, end = [], host.engine.works, time.monotonic() + 30
    host.engine.works = lambda attempt: asked.append(attempt) or works(attempt)
    request(host.handlers.steps, host.journal(run), "cancelled", "by ops", UNWIND)
    while len(asked) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert (host.journal(run).read(["STEP#a"]).step("a").open, slow.undone) == (True, [])
    slow.let.set()
    host.finish()
    assert (slow.calls, slow.undone, host.journal(run).read([]).head.ended) == ([1], [1], "cancelled")


def test_a_read_that_hangs_keeps_no_run_from_being_cancelled(machine):
    slow = Slow()
    host = machine(manifest(step("a", timeout=0.05)), {"a": slow.do}, workers=2)
    run = host.start()
    assert slow.begun.wait(30)
    request(host.handlers.steps, host.journal(run), "cancelled", "by ops", UNWIND)
    host.clock.ahead = 60_000
    host.finish()
    assert host.journal(run).read([]).head.ended == "cancelled"
    slow.let.set()


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


def test_a_degraded_service_is_left_alone_by_all_runs_of_a_file_whatever_process_drives_them(machine):
    called = []

    def down(*_):
        called.append(1)
        raise TransientFailure("503")

    again = Retry(max_retries=FAILURES, base_delay=0.0, jitter=False)
    definition = manifest(step("a", retry=again, on_error="fail"))
    first, second = machine(definition, {"a": down}), machine(definition, {"a": lambda *_: {}})
    run = first.start()
    _until(lambda: "step_held" in kinds(first, run))
    other = second.start(1)
    _until(lambda: "step_held" in kinds(second, other))
    (breaker,) = tripped(second.workspace.store, TENANT, second.workspace.clock.now())
    assert (breaker.service, len(called)) == ("tool:a", FAILURES)
    shown = LocalRuns(second.workspace).get("/v1/breakers")["breakers"]
    assert [each["service"] for each in shown] == ["tool:a"]


class Counting:
    """A store that remembers which breakers were read."""

    def __init__(self, store):
        self._store, self.asked = store, []

    def __getattr__(self, name):
        return getattr(self._store, name)

    def read(self, keys):
        self.asked += [key for key in keys if key.pk.endswith("#BREAKERS")]
        return self._store.read(keys)


def test_a_healthy_service_costs_no_read_a_step(machine):
    steps = [step(f"s{n}", *([f"s{n - 1}"] if n else []), spec={"tool": "a"}) for n in range(30)]
    made = machine(manifest(*steps), {"a": lambda *_: {}}, seen_as=Counting)
    run = made.start()
    made.finish()
    assert (made.journal(run).read([]).head.ended, len(made.workspace.store.asked)) == ("completed", 1)


def kinds(machine_, run):
    return [event.type for event in machine_.journal(run).events()]


def _until(holds, seconds=30.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_doctor_tells_of_degraded_services_of_this_machines_own_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGNALBOX_RUNS", str(tmp_path / "runs.db"))
    monkeypatch.setenv("SIGNALBOX_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("SIGNALBOX_TOKEN", "t")
    assert list(services()) == []
    workspace = Workspace(tmp_path / "runs.db")
    assert [(each.name, each.status) for each in services()] == [("services, in-process", "ok")]
    item = Breaker("tool:a", opened_at=workspace.clock.now()).to_item()
    workspace.store.commit([Write(Key(f"TENANT#{TENANT}#BREAKERS", "SERVICE#tool:a"), item, None)])
    (found,) = services()
    assert (found.status, "tool:a is degraded" in found.found) == ("warning", True)
    workspace.close()
