"""What differs between environments, as frozen data. ``local`` is an environment like any other."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aws_cdk import RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs

from infra.grants import tool_actions
from shared.settings import EMAIL_SENDER, McpServer, People, Person

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOCAL_ACCOUNT = "000000000000"
_LOCAL_REGION = "us-east-1"


class UnknownEnvironmentError(ValueError):
    """The environment asked for is not described here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One environment.

    ``account`` and ``region`` None = those of the credentials at deploy time. ``public_url`` is a pattern in which
    ``{api}`` stands for the API's id; None = the address that AWS gives the API. ``durable`` = data, versions and logs
    outlive a deletion of the stacks. ``managed`` = what only AWS has is used: dependency layer, tracing, alarms, access
    logs. ``concurrency`` reserves that many concurrent executions for every function, None = no reservation.
    ``throttle`` is the API's limit in requests a second, ``burst`` on top of it. ``tool_grants`` are the ARNs that each
    built-in tool may touch, none by default; ``mcp_servers`` those that workflows may name.
    """

    name: str
    account: str | None = None
    region: str | None = None
    sender: str
    approvers: Mapping[str, People]
    alarms_email: str | None = None
    log_level: str = "INFO"
    architecture: lambda_.Architecture = lambda_.Architecture.ARM_64
    log_retention: logs.RetentionDays = logs.RetentionDays.THREE_MONTHS
    durable: bool = True
    managed: bool = True
    concurrency: int | None = None
    throttle: int = 50
    burst: int = 100
    public_url: str | None = None
    models_url: str = ""
    tool_settings: Mapping[str, str] = field(default_factory=dict[str, str])
    tool_grants: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict[str, McpServer])

    @property
    def tool_variables(self) -> dict[str, str]:
        """What tools are told by name: ``tool_settings``, and what follows from grants and servers."""
        found = McpServer.tell(self.mcp_servers)
        if self.tool_grants.get("email.send"):
            found[EMAIL_SENDER] = self.sender
        return {**found, **self.tool_settings}

    @property
    def servers(self) -> frozenset[str]:
        """Names of the MCP servers that tools are told of. Raises ValueError when one of them makes no sense."""
        return frozenset(McpServer.told_in(self.tool_variables))

    @property
    def prefix(self) -> str:
        """Start of the environment's physical names and stacks."""
        return f"signalbox-{self.name}"

    @property
    def machines(self) -> str:
        """Start of the logical id of every workflow's machine in this environment."""
        return f"Signalbox{self.name.capitalize()}Workflow"

    @property
    def machine_pattern(self) -> str:
        """Pattern over the names that CloudFormation generates for those machines.

        AWS starts them with the logical id, the local cloud with the stack's name.
        """
        return f"{self.machines}*" if self.managed else f"*{self.machines}*"

    @property
    def unwind_machine(self) -> str:
        """Name of the unwind machine."""
        return f"{self.prefix}-unwind"

    @property
    def removal(self) -> RemovalPolicy:
        """What happens to data when its stack goes."""
        return RemovalPolicy.RETAIN if self.durable else RemovalPolicy.DESTROY


def _people(role: str) -> People:
    return (Person(name=f"{role.title()} Approver", initials=f"{role[0].upper()}A", email=f"{role}@example.com"),)


_LEAD = (Person("Lena Lead", "LL", "finance-lead@example.com"),)
_ROLES = ("finance", "hiring", "legal", "manager", "moderation", "support")
_APPROVERS = {**{role: _people(role) for role in _ROLES}, "finance_lead": _LEAD}
"""The roles that the workflows of ``workflows/`` ask."""

ENVIRONMENTS: Mapping[str, Settings] = {
    "local": Settings(
        name="local",
        account=_LOCAL_ACCOUNT,
        region=_LOCAL_REGION,
        sender="signalbox@example.com",
        approvers=_APPROVERS,
        log_level="DEBUG",
        log_retention=logs.RetentionDays.ONE_DAY,
        architecture=lambda_.Architecture.X86_64,
        durable=False,
        managed=False,
        concurrency=8,
        throttle=1000,
        burst=1000,
    ),
    "dev": Settings(
        name="dev",
        sender="signalbox-dev@example.com",
        approvers=_APPROVERS,
        log_level="DEBUG",
        log_retention=logs.RetentionDays.ONE_WEEK,
    ),
    "prod": Settings(
        name="prod",
        sender="signalbox@example.com",
        approvers=_APPROVERS,
        alarms_email="operations@example.com",
        log_retention=logs.RetentionDays.ONE_YEAR,
    ),
}
"""Put your own addresses and people into ``dev`` and ``prod`` before the first deploy: example.com takes no mail."""

_TEXT_OVERRIDES = ("account", "region", "sender", "alarms_email", "public_url", "models_url", "log_level")


def settings_for(name: str, overrides: Mapping[str, Any]) -> Settings:
    """Return the settings of environment ``name``, changed by what ``overrides`` (the CDK context) holds.

    Overridable are the texts ``account region sender alarms_email public_url models_url log_level`` and, as JSON,
    ``tool_settings`` (an object of texts), ``tool_grants`` (built-in tool -> list of ARNs), ``mcp_servers``
    (name -> {url, secret}) and ``approvers`` (role -> list of {name, initials, email}).

    Raises:
        UnknownEnvironmentError: no such environment; the message lists those that exist.
        ValueError: an override cannot be read; the message names it.
    """
    base = ENVIRONMENTS.get(name)
    if base is None:
        known = ", ".join(sorted(ENVIRONMENTS))
        raise UnknownEnvironmentError(
            f"environment {name!r} is not in infra/settings.py: use -c env= with one of {known}."
        )
    changes: dict[str, Any] = {key: str(overrides[key]) for key in _TEXT_OVERRIDES if overrides.get(key)}
    if overrides.get("tool_settings"):
        changes["tool_settings"] = _texts(_json("tool_settings", overrides["tool_settings"]))
    if overrides.get("tool_grants"):
        changes["tool_grants"] = _grants(_json("tool_grants", overrides["tool_grants"]))
    if overrides.get("mcp_servers"):
        changes["mcp_servers"] = _servers(_json("mcp_servers", overrides["mcp_servers"]))
    if overrides.get("approvers"):
        changes["approvers"] = _roles(_json("approvers", overrides["approvers"]))
    return _checked(replace(base, **changes))


def _json(name: str, given: Any) -> Any:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except json.JSONDecodeError as error:
        raise ValueError(f"context {name}: not JSON: {error}. Give it as -c {name}='{{...}}'.") from error


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in given.items()}


def _grants(given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {str(tool): tuple(map(str, arns)) for tool, arns in given.items()}


def _servers(given: Any) -> dict[str, McpServer]:
    try:
        return McpServer.named_in(given)
    except ValueError as error:
        raise ValueError(f"context mcp_servers: {error}") from error


def _roles(given: Mapping[str, Any]) -> dict[str, People]:
    try:
        return {role: tuple(Person(**person) for person in people) for role, people in given.items()}
    except TypeError as error:
        raise ValueError(f"context approvers: {error}. Each person is {{name, initials, email}}.") from error


def _checked(settings: Settings) -> Settings:
    # The name becomes part of stack names, machine names and patterns over them.
    if not re.fullmatch(r"[a-z][a-z0-9]{1,11}", settings.name):
        raise ValueError(f"environment name {settings.name!r}: use 2 to 12 lower-case letters and digits.")
    for tool, arns in settings.tool_grants.items():
        for arn in arns:
            tool_actions(tool, arn)
    _ = settings.servers
    return settings
