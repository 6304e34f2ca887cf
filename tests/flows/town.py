"""A world of many executions: a run, its parts and other children, their unwinding, each going on when it can."""

from __future__ import annotations

from dataclasses import replace

from bodies import BUDGET, manifest
from invariants import check
from machine import UNWIND, Execution, World

from shared.compiler import compile_manifest, unwind_machine
from shared.runtime.ending import request
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.task import Task
from shared.testing import FakeModels, FakeTools

NUMBERS = "${ input.numbers }"


class Town:
    """One workflow whose executions, those of its parts and of their unwinding too, all run until nothing moves."""

    def __init__(self, *plans, do=None, room=300, budget=BUDGET, slots=1000, templates=()):
        made = replace(manifest(*plans, budget=budget), max_parallel=slots)
        unit = compile_manifest(replace(made, steps={**made.steps, **{one.id: one for one in templates}}), room)
        self.w = World(unit, FakeModels(lambda _: "yes"), FakeTools({"do": do or (lambda given, _: given["say"])}))
        self.running: dict[tuple[str, str], Execution] = {}
        self.busy: set[tuple[str, str]] = set()
        self.slept, self.w.clock.sleep = self.w.clock.sleep, self._sleep

    def start(self, data=None):
        published = self.w.steps.definitions.published("w")
        self.w.run, _ = start_run(self.w.steps, published, StartRequest("acme", "alex@example.test", "api", data or {}))
        return self.go()

    def go(self):
        """Let everything go on; also while an execution sleeps, which the walker does without giving way."""
        seen = -1
        while seen != (seen := len(self.w.engine.answers) + len(self.w.engine.executions)):
            for name in list(self.w.engine.executions):
                if name not in self.busy:
                    self.busy.add(name)
                    self._go(name)
                    self.busy.discard(name)
        return self

    def _go(self, name):
        if name not in self.running:
            machine = unwind_machine() if name[0] == UNWIND else self.w.unit.asl
            self.running[name] = Execution(self.w, machine, self.w.engine.executions[name])
        elif self.running[name].status == "RUNNING":
            self.running[name].go()

    def _sleep(self, seconds):
        self.slept(seconds)
        self.go()

    def cancel(self):
        request(self.w.steps, self.w.journal, "cancelled", "by ops", UNWIND)
        return self.go()

    def below(self, path):
        """Return the world as a part's run sees it."""
        child = self.w.records.step(path).child
        return _seen_by(self.w, child)

    def parts(self, of="each"):
        return [step.path for step in self.w.records.steps() if step.path.startswith(f"{of}[") and step.type == "part"]

    def expire(self, path):
        """Let the time of a step's child be over."""
        token = self.w.records.park(path).token
        self.w.engine.answers.append((token, "failure", {"error": "States.Timeout", "cause": ""}))
        self.w.engine.gone.add(token)
        return self.go()

    def worlds(self):
        """Return the world as every run sees it."""
        return [_seen_by(self.w, item["id"]) for key, item in self.w.store.items.items() if key.sk == "RUN"]

    def check(self):
        for world in self.worlds():
            check(world)


def _seen_by(w, run):
    return World(w.unit, w.models, w.tools, w.store, w.blobs, w.clock, w.engine, w.mail, run=run)


def task_in(below, scope):
    return Task("run", "a", scope, below.run, "acme", "w", 1, 1, "", "person", 0)
