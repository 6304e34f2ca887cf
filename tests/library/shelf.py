"""Runs a workflow of the library as compiled: real tools against the stand-in, models played by the rehearsal."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from machine import UNWIND, Execution, World

from scripts.local import rehearsal, rehearsal_script
from shared.compiler import compile_file
from shared.models.anthropic import messages, offered
from shared.ports import ModelReply, Proposal, Usage
from shared.runtime.gates import Word, decide_gate
from shared.runtime.parking import resume_step
from shared.runtime.task import Task
from shared.runtime.waits import Arrival, deliver
from shared.settings import Person
from shared.testing import FakeModels, FixedDefinitions
from shared.tools.host import ToolBox
from shared.tools.registry import load_tools

WORKFLOWS = Path(__file__).parents[2] / "workflows"
RULES = rehearsal_script.load(rehearsal.SCRIPTS)
TOOLS = load_tools(WORKFLOWS / "tools")
NAMES = sorted(path.stem for path in WORKFLOWS.glob("*.yaml"))
ROLES = ("support", "moderation", "manager", "finance", "legal", "hiring")
PEOPLE = {role: (Person(role.title(), role[:2].upper(), f"{role}@example.test"),) for role in ROLES}


@cache
def compiled(name):
    return compile_file(WORKFLOWS / f"{name}.yaml")


def sample(name):
    return json.loads((WORKFLOWS / "samples" / f"{name}.json").read_text())


def rehearsed(request):
    """Answer as the rehearsal server would answer the same request."""
    body = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": messages(request),
        "tools": offered(request),
        "output_config": {"format": {"type": "json_schema", "schema": request.schema}},
    }
    (block,) = rehearsal.reply(body, RULES)["content"]
    if block["type"] == "text":
        return block["text"]
    return ModelReply("", Usage(), "tool_use", (Proposal(block["name"], block["input"]),))


class Shelf:
    """One run of one workflow, its children, and what the office has kept of it."""

    def __init__(self, office, name, data, *, others=(), models=None):
        self.office = office
        tools = ToolBox(TOOLS, {"ERP_URL": office.url})
        self.world = self._ready(World(compiled(name), FakeModels(models or rehearsed), tools), [name, *others])
        self.execution = self.world.start(sample(f"{name}/{data}") if isinstance(data, str) else data)

    def _ready(self, world, names):
        definitions = FixedDefinitions(*(compiled(name).manifest for name in names))
        world.steps = replace(world.steps, definitions=definitions)
        world.gates = replace(world.gates, definitions=definitions, approvers=PEOPLE)
        return world

    @property
    def status(self):
        return self.execution.status

    @property
    def state(self):
        return self.world.head.state

    @property
    def open_gates(self):
        return sorted(gate.path for gate in self.world.records.gates() if gate.status == "open")

    @property
    def kept(self):
        """Every effect, as (kind, status, how often it was asked for)."""
        return [(one["body"]["kind"], one["status"], one["attempts"]) for one in self.documents]

    @property
    def documents(self):
        from urllib.request import urlopen  # noqa: PLC0415

        with urlopen(f"{self.office.url}/documents") as answer:
            return json.load(answer)["documents"]

    def output(self, path):
        value = self.world.records.step(path).output
        return json.loads(value.text if value.text is not None else self.world.blobs.get(value.blob))

    def statuses(self, *paths):
        return [step.status if (step := self.world.records.step(path)) else None for path in paths]

    def decide(self, gate, decision="approved", by=None):
        role = self.world.records.gate(gate).roles[0]
        decide_gate(self.world.steps, self.world.journal, gate, Word(decision, by or PEOPLE[role][0].email))
        self.execution.go()

    def tell(self, number, name, data):
        """Report an event to the run; returns whether a wait took it."""
        taken = deliver(self.world.steps, self._task(""), Arrival(number, name, data))
        self.execution.go()
        return taken

    def resume(self, step, order):
        resume_step(self.world.steps, self._task(step), order, UNWIND)
        self.execution.go()

    def _task(self, step):
        run = self.world
        return Task(
            "run", step, "", run.run, run.tenant, run.unit.manifest.workflow, 1, run.head.epoch, "", "person", 0
        )

    def child(self, step, name):
        """Run the child that ``step`` has started to its end, and go on."""
        w = self.world
        run = w.records.step(step).child
        below = World(compiled(name), w.models, w.tools, w.store, w.blobs, w.clock, w.engine, w.mail, run=run)
        below = self._ready(below, [name, w.unit.manifest.workflow])
        ended: Execution = below.execution()
        self.execution.go()
        return below, ended
