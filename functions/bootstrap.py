"""The only place where clients are built: one cached host a function, from its environment."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import boto3
from botocore.config import Config

from shared import settings
from shared.blobs.s3 import S3Blobs
from shared.clock import SystemClock
from shared.engine.stepfunctions import StepFunctions
from shared.errors import PermanentFailure
from shared.ledger.definitions import DefinitionTable
from shared.ledger.dynamodb import DynamoStore
from shared.ledger.seal import Seal, SealedStore
from shared.runtime.breaker import Breakers
from shared.runtime.host import Host, StepHost

if TYPE_CHECKING:
    from shared.api.host import ApiHost
    from shared.approvals.host import ApprovalsHost
    from shared.ports import Secrets, Store
    from shared.publishing.rules import Publisher
    from shared.runtime.mailing import GateHost
    from shared.runtime.projection import ProjectHost
    from shared.runtime.sweep import SweepHost
    from shared.settings import Environment
    from shared.triggers.starting import TriggerHost

_CODE = Path(__file__).parent.parent
_REPEATING: dict[str, Any] = {
    "retries": {"mode": "standard", "total_max_attempts": 4},
    "connect_timeout": 3,
    "read_timeout": 10,
}
_CONFIG = Config(**_REPEATING)
"""Repeats lost answers of our own stores and engine, all of which recognise a repetition."""
_TABLES = Config(**_REPEATING, parameter_validation=False, user_agent="signalbox")
"""For DynamoDB, which every step calls three times. One adapter writes these requests, and DynamoDB checks them again:
boto3's own look at each attribute, and the name that it composes for itself anew each time, cost as much as the rest
of the call."""
_ONCE = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=3, read_timeout=30)
"""For calls with effects outside: the cascade is their only retry layer."""


@cache
def client(service: str) -> Any:
    """Return the one client of an AWS service of our own: stores, engine, functions, events."""
    return cast("Any", boto3).client(service, config=_TABLES if service == "dynamodb" else _CONFIG)


@cache
def _tool_client(service: str, timeout: float) -> Any:
    """Return a client for built-in tools; ``timeout`` in seconds is that of an answer. The cascade alone retries."""
    once: Config = cast("Any", _ONCE).merge(Config(read_timeout=timeout))
    return cast("Any", boto3).client(service, config=once)


def _table(name: str) -> DynamoStore:
    return DynamoStore(client("dynamodb"), name)


def _runs(environment: Environment) -> Store:
    table = _table(environment.runs_table)
    if not isinstance(environment, settings.Attesting):
        return table
    return SealedStore(table, Seal.of(_secret(environment.seal_secret)))


def _host(environment: Environment) -> dict[str, Any]:
    return {
        "store": _runs(environment),
        "blobs": S3Blobs(client("s3"), environment.blobs_bucket),
        "clock": SystemClock(),
        "engine": StepFunctions(client("stepfunctions")),
        "definitions": DefinitionTable(_table(environment.definitions_table)),
    }


def _secrets(environment: Environment) -> Secrets:
    from shared.secretstore.aws import SecretsManager  # noqa: PLC0415 - calls, approvals and webhooks alone are about secrets

    return SecretsManager(client("secretsmanager"), environment.environment)


def _secret(arn: str) -> str:
    return client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"]


def _model_key(arn: str) -> str:
    try:
        return json.loads(_secret(arn))["anthropic"]
    except (ValueError, KeyError, TypeError) as error:
        wanted = '{"anthropic": "..."}'
        raise PermanentFailure(f"The model secret holds no key. Put {wanted} into {arn}.") from error


@cache
def start_host() -> Host:
    """Return the host of ``start``."""
    return Host(**_host(settings.StartEnvironment.read(os.environ)))


@cache
def step_host() -> StepHost:
    """Return the host of ``step``, with its models and tools."""
    from shared.models.anthropic import AnthropicModels  # noqa: PLC0415 - only this function calls models
    from shared.tools.host import ToolBox  # noqa: PLC0415
    from shared.tools.means import Means  # noqa: PLC0415
    from shared.tools.registry import load_tools  # noqa: PLC0415

    environment = settings.StepEnvironment.read(os.environ)
    models = AnthropicModels(lambda: _model_key(environment.model_secret), environment.models_url)
    ports, secrets = _host(environment), _secrets(environment)
    means = Means(_tool_client, secrets)
    tools = ToolBox(load_tools(_CODE / "workflows" / "tools"), environment.tool_settings, means)
    breakers = Breakers(ports["store"], ports["clock"])
    return StepHost(**ports, models=models, tools=tools, breakers=breakers, secrets=secrets)


@cache
def control_host() -> tuple[Host, str]:
    """Return the host of ``control`` and the unwind machine's ARN."""
    environment = settings.ControlEnvironment.read(os.environ)
    return Host(**_host(environment)), environment.unwind_machine


