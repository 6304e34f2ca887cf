"""Which actions "read" and "write" are: exactly what the adapters in ``shared`` call, nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
