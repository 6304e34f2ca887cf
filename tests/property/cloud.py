"""The compiled machines on a local cloud of their own: three functions, a table, the unwind machine."""

from __future__ import annotations

import io
import json
import sys
import time
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import bare
from cloud_function import BUCKET, TABLE, manifest_key, ports
from family import family, unit_of
from graphs import children_of, given
from invariants import check_run
from order import disorder
from outcome import Result, Stuck, result_of
from people import act

from scripts.local import processes
from shared.asl.render import render
from shared.compiler import unwind_machine
from shared.ports import Write
from shared.runtime.host import Host
from shared.runtime.journal import Journal
from shared.runtime.runs import StartRequest, start_run
from tests.emulator.emulator import ROOT, Emulator, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from shared.compiler import Unit

ROLE = "arn:aws:iam::000000000000:role/any"
UNWIND = "arn:aws:states:us-east-1:000000000000:stateMachine:unwind"
FUNCTIONS = ("StepFunction", "ControlFunction", "GateFunction")
FOLDERS = (ROOT, ROOT / "tests" / "property", ROOT / "tests" / "flows")
TENANT = "acme"
WATCH = 0.1
"""Seconds between two looks at an execution that is measured; each look takes the emulator's time from it."""
PATIENCE = 60.0
"""Seconds that a run may take."""
HANDLER = """
import json, os, sys
sys.path[:0] = json.loads(os.environ["FOLDERS"])
from cloud_function import handle
"""


C = TypeVar("C", bound="Cloud")


class Cloud:
    """Runs compiled machines on an emulator that is up. ``timeout`` (s) ends a function."""

    handler = HANDLER
    folders = FOLDERS
    timeout = 900

    def __init__(self, emulator: Emulator) -> None:
        self._client = emulator.client
        self._states = emulator.client("stepfunctions")
        self._deploy()
        self._host = Host(**ports(emulator.client))

    def _deploy(self) -> None:
        keys = (("pk", "HASH"), ("sk", "RANGE"))
        self._client("dynamodb").create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
        )
        self._client("s3").create_bucket(Bucket=BUCKET)
        for name in FUNCTIONS:
            self._function(name, self.handler)
        self._known: set[str] = set()
        self._machine("unwind", _brisk(unwind_machine()))

    def _function(self, name: str, handler: str, **more: str) -> None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("entry/__init__.py", "")
            file.writestr("entry/handler.py", handler)
        folders = json.dumps([str(folder) for folder in self.folders])
        variables = {"ROLE": name, "UNWIND": UNWIND, "FOLDERS": folders}
        self._client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=ROLE,
            Handler="entry.handler.handle",
            Code={"ZipFile": archive.getvalue()},
            Timeout=self.timeout,
            Environment={"Variables": variables | self.variables() | more},
        )

    def variables(self) -> dict[str, str]:
        """Return what else the functions find in their environment."""
        return {}

    def _machine(self, name: str, asl: Mapping[str, Any]) -> str:
        definition = render(asl)
        for function in FUNCTIONS:
            definition = definition.replace(f"${{{function}}}", function)
        made = self._states.create_state_machine(name=name, definition=definition, roleArn=ROLE)
        return made["stateMachineArn"]

    def run(self, unit: Unit, seed: int, _: Any = None) -> Result:
        """Run the machine to its end. Raises AssertionError when it gets stuck or breaks a rule."""
        name = f"w{seed}-{unit.manifest.hash[:8]}-{time.time_ns()}"
        self._publish(replace(unit, manifest=replace(unit.manifest, workflow=name)))
        for below in {*children_of(unit.manifest)} - self._known:
            self._publish(unit_of(below))
        published = self._host.definitions.published(name)
        request = StartRequest(TENANT, "alex@example.test", "api", given(seed), None)
        run, _ = start_run(self._host, published, request)
        journal = Journal(self._host.store, self._host.clock, TENANT, run)
        self._drive(journal, seed, f"{published.machine.replace(':stateMachine:', ':execution:')}:{run}.1")
        members = list(family(self._host, journal))
        for member in members:
            check_run(member)
            wrong = disorder(member, self._host.blobs)
            assert not wrong, "; ".join(wrong)
        return result_of(members, self._host.blobs)

    def chain(self, unit: Unit) -> Callable[[], float]:
        """Return a function that runs a unit to its end and returns the seconds which its execution took."""
        self._publish(unit)
        published = self._host.definitions.published(unit.manifest.workflow)
        executions = published.machine.replace(":stateMachine:", ":execution:")

        def once() -> float:
            run, _ = start_run(self._host, published, StartRequest(TENANT, "bench@localhost", "api", {}, None))
            return self._took(f"{executions}:{run}.1")

        return once

    def trips_chain(self, length: int) -> Callable[[], float]:
        """Do as ``bare_chain`` with tasks that make the round trips of a step, and nothing else."""
        requests = bare.requests_of_a_step(self._host.store)
        return self.bare_chain(length, "Trips", bare.TRIPS, REQUESTS=requests)

    def bare_chain(
        self, length: int, name: str = "Bare", handler: str = bare.NOTHING, **variables: str
    ) -> Callable[[], float]:
        """Return a function that runs a chain of Lambda tasks which do nothing, and returns the seconds they took."""
        self._function(name, handler, **variables)
        states = {
            f"s{number}": {
                "Type": "Task",
                "Resource": "arn:aws:states:::lambda:invoke",
                "Parameters": {"FunctionName": name, "Payload": {}},
                **({"Next": f"s{number + 1}"} if number + 1 < length else {"End": True}),
            }
            for number in range(length)
        }
        machine = self._machine(name, {"StartAt": "s0", "States": states})

        def once() -> float:
            return self._took(self._states.start_execution(stateMachineArn=machine, input="{}")["executionArn"])

        return once

    def _took(self, execution: str) -> float:
        deadline = time.monotonic() + PATIENCE
        while (found := self._states.describe_execution(executionArn=execution))["status"] == "RUNNING":
            if time.monotonic() > deadline:
                raise Stuck(f"{execution} does not end")
            time.sleep(WATCH)
        if found["status"] != "SUCCEEDED":
            raise Stuck(f"{execution} has {found['status']}")
        return (found["stopDate"] - found["startDate"]).total_seconds()

    def _publish(self, unit: Unit) -> None:
        name = unit.manifest.workflow
        self._known.add(name)
        item = {"text": json.dumps(unit.manifest.to_json()), "machine": self._machine(name, unit.asl)}
        self._host.store.commit([Write(manifest_key(name), item, None)])

    def _drive(self, journal: Journal, seed: int, execution: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not journal.read([]).head.ended:
            act(self._host, journal, seed, UNWIND)
            if time.monotonic() > deadline:
                status = self._states.describe_execution(executionArn=execution)["status"]
                raise Stuck(f"local cloud: the execution is {status}, the run {journal.read([]).head.state}")
            time.sleep(0.03)


def _brisk(machine: dict[str, Any]) -> dict[str, Any]:
    """Return the unwind machine with short waits: while a person has to say something, it looks twice an hour only."""
    states = dict(machine["States"])
    states["wait"] = {"Type": "Wait", "Seconds": 1, "Next": states["wait"]["Next"]}
    return {**machine, "States": states}


@contextmanager
def on_cloud(folder: Path, kind: type[C] = Cloud) -> Iterator[C]:
    """Yield a local cloud of this kind that lives as long as the block."""
    sys.path[:0] = [str(ROOT)]
    emulator = Emulator(folder)
    try:
        until(emulator._answers)
        yield kind(emulator)
    finally:
        processes.end(emulator.process)
