"""The in-process host over fakes, in one thread, with a clock that jumps: whole runs in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shared.inprocess.engine import InProcess
from shared.inprocess.handlers import UNWIND, Handlers
from shared.ports import Message
from shared.runtime.ending import request
from shared.runtime.gates import Word, decide_gate
from shared.runtime.host import StepHost
from shared.runtime.journal import Journal
from shared.runtime.mailing import GateHost
from shared.runtime.parking import Order, resume_step
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.task import Task
from shared.settings import Person
from shared.testing import FakeModels, FakeTools, FixedDefinitions, FrozenClock, MemoryBlobs, MemoryStore, Outbox

FINANCE = (Person("Fatima Ortiz", "FO", "fatima@example.test"), Person("Ben Kim", "BK", "ben@example.test"))
LEAD = (Person("Lena Lead", "LL", "lena@example.test"),)


class NumberedRuns(FixedDefinitions):
    """All versions are 1."""


@dataclass
class House:
    """A store that outlives its processes, and the process at hand."""

    manifests: tuple[Any, ...]
    models: FakeModels
    tools: FakeTools
    store: MemoryStore = field(default_factory=MemoryStore)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    clock: FrozenClock = field(default_factory=FrozenClock)
    run: str = ""
    tenant: str = "local"

    def __post_init__(self) -> None:
        self.definitions = NumberedRuns(*self.manifests)
        self.reborn()

    def reborn(self) -> House:
        """Another process: the old one's memory is gone."""
        self.engine = InProcess(workers=0)
        ports = {name: getattr(self, name) for name in ("store", "blobs", "clock", "engine", "definitions")}
        self.steps = StepHost(**ports, models=self.models, tools=self.tools)
        gates = GateHost(
            **ports, mail=Outbox(), letters=_letter, approvers={"finance": FINANCE, "finance_lead": LEAD}, ends=True
        )
        self.engine.open(Handlers(self.steps, gates))
        if self.run:
            self.engine.host(self.run)
        return self

    def start(self, data: dict[str, Any], *, patience: float = 3600) -> House:
        published = self.definitions.published(self.manifests[0].workflow)
        self.run, _ = start_run(self.steps, published, StartRequest(self.tenant, "alex@example.test", "local", data))
        return self.go(patience)

    def go(self, patience: float = 3600) -> House:
        self.engine.drain(patience=patience)
        return self

    def decide(self, path: str, decision: str) -> House:
        decide_gate(self.steps, self.journal, path, Word(decision, FINANCE[0].email))
        return self.go()

    def resume(self, path: str, action: str, **more: Any) -> House:
        scope, slash, step = path.rpartition("/")
        task = Task("", step, scope + slash, self.run, self.tenant, self.manifests[0].workflow, 1, 1, "", "", 0)
        resume_step(self.steps, task, Order(action, "ops", **more), UNWIND)
        return self.go()

    def cancel(self) -> House:
        request(self.steps, self.journal, "cancelled", "by ops", UNWIND)
        return self.go()

    def again(self, patience: float = 3600) -> House:
        """Resume the run, which has ended early, as another epoch."""
        resume_run(self.steps, self.journal, Resume("ops"))
        return self.go(patience)

    @property
    def journal(self) -> Journal:
        return Journal(self.store, self.clock, self.tenant, self.run)

    @property
    def head(self) -> Any:
        return self.journal.read([]).head

    @property
    def events(self) -> list[str]:
        return [f"{e.type}:{e.path}" if e.path else e.type for e in self.journal.events()]

    def step(self, path: str) -> Any:
        return self.journal.read([f"STEP#{path}"]).step(path)

    @property
    def statuses(self) -> dict[str, str]:
        return {step.path: step.status for step in self.journal.read_all().steps()}


def _letter(gate: Any, run: Any, person: Person, shown: Any) -> Message:
    return Message(person.email, gate.subject, "", "", {})
