"""The invoice workflow as it is compiled, over fakes."""

from __future__ import annotations

import json
from pathlib import Path

from machine import FINANCE, World

from shared.compiler import compile_file
from shared.runtime.gates import Word
from shared.runtime.task import Task
from shared.testing import FakeModels, FakeTools

INVOICE = compile_file(Path(__file__).parents[2] / "workflows" / "invoice.yaml")
FIELDS = {
    "vendor": "Contoso",
    "number": "C-1",
    "issued": "2026-10-01",
    "due": "2026-11-01",
    "currency": "EUR",
    "net": 100,
    "tax": 20,
    "amount": 120,
    "lines": [{"description": "Paper", "total": 100}],
}


def world(amount=120, confidence=0.95, **tools):
    fields = {**FIELDS, "amount": amount, "net": amount - 20, "lines": [{"description": "Paper", "total": amount - 20}]}
    sure = {"category": "goods", "confidence": confidence, "reason": "known vendor"}

    def answer(request):
        return json.dumps(fields if "vendor" in request.schema["properties"] else sure)

    ready = {
        "check_invoice": lambda arguments, _: {"total": arguments["amount"], "lines": 1},
        "erp_post": lambda _, call: {"document": f"D-{call.idempotency_key[:6]}"},
        "erp_void": lambda arguments, _: {"document": arguments["document"], "status": "void"},
        "erp_find": lambda *_: {"count": 0, "document": ""},
    }
    return World(INVOICE, FakeModels(answer), FakeTools(ready | tools))


def types(world):
    return [f"{event.type}:{event.path}" if event.path else event.type for event in world.journal.events()]


def word(decision, by=FINANCE[0].email, **more):
    return Word(decision, by, **more)


def posted(world):
    return [call for name, _, call in world.tools.calls if name == "erp_post"]


def task(world, step):
    return Task("run", step, "", world.run, world.tenant, "invoice", 1, world.head.epoch, "", "person", 0)
