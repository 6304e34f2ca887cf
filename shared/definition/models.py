"""The workflow file as frozen, validated data. Unknown fields are refused; the loader says where and what instead."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
)

from shared.definition import units
from shared.definition.names import CEL_RESERVED, STEP_ID, WORKFLOW_NAME

Schema = dict[str, Any]
"""A JSON Schema (draft 2020-12), checked by the rules."""


def _step_id(value: str) -> str:
    if STEP_ID.fullmatch(value) is None:
        raise ValueError(
            "a step's name has small letters, digits and `_`, begins with a letter, and is at most 63 long"
        )
    if value in CEL_RESERVED:
        raise ValueError(f"`{value}` is a reserved word of the expression language; name the step differently")
    return value


def _workflow_name(value: str) -> str:
    if WORKFLOW_NAME.fullmatch(value) is None:
        raise ValueError("a workflow's name has small letters, digits, `_` and `-`, and begins with a letter")
    return value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_needs(value: Any) -> Any:
    items = cast("list[Any]", _as_list(value))
    if not isinstance(value, list | tuple | str):
        return value
    return [{"step": item} if isinstance(item, str) else item for item in items]


def _join(value: Any) -> Any:
    """Accept ``all``, ``any`` and ``{quorum: n}``; the latter becomes the number."""
    if value in ("all", "any"):
        return value
    quorum = cast("dict[str, Any]", value) if isinstance(value, dict) else {"quorum": value}
    value = quorum.get("quorum") if len(quorum) == 1 else None
    if type(value) is int and value > 0:
        return value
    raise ValueError("expected `all`, `any` or `{quorum: n}` with n from 1")


StepId = Annotated[str, AfterValidator(_step_id)]
Seconds = Annotated[float, BeforeValidator(units.seconds)]
Usd = Annotated[Decimal, BeforeValidator(units.usd)]
Expression = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
NonEmpty = Annotated[str, StringConstraints(min_length=1)]
Names = Annotated[tuple[NonEmpty, ...], BeforeValidator(_as_list), Field(min_length=1)]
Count = Annotated[StrictInt, Field(ge=1)]
Join = Annotated[Literal["all", "any"] | int, BeforeValidator(_join)]
OnError = Literal["fail", "pause", "continue"]
RetryClass = Literal["timeout", "rate_limit", "transient", "invalid_output"]


class Model(BaseModel):
    """Base of everything in a workflow file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Budget(Model):
    """Limits; a missing one is no limit of its own. ``usd`` in USD, ``active_time`` in seconds."""

    usd: Usd | None = None
    tokens: Count | None = None
    steps: Count | None = None
    active_time: Seconds | None = None


class Need(Model):
    """One incoming edge: the source step and, perhaps, a condition."""

    step: str
    when: Expression | None = None


class Retry(Model):
    """Retry policy; delays in seconds."""

    max_retries: Annotated[StrictInt, Field(ge=0, le=20)]
    backoff: Literal["exponential", "linear"] = "exponential"
    base_delay: Seconds = 2.0
    max_delay: Seconds = 60.0
    jitter: StrictBool = True
    on: tuple[RetryClass, ...] = ("timeout", "rate_limit", "transient", "invalid_output")


class Step(Model):
    """Fields that every step has. ``timeout`` is the time of one attempt in seconds."""

    description: str = ""
    needs: Annotated[tuple[Need, ...], BeforeValidator(_as_needs)] = ()
    when: Expression | None = None
    join: Join = "all"
    merge: Literal["by_step", "shallow", "deep", "list", "first"] = "by_step"
    timeout: Seconds = 60.0
    retry: Retry | None = None
    fallback: str | None = None
    on_error: OnError | None = None
    budget: Budget = Budget()
    output: Schema | None = None
    optional: StrictBool = False


class Agent(Step):
    """One request to a model. Without ``output`` the result is the model's text, with it JSON that fits."""

    type: Literal["agent"]
    model: Names
    portable: StrictBool = True
    system: NonEmpty | None = None
    prompt: NonEmpty
    max_tokens: Annotated[StrictInt, Field(ge=1, le=200_000)] = 1024
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None


class ToolCall(Model):
    """A tool with its arguments."""

    tool: NonEmpty
    arguments: Annotated[dict[str, Any], Field(alias="with", default_factory=dict[str, Any])]


class Reconcile(ToolCall):
    """How to learn whether an interrupted call took effect. ``conclusive_after`` in seconds.

    ``found`` is a condition on the probe's ``result``. A probe that finds nothing is believed only when
    ``conclusive_after`` has passed since the call began.
    """

    found: Expression
    conclusive_after: Seconds = 60.0


class ToolStep(Step):
    """One call of a tool. ``risk`` is the author's judgement and has no default."""

    type: Literal["tool"]
    tool: NonEmpty
    arguments: Annotated[dict[str, Any], Field(alias="with", default_factory=dict[str, Any])]
    risk: Literal["read", "reversible", "irreversible"]
    compensate: ToolCall | None = None
    reconcile: Reconcile | None = None


class Transform(Step):
    """Values computed from others, without any external call."""

    type: Literal["transform"]
    assign: Annotated[dict[str, Any], Field(alias="set", min_length=1)]


class Route(Model):
    """One target of a router, with what its strategy asks for."""

    to: str
    when: Expression | None = None
    above: float | None = None
    description: NonEmpty | None = None


class Router(Step):
    """A choice among routes by rules, by a model (``llm``) or by thresholds on one number (``score``)."""

    type: Literal["router"]
    strategy: Literal["rules", "llm", "score"]
    routes: Annotated[tuple[Route, ...], Field(min_length=1)]
    default: str | None = None
    model: Annotated[tuple[NonEmpty, ...], BeforeValidator(_as_list)] = ()
    prompt: NonEmpty | None = None
    value: Expression | None = None


class Gate(Step):
    """A decision by a person. ``timeout`` is how long the gate stays open, in seconds (24 hours)."""

    type: Literal["human_gate"]
    approves: str | None = None
    approvers: Names
    subject: NonEmpty
    show: Any = None
    timeout: Seconds = 86_400.0
    on_expiry: Literal["reject", "approve", "fail", "pause"] = "reject"
    not_initiator: StrictBool = False
    channels: Annotated[tuple[Literal["email", "console"], ...], Field(min_length=1)] = ("email", "console")


AnyStep = Annotated[Agent | ToolStep | Transform | Router | Gate, Field(discriminator="type")]


class Workflow(Model):
    """One workflow file. ``input`` is the JSON Schema of a run's input."""

    workflow: Annotated[str, AfterValidator(_workflow_name)]
    description: str = ""
    input: Schema = Field(default_factory=lambda: {"type": "object"})
    budget: Budget = Budget()
    max_parallel: Annotated[StrictInt, Field(ge=1, le=1000)] = 10
    on_error: OnError = "pause"
    steps: Annotated[dict[StepId, AnyStep], Field(min_length=1)]
