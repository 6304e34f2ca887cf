"""cdk-nag over the production app. Every finding that is accepted has its reason here; stale ones fail too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Synthesised

ACCEPTED = {
    "AwsSolutions-S1": "objects are read by our functions only, whose accesses are in the run's event log",
    "AwsSolutions-SMG4": "a new link secret would void open links, a new seal secret what open runs have returned; a "
    "provider's key is rotated at the provider",
    "AwsSolutions-L1": "python3.13 is pinned: the wheels of the layer are built for it",
    "AwsSolutions-APIG4": "tokens are checked in the functions, so that every answer is a problem document",
    "AwsSolutions-IAM5[Resource::*]": "X-Ray, log delivery and ListStreams have no resource types",
    "AwsSolutions-IAM5[Resource::objects]": "blobs are named by content and tenant: any object of our own bucket",
    "AwsSolutions-IAM5[Resource::machines]": "the environment's machines by the start of their name; they deploy later",
    "AwsSolutions-IAM5[Resource::tenants' secrets]": "tenants put them after the deployment; this environment's only",
    "AwsSolutions-IAM5[Resource::assets]": "definitions are CDK assets, whose keys are content hashes",
    "AwsSolutions-IAM5[Resource::versions]": "all versions of one function: parked runs resume on the one they know",
    "AwsSolutions-IAM5[Resource::executions]": "executions have no names before they run; those of our machines only",
    "Serverless-EventBusDLQ": "what one sweep does not do the next does, five minutes later",
    "Serverless-SNSRedrivePolicy": "the topic mails alarms to people; the alarm's state stays visible",
    "Serverless-SQSRedrivePolicy": "it is the dead-letter queue",
    "Serverless-LambdaDLQ": "only finalise and trigger are called asynchronously, and they have one",
    "Serverless-LambdaEventSourceMappingDestination": "a mapping of SQS takes none: its queue redrives",
    "Serverless-LambdaLatestVersion": "python3.13 is pinned: the wheels of the layer are built for it",
}
RESOURCES = [
    ("Blobs", "objects"),
    ("stateMachine:SignalboxProdWorkflow*", "machines"),
    (":execution:", "executions"),
    (":secret:TENANT/", "tenants' secrets"),
    ("cdk-hnb659fds-assets", "assets"),
    ("Function", "versions"),
]


def plain(rule: str) -> str:
    for part, name in RESOURCES:
        if part in rule and "[Resource::" in rule:
            return f"AwsSolutions-IAM5[Resource::{name}]"
    return rule


def findings(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for report in json.loads((folder / "validation-report.json").read_text())["pluginReports"]:
        for violation in report["violations"]:
            paths = [each["constructPath"] for each in violation["violatingConstructs"]]
            found.setdefault(plain(violation["ruleName"]), []).extend(paths)
    return found


@pytest.fixture(scope="session")
def found(nagged: Synthesised) -> dict[str, list[str]]:
    return findings(nagged.folder)


def test_every_finding_is_fixed_or_explained(found: dict[str, list[str]]):
    new = {rule: paths for rule, paths in found.items() if rule not in ACCEPTED}
    assert not new, f"fix these, or explain them in {__name__}: {new}"


def test_no_explanation_is_stale(found: dict[str, list[str]]):
    assert set(ACCEPTED) == set(found)


def test_explanations_hold(found: dict[str, list[str]]):
    assert not [path for path in found["Serverless-LambdaDLQ"] if "/Finalise/" in path or "/Trigger/" in path]
    letters = {"DeadLetters", "TriggerLetters"}
    assert {path.split("/")[1] for path in found["Serverless-SQSRedrivePolicy"]} == letters
    assert {path.split("/")[1] for path in found["AwsSolutions-S1"]} == {"Blobs"}
