"""The functions of the comparison on the local cloud: the runtime's own handlers over DynamoDB, with the fake toolbox.

One file for the three functions that a compiled machine names; ``ROLE`` in the environment says which one this is.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from behaviour import TOOLS, reply

from functions.bootstrap import client
from shared.blobs.s3 import S3Blobs
from shared.clock import SystemClock
from shared.engine.stepfunctions import StepFunctions
from shared.ledger.dynamodb import DynamoStore
from shared.manifest import Manifest
from shared.ports import Key, Message
from shared.runtime.gates import run_gate
from shared.runtime.host import Definitions, Published, StepHost
from shared.runtime.mailing import GateHost
from shared.runtime.operations import control
from shared.runtime.steps import run_step
from shared.runtime.task import parse_task
from shared.settings import Person
from shared.testing import FakeModels, FakeTools, Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.ports import Store

TABLE, BUCKET = "runs", "blobs"
PEOPLE = (Person("Fatima Ortiz", "FO", "fatima@example.test"),)


class Stored(Definitions):
    """Manifests in the runs' own table, with the machine that each was compiled to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Published] = {}

    def manifest(self, workflow: str, version: int) -> Manifest:
        return self.published(workflow, version).manifest

    def published(self, workflow: str, version: int | None = None) -> Published:
        if workflow not in self._known:
            key = manifest_key(workflow)
            item = self._store.read([key])[key]
            manifest = Manifest.from_json(json.loads(item["text"]))
            self._known[workflow] = Published(workflow, version or 1, manifest.hash, item["machine"], manifest)
        return self._known[workflow]


def manifest_key(workflow: str) -> Key:
    return Key(f"MANIFEST#{workflow}", "MANIFEST")


def ports(made: Any) -> dict[str, Any]:
    """Return the ports over a function that makes boto3 clients."""
    store = DynamoStore(made("dynamodb"), TABLE)
    return {
        "store": store,
        "blobs": S3Blobs(made("s3"), BUCKET),
        "clock": SystemClock(),
        "engine": StepFunctions(made("stepfunctions")),
        "definitions": Stored(store),
    }


@cache
def _steps() -> StepHost:
    return StepHost(**ports(client), models=FakeModels(reply), tools=FakeTools(TOOLS))


@cache
def _gates() -> GateHost:
    return gates(ports(client))


def gates(known: dict[str, Any]) -> GateHost:
    """Return the gates' host over these ports."""

    def letter(gate: Any, _: Any, person: Person, __: Any) -> Message:
        return Message(person.email, gate.subject, "", "", {})

    return GateHost(**known, mail=Outbox(), letters=letter, approvers={"finance": PEOPLE})


def handle(event: dict[str, Any], context: Any) -> Any:
    """Do what the function of this role does."""
    return perform(event, context, _steps(), _gates)


def perform(event: dict[str, Any], context: Any, steps: StepHost, gates: Callable[[], GateHost]) -> Any:
    """Do what the function of this role does, over these hosts."""
    task = parse_task(event, context, steps.clock.now())
    if os.environ["ROLE"] == "StepFunction":
        return run_step(steps, task)
    if os.environ["ROLE"] == "GateFunction":
        return run_gate(gates(), task)
    return control(steps, task, os.environ["UNWIND"])
