"""Publishes a workflow that the app does not ship into the local cloud, the way a deployment does."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import boto3

from shared.clock import SystemClock
from shared.compiler import compile_loaded
from shared.definition.loader import load_text
from shared.ledger.dynamodb import DynamoStore
from shared.models.prices import prices
from shared.publishing.aws import StepFunctionsMachines
from shared.publishing.rules import Publisher, Release
from shared.tools.registry import load_tools

if TYPE_CHECKING:
    from deployed import Deployed

from deployed import ROOT


class Text:
    """An asset that never left memory."""

    def __init__(self, content: str) -> None:
        self._content = content

    def text(self, bucket: str, key: str) -> str:
        return self._content


def client(deployed: Deployed, service: str) -> Any:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client(service, endpoint_url=deployed.aws_url, region_name="us-east-1", **keys)


def publish(deployed: Deployed, text: str) -> str:
    """Compile ``text``, create its machine, publish it; return the workflow's name."""
    folder = ROOT / "workflows"
    compiled = compile_loaded(
        load_text(text, "test.yaml", folder), tools=load_tools(folder / "tools"), models=frozenset(prices())
    )
    asl = json.dumps(compiled.asl)
    for placeholder, arn in _versions(deployed).items():
        asl = asl.replace(f"${{{placeholder}}}", arn)
    states = client(deployed, "stepfunctions")
    machines = states.list_state_machines()["stateMachines"]
    role = states.describe_state_machine(stateMachineArn=machines[0]["stateMachineArn"])["roleArn"]
    prefix = next(m["name"] for m in machines if "unwind" not in m["name"]).rsplit("-", 1)[0]
    name = f"{prefix}-{hashlib.sha256(asl.encode()).hexdigest()[:8]}"
    machine = states.create_state_machine(name=name, definition=asl, roleArn=role)
    revision = states.describe_state_machine(stateMachineArn=machine["stateMachineArn"]).get("revisionId", "")
    content = {"definition": compiled.source, "manifest": json.dumps(compiled.manifest.to_json())}
    table = next(
        name for name in client(deployed, "dynamodb").list_tables()["TableNames"] if "definitions" in name.lower()
    )
    publisher = Publisher(
        machines=StepFunctionsMachines(states),
        assets=Text(json.dumps(content)),
        store=DynamoStore(client(deployed, "dynamodb"), table),
        clock=SystemClock(),
    )
    release = Release(compiled.name, compiled.hash, machine["stateMachineArn"], revision, "", "")
    publisher.publish(release)
    return compiled.name


def _versions(deployed: Deployed) -> dict[str, str]:
    parameters = client(deployed, "ssm")
    names = ("StepFunction", "ControlFunction", "GateFunction")
    return {
        name: parameters.get_parameter(Name=f"/signalbox-local/versions/{name}")["Parameter"]["Value"] for name in names
    }
