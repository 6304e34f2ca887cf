"""What starts runs of a workflow, besides the API: the models of the file's ``triggers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, ConfigDict, StrictBool, WithJsonSchema

from shared.definition.cron import Cron, CronFault, normal
from shared.definition.fields import Identifier, Model, NonEmpty
from shared.definition.names import SECRET_NAME, TENANT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator


def _tenant(value: str) -> str:
    if TENANT_NAME.fullmatch(value) is None:
        raise ValueError("a tenant's name has small letters, digits and `-`, begins with a letter, at most 40 of them")
    return value


def _secret_name(value: str) -> str:
    if SECRET_NAME.fullmatch(value) is None or value.startswith("whsec_"):
        raise ValueError(
            "expected the name of a secret, never the secret itself: put it by "
            "`signalbox tenants secrets put TENANT NAME` and write that name here"
        )
    return value


def _cron(value: Any) -> Any:
    """Return the expression as it is deployed; what cannot be read is told at its place."""
    if not isinstance(value, str):
        return value
    try:
        Cron.parse(value)
        return normal(value)
    except CronFault as fault:
        raise ValueError(str(fault)) from None


def _pattern(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("expected a mapping such as {source: [app.uploads]}")  # noqa: TRY004 - pydantic collects these
    return cast("Any", value)


Tenant = Annotated[
    str, AfterValidator(_tenant), WithJsonSchema({"type": "string", "pattern": f"^{TENANT_NAME.pattern}$"})
]
SecretName = Annotated[
    str, AfterValidator(_secret_name), WithJsonSchema({"type": "string", "pattern": f"^{SECRET_NAME.pattern}$"})
]
CronText = Annotated[
    str, BeforeValidator(_cron), WithJsonSchema({"type": "string", "examples": ["0 2 * * ? *", "30 8 ? * MON-FRI *"]})
]
Pattern = Annotated[dict[str, Any], BeforeValidator(_pattern), WithJsonSchema({"type": "object", "minProperties": 1})]


class Start(Model):
    """What all triggers say. ``input`` is a template over ``trigger``; None = what its kind gives by itself."""

    id: Identifier
    tenant: Tenant = "default"
    input: Any = None


class Webhook(Start):
    """A signed HTTP request to ``/v1/hooks/<workflow>/<id>``. ``secret`` is the name of the tenant's secret."""

    scheme: Literal["standard-webhooks"] = "standard-webhooks"
    secret: SecretName


class Schedule(Start):
    """Certain times: six fields as AWS reads them, in an IANA time zone."""

    cron: CronText
    timezone: NonEmpty = "UTC"


class BusEvent(Start):
    """An event on the account's default bus that matches ``pattern``."""

    pattern: Pattern


class Queue(Start):
    """A message in the trigger's own queue. ``tenant_by_group``: its ``MessageGroupId`` is the tenant."""

    tenant_by_group: StrictBool = False


class Trigger(Model):
    """One entry of ``triggers``: exactly one of its fields."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    webhook: Webhook | None = None
    schedule: Schedule | None = None
    event: BusEvent | None = None
    queue: Queue | None = None

    def kinds(self) -> Iterator[tuple[Kind, Start]]:
        """Yield what the entry names; a good one names one."""
        for kind in KINDS:
            found = getattr(self, kind)
            if found is not None:
                yield kind, found


Kind = Literal["webhook", "schedule", "event", "queue"]
KINDS: tuple[Kind, ...] = ("webhook", "schedule", "event", "queue")
DEFAULT_INPUT: dict[Kind, Any] = {
    "webhook": "${ trigger.body }",
    "schedule": {},
    "event": "${ trigger.detail }",
    "queue": "${ trigger.body }",
}
"""The input of a trigger that says nothing."""
