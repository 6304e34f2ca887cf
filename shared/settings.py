"""What each function is told by its environment variables, as one frozen model a function.

Infrastructure writes ``variables()`` into the function's configuration; the function reads it back with
``read(os.environ)``. Both sides share this file, so a variable cannot be misspelt or forgotten on one of them.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from shared.definition.names import STEP_ID
from shared.errors import PermanentFailure, SignalboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GATE_SECONDS = 60
"""How long the function that asks people runs at most; so long, and no longer, one process alone writes letters."""

Secret = str
"""The ARN of a secret, never its value."""


HTTP_ALLOWED_HOSTS = "HTTP_ALLOWED_HOSTS"
"""Tool setting: hosts, or ``host:port``, separated by commas, that may stand in a private network or speak HTTP."""
MCP_SERVERS = "MCP_SERVERS"
"""Tool setting: the MCP servers as JSON, ``{"name": {"url": ..., "secret": ...}}``; see ``McpServer``."""
EMAIL_SENDER = "EMAIL_SENDER"
"""Tool setting: the address that ``email.send`` sends from; SES has verified it."""


class SettingsError(SignalboxError):
    """An environment variable is missing or unreadable; the message names it."""


@dataclass(frozen=True, slots=True)
class Person:
    """Someone who may decide: what they are called, what they type to sign, where their mail goes."""

    name: str
    initials: str
    email: str


People = tuple[Person, ...]


@dataclass(frozen=True, slots=True)
class McpServer:
    """Where an MCP server is, and the tenant's secret that holds its bearer token; empty = it wants none."""

    url: str
    secret: str = ""

    @classmethod
    def named_in(cls, given: Any) -> dict[str, McpServer]:
        """Return servers by name, as JSON names them. Raises ValueError, which says of which what is wrong."""
        if not isinstance(given, dict):
            raise ValueError(f"no object of servers. {_SERVERS}")  # noqa: TRY004 - what is read is a value
        return {name: cls._read(name, one) for name, one in cast("dict[str, Any]", given).items()}

    @classmethod
    def told_in(cls, tool_settings: Mapping[str, str]) -> dict[str, McpServer]:
        """Return the servers that tool settings name. Raises ValueError, which names the setting."""
        try:
            return cls.named_in(json.loads(tool_settings.get(MCP_SERVERS) or "{}"))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"tool setting {MCP_SERVERS}: not JSON: {error}. {_SERVERS}") from None
        except ValueError as error:
            raise ValueError(f"tool setting {MCP_SERVERS}: {error}") from None

    @staticmethod
    def tell(servers: Mapping[str, McpServer]) -> dict[str, str]:
        """Return the tool settings from which ``told_in`` reads these servers; none for none."""
        told = {name: {"url": one.url, "secret": one.secret} for name, one in servers.items()}
        return {MCP_SERVERS: json.dumps(told, sort_keys=True)} if told else {}

    @classmethod
    def _read(cls, name: str, given: Any) -> McpServer:
        if not STEP_ID.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a server: use small letters, digits and `_`.")
        fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        texts = all(isinstance(value, str) for value in fields.values())
        if not texts or not fields.get("url") or fields.keys() - {"url", "secret"}:
            raise ValueError(f"server {name}: it has a `url` and perhaps a `secret`, both texts. {_SERVERS}")
        return cls(**fields).checked(name)

    def checked(self, name: str) -> McpServer:
        """Return the server called ``name``. Raises ValueError when its URL is one that no deployment may reach."""
        from shared.tools.guard import named  # noqa: PLC0415 - the guard knows these settings

        try:
            named(self.url)
        except PermanentFailure as fault:
            raise ValueError(f"server {name}: {fault}") from None
        return self


_SERVERS = 'Write {"crm": {"url": "https://...", "secret": "crm_token"}}.'


class Codec(NamedTuple):
    """How a value stands in an environment variable, where it is no plain text."""

    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _read_texts(text: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in json.loads(text).items()}


def _read_people(text: str) -> dict[str, People]:
    return {role: tuple(Person(**person) for person in people) for role, people in json.loads(text).items()}


def _write_people(roles: Mapping[str, People]) -> str:
    return json.dumps({role: [asdict(person) for person in people] for role, people in roles.items()}, sort_keys=True)


def _write_texts(value: Mapping[str, str]) -> str:
    return json.dumps(dict(value), sort_keys=True)


def _read_flag(text: str) -> bool:
    return text.lower() in {"1", "true", "yes"}


def _write_flag(value: object) -> str:
    return "true" if value else "false"


