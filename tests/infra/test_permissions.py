"""Least privilege, exactly: every action of every role, on which resources, is listed here."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Synthesised

READ = {"dynamodb:BatchGetItem", "dynamodb:Query"}
WRITE = {*READ, "dynamodb:PutItem"}
ANSWER = {"states:SendTaskFailure", "states:SendTaskSuccess"}
START = {"states:StartExecution"}
SECRET = {"secretsmanager:GetSecretValue"}
# What the factory gives every function: its own log group, and traces (which have no resource type).
OWN = {"own logs": {"logs:CreateLogStream", "logs:PutLogEvents"}}
TRACES = {"*": {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}}

EXPECTED: dict[str, dict[str, set[str]]] = {
    "Start": {
        "runs": WRITE,
        "definitions": READ,
        "objects": {"s3:GetObject", "s3:PutObject"},
        "machines": START,
    },
    "Step": {
        "runs": WRITE,
        "definitions": READ,
        "objects": {"s3:GetObject", "s3:PutObject"},
        "model secret": SECRET,
        "seal secret": SECRET,
        "tenants' secrets": SECRET | {"secretsmanager:DescribeSecret"},
        "machines": ANSWER,
    },
    "Control": {
        "runs": WRITE,
        "definitions": READ,
        "objects": {"s3:GetObject", "s3:PutObject"},
        "seal secret": SECRET,
        "machines": ANSWER | START,
        "unwind": START,
    },
    "Gate": {
        "runs": WRITE,
        "definitions": READ,
        "objects": {"s3:GetObject", "s3:PutObject"},
        "link secret": SECRET,
        "seal secret": SECRET,
        "tenants' secrets": {"secretsmanager:DescribeSecret"},
        "machines": ANSWER,
        "sender address": {"ses:SendEmail"},
        "sender domain": {"ses:SendEmail"},
    },
    "Approvals": {
        "runs": WRITE,
        "definitions": READ,
        "objects": {"s3:GetObject", "s3:PutObject"},
        "link secret": SECRET,
        "seal secret": SECRET,
        "machines": ANSWER,
    },
    "Api": {
        "runs": WRITE,
        "runs by_workflow": {"dynamodb:Query"},
        "runs by_state": {"dynamodb:Query"},
        "runs pending": {"dynamodb:Query"},
        "definitions": READ,
        "tenants": READ,
        "objects": {"s3:GetObject", "s3:PutObject"},
        "seal secret": SECRET,
        "machines": ANSWER,
        "unwind": START,
        "webhook secret": SECRET | {"secretsmanager:DescribeSecret"},
        "start versions": {"lambda:InvokeFunction"},
        "sweep": {"lambda:InvokeFunction"},
    },
    "Finalise": {
        "runs": WRITE,
        "definitions": READ,
        "objects": {"s3:GetObject", "s3:PutObject"},
        "seal secret": SECRET,
        "machines": ANSWER,
        "unwind": START,
        "dead letters": {"sqs:SendMessage"},
    },
    "Project": {
        "runs": WRITE,
        "machines": ANSWER | START,
        "unwind": START,
        "stream": {"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"},
        "*": {"dynamodb:ListStreams"},
        "event bus": {"events:PutEvents"},
        "dead letters": {"sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"},
    },
    "Sweep": {
        "runs": WRITE,
        "runs by_state": {"dynamodb:Query"},
        "definitions": WRITE,
        "tenants": READ,
        "objects": {"s3:GetObject", "s3:PutObject"},
        "seal secret": SECRET,
        "machines": ANSWER | START | {"states:DeleteStateMachineVersion", "states:DeleteStateMachine"},
        "machines' versions": {"states:DeleteStateMachineVersion"},
        "executions": {"states:DescribeExecution"},
        "unwind": START,
        "unwind executions": {"states:DescribeExecution"},
        "event bus": {"events:PutEvents"},
    },
    "Trigger": {
        "runs": WRITE,
        "definitions": READ,
        "tenants": READ,
        "objects": {"s3:GetObject", "s3:PutObject"},
        "machines": START,
        "event bus": {"events:PutEvents"},
        "trigger letters": {"sqs:SendMessage"},
    },
    "Publish": {
        "definitions": WRITE,
        "machines": {"states:DescribeStateMachine", "states:PublishStateMachineVersion"},
        "assets": {"s3:GetObject"},
    },
}
NAMES = [
    (r"Definitions\w*Arn", "definitions"),
    (r"Tenants\w*Arn", "tenants"),
    (r"Runs\w*StreamArn", "stream"),
    (r"Runs\w*Arn.*/index/(\w+)", r"runs \1"),
    (r"Runs\w*Arn", "runs"),
    (r"Blobs\w*Arn.*/\*", "objects"),
    (r"Events\w*Arn", "event bus"),
    (r"ModelSecret", "model secret"),
    (r"LinkSecret", "link secret"),
    (r"SealSecret", "seal secret"),
    (r"stateMachine:signalbox-prod-unwind$", "unwind"),
    (r"stateMachine:SignalboxProdWorkflow\*$", "machines"),
    (r"stateMachine:SignalboxProdWorkflow\*:\*$", "machines' versions"),
    (r"execution:signalbox-prod-unwind:\*$", "unwind executions"),
    (r"execution:SignalboxProdWorkflow\*:\*$", "executions"),
    (r"identity/signalbox@example\.com$", "sender address"),
    (r"identity/example\.com$", "sender domain"),
    (r"StartFunction\w*.*:\*$", "start versions"),
    (r"SweepFunction\w*", "sweep"),
    (r"cdk-hnb659fds-assets-.*/\*$", "assets"),
    (r"DeadLetters\w*", "dead letters"),
    (r"TriggerLetters\w*", "trigger letters"),
    (r":secret:TENANT/\*/signalbox-prod/\*$", "tenants' secrets"),
    # One tenant's, by its full name: what follows is what Secrets Manager appends.
    (r":secret:TENANT/acme/signalbox-prod/erp_webhook-\?{6}$", "webhook secret"),
    (r"Logs\w+", "own logs"),
]


def flat(value: Any) -> str:
    """Turn a resource with its intrinsic functions into one text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(flat(each) for each in listed(value))
    (name, inner), *_ = value.items()
    if name == "Fn::Join":
        return flat(inner[1])
    return f"<{inner if isinstance(inner, str) else '.'.join(map(flat, inner))}>"


