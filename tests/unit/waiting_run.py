"""A run of a small invoice workflow that waits at its gate, made by the real runtime on the public fakes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shared.api.host import ApiHost
from shared.approvals.host import ApprovalsHost
from shared.approvals.letters import LetterWriter
from shared.budget.rules import NANO
from shared.errors import RequestRefused
from shared.ids import sha256
from shared.manifest import Edge, Limits, Manifest, StepPlan, Trigger
from shared.ports import Key, ModelReply, ModelRequest, Usage, Write
from shared.runtime.control import run_free
from shared.runtime.gates import run_gate
from shared.runtime.host import Host, Published, StepHost
from shared.runtime.journal import Journal
from shared.runtime.mailing import GateHost
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.steps import run_step
from shared.runtime.sweep import SweepHost, of_tenant
from shared.runtime.task import Task
from shared.settings import Person
from shared.tenants.tokens import Principal, issue_token
from shared.testing import (
    Bulletin,
    FakeEngine,
    FakeSecrets,
    FakeTools,
    FixedDefinitions,
    FrozenClock,
    MemoryBlobs,
    MemoryStore,
    Outbox,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TENANT = "acme"
FIONA = Person(name="Fiona Ångström", initials="FÅ", email="fiona@example.com")
OMAR = Person(name="Omar Lead", initials="OL", email="omar@example.com")
LENA = Person(name="Lena <Lead>", initials="LL", email="lena@example.com")
APPROVERS = {"finance": (FIONA, OMAR), "lead": (LENA, OMAR)}
KEY = b"k" * 32
URL = "http://localhost:4566/_aws/execute-api/a1b2c3"
INVOICE = {
    "vendor": "Contoso Büromöbel GmbH",
    "amount": 8420.5,
    "currency": "EUR",
    "lines": [{"item": "Desk", "price": 4210.25}, {"item": "Chair", "price": 4210.25}],
}


EDIT = {"type": "object", "properties": {"amount": {"type": "number", "minimum": 0}, "currency": {"type": "string"}}}


def manifest(**gate: Any) -> Manifest:
    """Extract (agent), review (gate, with more of its fields), post (reversible tool)."""
    extract = StepPlan(
        id="extract",
        type="agent",
        dependents=("review",),
        timeout=60,
        output={"type": "object"},
        spec={"model": ["claude-haiku-4-5"], "system": "", "prompt": "Read: ${ input.document }"},
    )
    review = StepPlan(
        id="review",
        type="human_gate",
        needs=(Edge("extract"),),
        dependents=("post",),
        timeout=24 * 3600,
        spec={
            "approves": "post",
            "approvers": ["finance"],
            "subject": "Approve invoice from ${ steps.extract.output.vendor }",
            "show": {"invoice": "${ steps.extract.output }"},
            "on_expiry": "reject",
            "not_initiator": True,
            **gate,
        },
    )
    arguments = {name: f"${{ steps.extract.output.{name} }}" for name in ("vendor", "amount", "currency")}
    post = StepPlan(
        id="post",
        type="tool",
        needs=(Edge("review"),),
        risk="reversible",
        approved_by="review",
        spec={"tool": "erp_post", "with": arguments, "compensate": {"tool": "erp_void", "with": {}}},
    )
    steps = {plan.id: plan for plan in (extract, review, post)}
    limits = Limits(usd=NANO // 2, tokens=60_000, steps=20, active_time=600)
    return Manifest(
        workflow="invoice",
        hash=sha256(b"invoice"),
        input={"type": "object", "required": ["document"], "properties": {"document": {"type": "string"}}},
        budget=limits,
        steps=steps,
        order=("extract", "review", "post"),
        description="Accounts-payable intake.",
    )


class Reader:
    """A model that reads every invoice as ``answer``; an exception is raised."""

    def __init__(self, answer: Mapping[str, Any] | BaseException) -> None:
        self.answer = answer

    def complete(self, request: ModelRequest) -> ModelReply:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return ModelReply(json.dumps(self.answer), Usage(900, 150, 1_650_001))

    def ceiling(self, request: ModelRequest, *, exact: bool = False) -> Usage:
        return Usage(2000, 1024, 7_120_000)


@dataclass
class World:
    """The hosts over one memory, and the run that waits."""

    store: MemoryStore
    blobs: MemoryBlobs
    clock: FrozenClock
    engine: FakeEngine
    outbox: Outbox
    catalogue: MemoryStore
    tokens: MemoryStore
    answer: Mapping[str, Any] | BaseException
    run: str = ""
    gate_fields: Mapping[str, Any] = field(default_factory=dict)
    triggers: tuple[Trigger, ...] = ()
    secrets: FakeSecrets = field(default_factory=FakeSecrets)

    def parts(self) -> dict[str, Any]:
        definitions = FixedDefinitions(replace(manifest(**self.gate_fields), triggers=self.triggers))
        return {
            "store": self.store,
            "blobs": self.blobs,
            "clock": self.clock,
            "engine": self.engine,
            "definitions": definitions,
        }

    @property
    def api(self) -> ApiHost:
        return ApiHost(
            **self.parts(),
            tokens=self.tokens,
            catalogue=self.catalogue,
            start=self.start,
            sweep=self.sweep,
            unwind_machine="unwind",
            secrets=self.secrets,
        )

    def sweep(self, asked: Any) -> Any:
        """Stand in for the function `sweep`."""
        stores = {"tenants": self.tokens, "catalogue": self.catalogue}
        host = SweepHost(**self.parts(), **stores, machines=None, unwind_machine="unwind", events=Bulletin())
        return json.loads(json.dumps(of_tenant(host, asked, self.clock.now()).to_json()))

    @property
    def approvals(self) -> ApprovalsHost:
        return ApprovalsHost(**self.parts(), link_key=KEY, approvers=APPROVERS)

    @property
    def gates(self) -> GateHost:
        writer = LetterWriter(URL, KEY)
        return GateHost(**self.parts(), mail=self.outbox, letters=writer, approvers=APPROVERS)

    def start(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Do what the ``start`` function does."""
        host = Host(**self.parts())
        try:
            published: Published = FixedDefinitions(manifest()).published(payload["workflow"], payload["version"])
            names = ("tenant", "initiator", "trigger", "input", "key", "budget_mode", "trigger_id", "occurrence")
            asked = {name: payload[name] for name in names if name in payload}
            run, new = start_run(host, published, StartRequest(**asked))
        except RequestRefused as refused:
            return {"problem": {"status": refused.status, "code": refused.problem, "detail": refused.detail}}
        return {"run": run, "new": new}

    def task(self, step: str, op: str = "run") -> Task:
        entered = f"000001|{self.clock.now()}|0000"
        return Task(
            op=op,
            step=step,
            scope="",
            run=self.run,
            tenant=TENANT,
            workflow="invoice",
            version=1,
            epoch=1,
            entry=entered,
            attempt=f"{step}-{self.clock.now()}",
            deadline=self.clock.now() + 900_000,
            token=f"token-{step}",
        )

    def step(self, name: str) -> None:
        tools = FakeTools({"erp_post": lambda _arguments, _call: {"document": "DOC-1"}})
        run_step(StepHost(**self.parts(), models=Reader(self.answer), tools=tools), self.task(name))

    def free(self, name: str) -> None:
        run_free(Host(**self.parts()), self.task(name))

    def gate(self) -> None:
        run_gate(self.gates, self.task("review"))

    def journal(self) -> Journal:
        return Journal(self.store, self.clock, TENANT, self.run)

    def token(self, *roles: str, **more: Any) -> str:
        """Put a token for a holder with these roles into the tenants table and return its text."""
        who = {"tenant": TENANT, "name": "Ina Caller", "email": "ina@example.com", **more}
        who["approver_roles"] = frozenset(who.get("approver_roles", ()))
        text, item = issue_token(Principal(roles=frozenset(roles), **who), self.clock.now())
        rest = {name: value for name, value in item.items() if name not in {"pk", "sk", "rev"}}
        self.tokens.commit([Write(Key(item["pk"], item["sk"]), rest, None)])
        return text

    def publish(self) -> None:
        """Put the workflow into the definitions table as the publisher does."""
        facts = {"workflow": "invoice", "version": 1, "hash": manifest().hash}
        whole = replace(manifest(), triggers=self.triggers)
        more = {"manifest": json.dumps(whole.to_json()), "definition": "{}", "published_at": self.clock.now()}
        for pk, sk, item in (
            ("WORKFLOW#invoice", "VERSION#000001", facts | more),
            ("WORKFLOWS", "NAME#invoice", facts),
        ):
            self.catalogue.commit([Write(Key(pk, sk), item, None)])


def fresh(answer: Mapping[str, Any] | None = None) -> World:
    """A world without any run."""
    stores = (MemoryStore(), MemoryStore(), MemoryStore())
    return World(
        stores[0], MemoryBlobs(), FrozenClock(), FakeEngine(), Outbox(), stores[1], stores[2], answer or INVOICE
    )


def waiting(answer: Mapping[str, Any] | None = None, initiator: str = "ina@example.com", **gate: Any) -> World:
    """A world with a run that waits at its gate, which may have more fields; its approvers have their mail."""
    world = fresh(answer)
    world.gate_fields = gate
    world.publish()
    payload = {"tenant": TENANT, "initiator": initiator, "trigger": "api", "workflow": "invoice", "version": None}
    world.run = world.start({**payload, "input": {"document": "Invoice 17"}})["run"]
    world.clock.sleep(1)
    world.step("extract")
    world.clock.sleep(2)
    world.gate()
    world.clock.sleep(60)
    return world


__all__ = ["EDIT", "FIONA", "INVOICE", "OMAR", "TENANT", "URL", "World", "fresh", "manifest", "waiting"]
