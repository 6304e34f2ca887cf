"""One factory for state machines."""

# CDK's classes name parameters differently from the interfaces they implement.
# pyright: reportArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_iam as iam
    from constructs import Construct

    from infra.settings import Settings


def machine(  # noqa: PLR0913 - keyword-only properties of a construct
    scope: Construct,
    id_: str,
    *,
    settings: Settings,
    role: iam.Role,
    definition: str,
    substitutions: Mapping[str, str],
    name: str | None = None,
) -> sfn.StateMachine:
    """Create a Standard state machine from ASL text. ``role`` is used as it is: its owner grants what machines need.

    Without ``name`` CloudFormation names it after ``id_``.
    """
    return sfn.StateMachine(
        scope,
        id_,
        state_machine_name=name,
        state_machine_type=sfn.StateMachineType.STANDARD,
        definition_body=sfn.DefinitionBody.from_string(definition),
        definition_substitutions=substitutions,
        role=role.without_policy_updates(),
        logs=_logs(scope, id_, settings) if settings.managed else None,
        tracing_enabled=settings.managed,
        removal_policy=settings.removal,
    )


def _logs(scope: Construct, id_: str, settings: Settings) -> sfn.LogOptions:
    # The name's start keeps AWS from growing one resource policy a log group, of which there are few.
    group = logs.LogGroup(
        scope,
        f"{id_}Logs",
        log_group_name=f"/aws/vendedlogs/states/{settings.prefix}/{id_}",
        retention=settings.log_retention,
        removal_policy=settings.removal,
    )
    # Execution data stays out of logs: it may hold task tokens.
    return sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL, include_execution_data=False)