def named(resource: Any) -> str:
    text = flat(resource)
    for pattern, name in NAMES:
        if hit := re.search(pattern, text):
            return hit.expand(name)
    return text


def listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def permissions(app: Synthesised, role: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for policy in app.of("AWS::IAM::Policy", f"{role}Role"):
        for statement in policy.properties["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            for resource in listed(statement["Resource"]):
                found.setdefault(named(resource), set()).update(listed(statement["Action"]))
    return found


def merged(*parts: dict[str, set[str]]) -> dict[str, set[str]]:
    total: dict[str, set[str]] = {}
    for part in parts:
        for resource, actions in part.items():
            total[resource] = total.get(resource, set()) | actions
    return total


@pytest.mark.parametrize("role", EXPECTED)
def test_a_function_may_do_exactly_this(prod: Synthesised, role: str):
    assert permissions(prod, role) == merged(OWN, TRACES, EXPECTED[role])


def test_tools_may_touch_exactly_what_the_deployment_names(app_of: Callable[..., Synthesised], prod: Synthesised):
    grants = {
        "s3.get": ["arn:aws:s3:::docs/in/*", "arn:aws:s3:::docs"],
        "sql.query": ["arn:aws:rds:eu-west-1:123456789012:cluster:shop"],
        "sqs.send": ["arn:aws:sqs:eu-west-1:123456789012:work", "arn:aws:kms:eu-west-1:123456789012:key/k"],
    }
    given = app_of("prod", tool_grants=grants)
    before, after = permissions(prod, "Step"), permissions(given, "Step")
    assert {resource: actions for resource, actions in after.items() if resource not in before} == {
        "arn:aws:s3:::docs/in/*": {"s3:GetObject", "s3:GetObjectVersion"},
        "arn:aws:s3:::docs": {"s3:ListBucket"},
        "arn:aws:rds:eu-west-1:123456789012:cluster:shop": {"rds-data:ExecuteStatement"},
        "arn:aws:sqs:eu-west-1:123456789012:work": {"sqs:SendMessage"},
        "arn:aws:kms:eu-west-1:123456789012:key/k": {"kms:Decrypt", "kms:GenerateDataKey"},
    }
    assert all(permissions(given, role) == permissions(prod, role) for role in EXPECTED if role != "Step")


def test_local_functions_may_do_no_more(local: Synthesised):
    for role, expected in EXPECTED.items():
        actions = {action for each in permissions(local, role).values() for action in each}
        assert actions <= {action for each in merged(OWN, TRACES, expected).values() for action in each}, role


def test_no_role_has_managed_policies_or_wildcard_actions(prod: Synthesised):
    for role in prod.of("AWS::IAM::Role"):
        assert "ManagedPolicyArns" not in role.properties, role.id
    for policy in prod.of("AWS::IAM::Policy"):
        actions = [
            action for each in policy.properties["PolicyDocument"]["Statement"] for action in listed(each["Action"])
        ]
        assert not [action for action in actions if "*" in action], policy.id


def test_machines_may_call_the_three_step_functions_in_any_version(prod: Synthesised):
    role = prod.one("AWS::IAM::Role", "MachineRole")
    (inline,) = role.properties["Policies"]
    invoke, anywhere = inline["PolicyDocument"]["Statement"]
    assert invoke["Action"] == "lambda:InvokeFunction"
    targets = sorted(re.sub(r"(Function)\w+", r"\1", flat(each)) for each in invoke["Resource"])
    assert targets == ["<ControlFunction.Arn>:*", "<GateFunction.Arn>:*", "<StepFunction.Arn>:*"]
    assert {action.split(":")[0] for action in anywhere["Action"]} == {"logs", "xray"}
    assert (
        flat(role.properties["AssumeRolePolicyDocument"]["Statement"][0]["Principal"]["Service"])
        == "states.amazonaws.com"
    )


def test_all_machines_share_the_one_retained_role(prod: Synthesised):
    machines = prod.of("AWS::StepFunctions::StateMachine")
    assert len(machines) == 2
    assert all("MachineRole" in json.dumps(machine.properties["RoleArn"]) for machine in machines)
    assert prod.one("AWS::IAM::Role", "MachineRole").body["DeletionPolicy"] == "Retain"


def test_functions_are_called_only_by_the_api_and_by_our_rules(prod: Synthesised):
    callers = {
        (
            re.sub(r"\w{8}$", "", permission.properties["FunctionName"]["Fn::GetAtt"][0]),
            permission.properties["Principal"],
        )
        for permission in prod.of("AWS::Lambda::Permission")
    }
    assert callers == {
        ("ApiFunction", "apigateway.amazonaws.com"),
        ("ApprovalsFunction", "apigateway.amazonaws.com"),
        ("FinaliseFunction", "events.amazonaws.com"),
        ("GateFunction", "events.amazonaws.com"),
        ("TriggerFunction", "events.amazonaws.com"),
        ("SweepFunction", "events.amazonaws.com"),
    }
    assert all(permission.properties["SourceArn"] for permission in prod.of("AWS::Lambda::Permission"))
