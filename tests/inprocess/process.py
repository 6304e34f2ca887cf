"""The real host (SQLite, threads, locks) in processes of their own, which the tests kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shapes import FakeModels

from scripts.local.erp import Erp
from shared.compiler import compile_file
from shared.inprocess.workspace import TENANT, Workspace
from shared.ledger.records import Head, run_partition
from shared.ports import Key
from shared.runtime.gates import Word, decide_gate
from shared.runtime.journal import Journal
from shared.runtime.runs import StartRequest, start_run
from shared.tools.host import ToolBox
from shared.tools.registry import load_tools

FORK = multiprocessing.get_context("fork")
FILE = Path(__file__).parents[2] / "workflows" / "invoice.yaml"
FIELDS = {
    "vendor": "Contoso",
    "number": "C-1",
    "issued": "2026-10-01",
    "due": "2026-11-01",
    "currency": "EUR",
    "tax": 20,
}


def quick_invoice() -> Any:
    """The invoice workflow; a probe that finds nothing proves it at once, so that the tests need not wait for it."""
    compiled = compile_file(FILE)
    plan = compiled.manifest.steps["post"]
    spec = {**plan.spec, "reconcile": {**plan.spec["reconcile"], "conclusive_after": 0}}
    steps = {**compiled.manifest.steps, "post": replace(plan, spec=spec)}
    return replace(compiled, manifest=replace(compiled.manifest, steps=steps))


INVOICE = quick_invoice()
TOOLS = load_tools(FILE.parent / "tools")


def quiet_erp(file: Path | None) -> Erp:
    erp: Any = Erp(file=file)
    erp.RequestHandlerClass = type("Quiet", (erp.RequestHandlerClass,), {"log_message": lambda *_: None})
    threading.Thread(target=erp.serve_forever, daemon=True).start()
    return erp


class Host:
    """One process's host on the store at ``path``: of the invoice workflow, or of another one with its model."""

    def __init__(self, path: Path, erp: str, amount: int = 120, unit: Any = INVOICE, answer: Any = None) -> None:
        lines = [{"description": "Paper", "total": amount - 20}]
        fields = {**FIELDS, "amount": amount, "net": amount - 20, "lines": lines}
        sure = {"category": "goods", "confidence": 0.95, "reason": "known vendor"}
        models = FakeModels(
            answer or (lambda request: json.dumps(fields if "vendor" in request.schema["properties"] else sure))
        )
        self.workspace = Workspace(path)
        self.engine = self.workspace.engine(4)
        self.tools = ToolBox(TOOLS, {"ERP_URL": erp})
        self.handlers = self.workspace.handlers(self.engine, models, self.tools)
        self.published = self.workspace.publish(unit, FILE)
        self.engine.open(self.handlers)

    def start(self, key: str = "", **data: str) -> str:
        request = StartRequest(TENANT, "alex@example.test", "cli", data or {"document": "x"}, key or None)
        return start_run(self.handlers.steps, self.published, request)[0]

    def journal(self, run: str) -> Journal:
        return Journal(self.workspace.store, self.workspace.clock, TENANT, run)

    def head(self, run: str) -> Head:
        key = Key(run_partition(TENANT, run), "HEAD")
        return Head.from_item(self.workspace.store.read([key])[key])

    def until(self, run: str, *states: str, seconds: float = 20) -> str:
        end = time.monotonic() + seconds
        while (state := self.head(run).state) not in states:
            assert time.monotonic() < end, f"the run is {state}: {self.engine.failure}"
            time.sleep(0.005)
        return state

    def decide(self, run: str, decision: Any) -> None:
        decide_gate(self.handlers.steps, self.journal(run), "review", Word(decision, "fatima@example.test"))

    def close(self) -> None:
        self.engine.close()
        self.workspace.close()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def mortal(host: Host, number: int, moment: str) -> None:
    """Kill this process at the commit of this number (from 1): before anything of it is written, or after all is."""
    store: Any = host.workspace.store
    commit, count = store._finish, SimpleNamespace(done=0, changes=store._writer.total_changes)

    def dying() -> None:
        writes = bool(store._waiting) or store._writer.total_changes > count.changes
        count.done += writes
        mine = writes and count.done == number
        if mine and moment == "before":
            die()
        commit()
        count.changes = store._writer.total_changes
        if mine:
            die()

    store._finish = dying


def forked(work: Any) -> int:
    """Do ``work`` in a process of its own. Returns its exit code; -9 = it was killed."""
    child = FORK.Process(target=work)
    child.start()
    child.join(30)
    assert child.exitcode is not None, "the process did not end"
    return child.exitcode