TEXT = Codec(str, str)
FLAG = Codec(_write_flag, _read_flag)
TEXTS = Codec(_write_texts, _read_texts)
PEOPLE = Codec(_write_people, _read_people)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What every function knows: its environment, the stores, how to log.

    ``service`` names the function in logs and traces. A function that needs nothing more gets its model by plain
    inheritance: a data class of its own would be compiled at every cold start, of every function.
    """

    environment: str = field(metadata={"variable": "SIGNALBOX_ENVIRONMENT"})
    runs_table: str
    definitions_table: str
    blobs_bucket: str
    service: str = field(metadata={"variable": "POWERTOOLS_SERVICE_NAME"})
    log_level: str = field(default="INFO", metadata={"variable": "POWERTOOLS_LOG_LEVEL"})
    tracing_disabled: bool = field(default=False, metadata={"variable": "POWERTOOLS_TRACE_DISABLED", "codec": FLAG})

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> Self:
        """Build the model from environment variables.

        Raises:
            SettingsError: a variable without default is missing or empty, or one cannot be read as its type.
        """
        given = {one.name: variables.get(_variable(one)) or None for one in fields(cls)}
        missing = [_variable(one) for one in fields(cls) if given[one.name] is None and _required(one)]
        if missing:
            names = ", ".join(missing)
            raise SettingsError(
                f"{cls.__name__}: environment variable {names} is missing. Deploy the stack again: it sets them.",
            )
        texts = {one.name: (one, given[one.name]) for one in fields(cls)}
        read: dict[str, Any] = {name: _decode(one, text) for name, (one, text) in texts.items() if text is not None}
        return cls(**read)

    def variables(self) -> dict[str, str]:
        """Return the environment variables from which ``read`` rebuilds this model; empty ones are left out."""
        texts = {_variable(one): _codec(one).write(getattr(self, one.name)) for one in fields(self)}
        return {name: text for name, text in texts.items() if text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attesting(Environment):
    """Those that write or read what steps return: ``seal_secret`` is the ARN of the secret that attests it."""

    seal_secret: Secret


class StartEnvironment(Environment):
    """``start`` creates a run and starts its machine: the version's ARN stands in the definitions table."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnvironment(Attesting):
    """``step`` calls models and tools.

    ``model_secret`` is the ARN of the secret with the model provider's key. ``models_url`` replaces the provider's own
    address, empty = that one. ``tool_settings`` are handed to tools by name (for example ``ERP_URL``).
    """

    model_secret: Secret
    models_url: str = ""
    tool_settings: Mapping[str, str] = field(default_factory=dict[str, str], metadata={"codec": TEXTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEnvironment(Attesting):
    """``control`` settles steps without calls, decides after failures, and starts the unwind machine."""

    unwind_machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEnvironment(Attesting):
    """``gate`` opens a gate and writes to its approvers.

    ``public_url`` is where the API answers, without a slash at its end; ``link_secret`` is the ARN of the secret that
    signs links; ``sender`` is the address mail comes from; ``approvers`` maps a role to its people.
    """

    public_url: str
    link_secret: Secret
    sender: str
    approvers: Mapping[str, People] = field(default_factory=dict[str, People], metadata={"codec": PEOPLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalsEnvironment(Attesting):
    """``approvals`` serves the approval page and takes its form."""

    link_secret: Secret
    approvers: Mapping[str, People] = field(default_factory=dict[str, People], metadata={"codec": PEOPLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEnvironment(Attesting):
    """``api`` answers HTTP requests; it starts runs through ``start_function``, a version's ARN.

    ``sweep_function`` is the ARN of the sweeper, which an admin may call between its times. ``schedules`` tells whether
    those of the workflows are deployed.
    """

    tenants_table: str
    start_function: str
    sweep_function: str
    unwind_machine: str
    schedules: bool = field(default=True, metadata={"codec": FLAG})


@dataclass(frozen=True, slots=True, kw_only=True)
class FinaliseEnvironment(Attesting):
    """``finalise`` compares executions that ended with their runs."""

    unwind_machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectEnvironment(Environment):
    """``project`` folds the runs table's stream into what lists show, and sends what dead writers have not sent.

    ``event_bus`` is the name of the bus on which it announces what operators may want to hear of.
    """

    unwind_machine: str
    event_bus: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerEnvironment(Environment):
    """``trigger`` starts runs by what schedules, rules and queues hand to it.

    ``dead_letters`` is the address of the queue that keeps what can never start a run, ``event_bus`` the name of the
    bus on which that is announced.
    """

    tenants_table: str
    dead_letters: str
    event_bus: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnvironment(Attesting):
    """``sweep`` goes round all open runs and mends what nobody else would; it prunes versions nobody needs.

    ``event_bus`` is the name of the bus on which it announces gates whose letters nobody writes.
    """

    tenants_table: str
    unwind_machine: str
    event_bus: str


class PublishEnvironment(Environment):
    """``publish`` publishes versions of machines and registers them."""

    __slots__ = ()


def _variable(one: Field[Any]) -> str:
    return one.metadata.get("variable", one.name.upper())


def _codec(one: Field[Any]) -> Codec:
    return cast("Codec", one.metadata.get("codec", TEXT))


def _required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _decode(one: Field[Any], text: str) -> Any:
    try:
        return _codec(one).read(text)
    except (ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"environment variable {_variable(one)}: cannot read {text!r}: {error}") from error