@cache
def gate_host() -> GateHost:
    """Return the host of ``gate``, with mail and the people who decide."""
    from shared.approvals.letters import LetterWriter  # noqa: PLC0415 - only this function writes letters
    from shared.approvals.ses import SesMail  # noqa: PLC0415
    from shared.runtime.mailing import GateHost  # noqa: PLC0415

    environment = settings.GateEnvironment.read(os.environ)
    mail = SesMail(cast("Any", boto3).client("sesv2", config=_ONCE), environment.sender)
    letters = LetterWriter(environment.public_url, _secret(environment.link_secret).encode())
    ports: dict[str, Any] = {**_host(environment), "approvers": environment.approvers}
    return GateHost(**ports, mail=mail, letters=letters, secrets=_secrets(environment))


@cache
def approvals_host() -> ApprovalsHost:
    """Return the host of ``approvals``, with the key that verifies its links."""
    from shared.approvals.host import ApprovalsHost  # noqa: PLC0415 - only this function serves pages

    environment = settings.ApprovalsEnvironment.read(os.environ)
    key = _secret(environment.link_secret).encode()
    return ApprovalsHost(**_host(environment), link_key=key, approvers=environment.approvers)


@cache
def api_host() -> ApiHost:
    """Return the host of ``api``, which starts runs through the function that may."""
    from shared.api.aws import LambdaStart, LambdaSweep  # noqa: PLC0415 - only this function answers the API
    from shared.api.host import ApiHost  # noqa: PLC0415

    environment = settings.ApiEnvironment.read(os.environ)
    return ApiHost(
        **_host(environment),
        tokens=_table(environment.tenants_table),
        catalogue=_table(environment.definitions_table),
        start=LambdaStart(client("lambda"), environment.start_function),
        sweep=LambdaSweep(client("lambda"), environment.sweep_function),
        unwind_machine=environment.unwind_machine,
        secrets=_secrets(environment),
        environment=environment.environment,
        schedules=environment.schedules,
    )


@cache
def finalise_host() -> tuple[Host, str]:
    """Return the host of ``finalise`` and the unwind machine's ARN."""
    environment = settings.FinaliseEnvironment.read(os.environ)
    return Host(**_host(environment)), environment.unwind_machine


@cache
def project_host() -> ProjectHost:
    """Return the host of ``project``, which announces on the deployment's event bus."""
    from shared.events.aws import EventBridge  # noqa: PLC0415 - only this function announces
    from shared.runtime.projection import ProjectHost  # noqa: PLC0415 - only this function projects

    environment = settings.ProjectEnvironment.read(os.environ)
    events = EventBridge(client("events"), environment.event_bus)
    return ProjectHost(**_host(environment), events=events, unwind_machine=environment.unwind_machine)


@cache
def trigger_host() -> TriggerHost:
    """Return the host of ``trigger``, with the queue and the bus that learn of what cannot start a run."""
    from shared.events.aws import EventBridge  # noqa: PLC0415 - as above
    from shared.triggers.aws import SqsDeadLetters  # noqa: PLC0415 - only this function has dead letters of its own
    from shared.triggers.starting import TriggerHost  # noqa: PLC0415

    environment = settings.TriggerEnvironment.read(os.environ)
    return TriggerHost(
        **_host(environment),
        environment=environment.environment,
        tenants=_table(environment.tenants_table),
        dead_letters=SqsDeadLetters(client("sqs"), environment.dead_letters),
        events=EventBridge(client("events"), environment.event_bus),
    )


@cache
def sweep_host() -> SweepHost:
    """Return the host of ``sweep``."""
    from shared.events.aws import EventBridge  # noqa: PLC0415 - only this function sweeps
    from shared.publishing.aws import StepFunctionsMachines  # noqa: PLC0415
    from shared.runtime.sweep import SweepHost  # noqa: PLC0415

    environment = settings.SweepEnvironment.read(os.environ)
    return SweepHost(
        **_host(environment),
        tenants=_table(environment.tenants_table),
        catalogue=_table(environment.definitions_table),
        machines=StepFunctionsMachines(client("stepfunctions")),
        unwind_machine=environment.unwind_machine,
        events=EventBridge(client("events"), environment.event_bus),
    )


@cache
def publisher() -> Publisher:
    """Return the publisher of workflow versions."""
    from shared.publishing.aws import S3Assets, StepFunctionsMachines  # noqa: PLC0415 - only this function publishes
    from shared.publishing.rules import Publisher  # noqa: PLC0415

    environment = settings.PublishEnvironment.read(os.environ)
    return Publisher(
        store=_table(environment.definitions_table),
        machines=StepFunctionsMachines(client("stepfunctions")),
        assets=S3Assets(client("s3")),
        clock=SystemClock(),
    )
