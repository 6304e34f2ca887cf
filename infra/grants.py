"""Which actions "read" and "write" are: exactly what the adapters in ``shared`` call, nothing more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aws_cdk import Stack
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_s3 as s3

    from infra.constructs.function import Function
    from infra.settings import Settings

TABLE_READ = ("dynamodb:BatchGetItem", "dynamodb:Query")
TABLE_WRITE = (*TABLE_READ, "dynamodb:PutItem")
"""Transactions of puts are authorised as puts."""
BLOB_READ = ("s3:GetObject",)
BLOB_WRITE = ("s3:GetObject", "s3:PutObject")
ANSWER = ("states:SendTaskFailure", "states:SendTaskSuccess")


_DECRYPT = ("kms:Decrypt",)
_ENCRYPT = ("kms:Decrypt", "kms:GenerateDataKey")
"""Who writes makes a data key; S3, SQS and SNS want to read it, too."""
TOOL_ACTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "s3.get": {"s3": ("s3:GetObject", "s3:GetObjectVersion"), "kms": _DECRYPT},
    # Whether an earlier attempt has written what is there already is read from the object's metadata.
    "s3.put": {"s3": ("s3:GetObject", "s3:PutObject"), "kms": _ENCRYPT},
    "dynamodb.query": {"dynamodb": ("dynamodb:Query",), "kms": _DECRYPT},
    "sql.query": {"rds": ("rds-data:ExecuteStatement",), "secretsmanager": ("secretsmanager:GetSecretValue",)},
    "sqs.send": {"sqs": ("sqs:SendMessage",), "kms": _ENCRYPT},
    "sns.publish": {"sns": ("sns:Publish",), "kms": _ENCRYPT},
    "events.put": {"events": ("events:PutEvents",)},
    "email.send": {"ses": ("ses:SendEmail",)},
    "lambda.invoke": {"lambda": ("lambda:InvokeFunction",)},
}
"""What each built-in tool calls, by the service of the ARN that it may touch."""
_ONE = r"[^/:]*[A-Za-z0-9][^/:]*"
_RESOURCES: Mapping[str, str] = {
    "s3": f"{_ONE}(/.+)?",
    "kms": f"key/{_ONE}",
    "dynamodb": f"table/{_ONE}(/index/.+)?",
    "rds": f"cluster:{_ONE}",
    "secretsmanager": f"secret:{_ONE}(/{_ONE})*",
    "sqs": _ONE,
    "sns": _ONE,
    "events": f"event-bus/{_ONE}",
    "ses": f"(identity|configuration-set)/{_ONE}",
    "lambda": f"function:{_ONE}(:.+)?",
}
"""How an ARN of a service ends: a name may hold wildcards, but is none. Only inside what is named may all be meant:
objects of a bucket, indexes of a table, versions of a function."""
_ARN = re.compile(r"arn:[a-z-]+:([a-z0-9-]+):[a-z0-9-]*:\d{0,12}:(.+)")


def tool_actions(tool: str, arn: str) -> tuple[str, ...]:
    """Return what a built-in tool may do with an ARN. Raises ValueError for a tool or an ARN that makes no sense.

    A bucket without a path may be listed, so that an object that is not there is told from one that is forbidden.
    """
    known = TOOL_ACTIONS.get(tool)
    if known is None:
        raise ValueError(
            f"tool_grants: no built-in tool {tool!r} needs a grant. Those that do: {', '.join(TOOL_ACTIONS)}."
        )
    found = _ARN.fullmatch(arn)
    if found is None or found[1] not in known or not re.fullmatch(_RESOURCES[found[1]], found[2]):
        raise ValueError(f"tool_grants[{tool!r}]: {arn!r} is no ARN of one resource of {' or '.join(known)}.")
    if found[1] == "s3" and "/" not in found[2]:
        return ("s3:ListBucket",)
    return known[found[1]]


class Grants:
    """The grants that several stacks make, each on exactly the resources it needs."""

    def __init__(self, scope: Stack, *, settings: Settings) -> None:
        machine = f"arn:{scope.partition}:states:{scope.region}:{scope.account}:stateMachine"
        self._executions = machine.removesuffix("stateMachine") + "execution"
        self.machines = f"{machine}:{settings.machine_pattern}"
        self.unwind_machine = f"{machine}:{settings.unwind_machine}"
        secrets = f"arn:{scope.partition}:secretsmanager:{scope.region}:{scope.account}:secret"
        self._secrets = f"{secrets}:TENANT/*/{settings.prefix}/*"

    def read(self, function: Function, *tables: dynamodb.ITable) -> Grants:
        """Let ``function`` read ``tables`` by key."""
        function.may(*TABLE_READ, on=[table.table_arn for table in tables])
        return self

    def write(self, function: Function, *tables: dynamodb.ITable) -> Grants:
        """Let ``function`` read and conditionally write ``tables``."""
        function.may(*TABLE_WRITE, on=[table.table_arn for table in tables])
        return self

    def search(self, function: Function, table: dynamodb.ITable, *indexes: str) -> Grants:
        """Let ``function`` query these indexes of ``table``."""
        function.may("dynamodb:Query", on=[f"{table.table_arn}/index/{index}" for index in indexes])
        return self

    def read_blobs(self, function: Function, bucket: s3.IBucket) -> Grants:
        """Let ``function`` read objects."""
        function.may(*BLOB_READ, on=[bucket.arn_for_objects("*")])
        return self

    def write_blobs(self, function: Function, bucket: s3.IBucket) -> Grants:
        """Let ``function`` read and write objects."""
        function.may(*BLOB_WRITE, on=[bucket.arn_for_objects("*")])
        return self

    def read_secret(self, function: Function, arn: str) -> Grants:
        """Let ``function`` read one secret's value."""
        function.may("secretsmanager:GetSecretValue", on=[arn])
        return self

    def use_secret(self, function: Function, tenant: str, name: str) -> Grants:
        """Let ``function`` read the value of one secret of one tenant, which Secrets Manager gives six more signs."""
        secret = self._secrets.replace("/*/", f"/{tenant}/").removesuffix("*") + f"{name}-??????"
        function.may("secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue", on=[secret])
        return self

    def name_secrets(self, function: Function) -> Grants:
        """Let ``function`` read which version of a tenant's secret is the newest, not its value."""
        function.may("secretsmanager:DescribeSecret", on=[self._secrets])
        return self

    def use_secrets(self, function: Function) -> Grants:
        """Let ``function`` read the values of tenants' secrets, and which version is the newest."""
        function.may("secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue", on=[self._secrets])
        return self

    def use_tools(self, function: Function, grants: Mapping[str, Sequence[str]]) -> Grants:
        """Let ``function`` do what built-in tools do, on exactly the resources that the deployment names for each."""
        for tool, arns in sorted(grants.items()):
            for arn in arns:
                function.may(*tool_actions(tool, arn), on=[arn])
        return self

    def answer_tasks(self, function: Function) -> Grants:
        """Let ``function`` answer parked tasks of this environment's workflows."""
        function.may(*ANSWER, on=[self.machines])
        return self

    def start(self, function: Function, machine: str) -> Grants:
        """Let ``function`` start executions of ``machine``."""
        function.may("states:StartExecution", on=[machine])
        return self

    def describe(self, function: Function, machine: str) -> Grants:
        """Let ``function`` look at executions of ``machine``."""
        function.may("states:DescribeExecution", on=[f"{self._executions}:{machine.rsplit(':', 1)[-1]}:*"])
        return self
