"""A launched emulator as the probes see it."""

import io
import json
import os
import socket
import sys
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from scripts.local import environment, processes

ROOT = Path(__file__).resolve().parents[2]
HANDLER = """
import os, time, uuid

def handle(event, context):
    return globals()[event["op"]](event)

def fail(event): raise ValueError("boom")
def leave(event): os._exit(3)
def pid(event): return os.getpid()
def variables(event): return dict(os.environ)
def sleep(event): time.sleep(event["seconds"])

def client(name):
    import boto3
    return boto3.client(name)

def seen(event):
    client("dynamodb").put_item(TableName="seen", Item={
        "key": {"S": event["key"]}, "at": {"N": str(time.time_ns())}, "value": {"S": str(event.get("value"))}})

def seen_and_fail(event):
    seen(event)
    raise ValueError("boom")

def seen_and_refuse(event):
    seen(event)
    client("stepfunctions").send_task_failure(taskToken=event["value"], error="refused")

def imports(event):
    import pydantic, boto3, aws_lambda_powertools, cel_expr_python
    return sorted(m.__name__ for m in (pydantic, boto3, aws_lambda_powertools, cel_expr_python))

def stream(event, context): time.sleep(3)
def queue(event, context): seen({"key": event["Records"][0]["body"]})
"""
"""A function for everything the probes need; it lies in a package, as the product's do."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((environment.HOST, 0))
        return probe.getsockname()[1]


def until(look: Callable[[], Any], seconds: float = 20) -> Any:
    """What `look` returns as soon as it is true."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"still {found!r} after {seconds} s"
        time.sleep(0.03)


class Emulator:
    """A launched emulator and shorthands for what probes do."""

    def __init__(self, folder: Path, *options: str, variables: Mapping[str, str] = os.environ) -> None:
        self.port = free_port()
        self.url = f"http://{environment.HOST}:{self.port}"
        self.log = folder / "emulator.log"
        command = [sys.executable, "-m", "scripts.local.launcher", "--port", str(self.port)]
        command += ["--parent", str(os.getpid()), *options]
        self.process = processes.spawn(command, variables=variables, folder=ROOT, log=self.log)

    def client(self, name: str) -> Any:
        config = Config(retries={"total_max_attempts": 1}, proxies={})
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": environment.REGION}
        return boto3.client(name, endpoint_url=self.url, config=config, **keys)

    @cached_property
    def states(self) -> Any:
        return self.client("stepfunctions")

    @cached_property
    def lambdas(self) -> Any:
        return self.client("lambda")

    @cached_property
    def table(self) -> Any:
        return self.client("dynamodb")

    def prepare(self) -> None:
        until(self._answers)
        self.table.create_table(
            TableName="seen",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}, {"AttributeName": "at", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "key", "AttributeType": "S"},
                {"AttributeName": "at", "AttributeType": "N"},
            ],
        )
        self.function("handler")
        self.invoke(op="seen", key="warm")

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((environment.HOST, self.port)) == 0

    def function(self, name: str, entry: str = "handle") -> str:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            for package in ("functions", "functions/step"):
                file.writestr(f"{package}/__init__.py", "")
            file.writestr("functions/step/handler.py", HANDLER)
        return self.lambdas.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role="arn:aws:iam::000000000000:role/any",
            Handler=f"functions.step.handler.{entry}",
            Code={"ZipFile": archive.getvalue()},
            Timeout=20,
        )["FunctionArn"]

    def invoke(self, **event: Any) -> Any:
        return json.load(self.lambdas.invoke(FunctionName="handler", Payload=json.dumps(event))["Payload"])

    def machine(self, first: dict[str, Any], **top: Any) -> str:
        """A machine whose first state is `first`."""
        states = {"first": {"End": True, **first}}
        return self._create({"StartAt": "first", "States": states, **top})

    def _create(self, definition: dict[str, Any]) -> str:
        name, role = f"m-{uuid.uuid4()}", "arn:aws:iam::000000000000:role/any"
        created = self.states.create_state_machine(name=name, definition=json.dumps(definition), roleArn=role)
        return created["stateMachineArn"]

    def start(self, machine: str, **given: Any) -> str:
        return self.states.start_execution(stateMachineArn=machine, **given)["executionArn"]

    def finished(self, execution: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.states.describe_execution(executionArn=execution)
            return None if found["status"] == "RUNNING" else found

        return until(look)

    def run(self, first: dict[str, Any], **top: Any) -> dict[str, Any]:
        return self.finished(self.start(self.machine(first, **top)))

    def seen(self, key: str) -> list[str]:
        found = self.table.query(
            TableName="seen",
            KeyConditionExpression="#k = :k",
            ExpressionAttributeNames={"#k": "key"},
            ExpressionAttributeValues={":k": {"S": key}},
        )
        return [item["value"]["S"] for item in found["Items"]]


def task(op: str, *, token: bool = False, function: str = "handler", **payload: Any) -> dict[str, Any]:
    """A Lambda task; names of payload fields that end in `_path` become JSONPath fields."""
    fields = {f"{n[:-5]}.$" if n.endswith("_path") else n: v for n, v in payload.items()}
    resource = "arn:aws:states:::lambda:invoke" + (".waitForTaskToken" if token else "")
    parameters = {"FunctionName": function, "Payload": {"op": op, **fields}}
    return {"Type": "Task", "Resource": resource, "Parameters": parameters, "TimeoutSeconds": 15}
