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
    WithJsonSchema,
)

from shared.definition import units
from shared.definition.names import CEL_RESERVED, STEP_ID, WORKFLOW_NAME

LONGEST_PARKED = 364 * 86_400.0
"""Seconds that a step may wait for something outside: a Step Functions execution ends after a year."""

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


def _word_or_quorum(value: Any, words: tuple[str, str]) -> Any:
    """Accept either word and ``{quorum: n}``; the latter becomes the number."""
    if value in words:
        return value
    quorum = cast("dict[str, Any]", value) if isinstance(value, dict) else {"quorum": value}
    value = quorum.get("quorum") if len(quorum) == 1 else None
    if type(value) is int and value > 0:
        return value
    raise ValueError(f"expected `{words[0]}`, `{words[1]}` or `{{quorum: n}}` with n from 1")


def _join(value: Any) -> Any:
    return _word_or_quorum(value, ("all", "any"))


def _on_failure(value: Any) -> Any:
    return None if value is None else _word_or_quorum(value, ("fail_fast", "collect_all"))


def _over(value: Any) -> Any:
    if isinstance(value, list) or (isinstance(value, str) and value.strip()):
        return cast("Any", value)
    raise ValueError("expected a list, or `${ ... }` that yields one")


def _child_input(value: Any) -> Any:
    if isinstance(value, dict) or (isinstance(value, str) and value.strip()):
        return cast("Any", value)
    raise ValueError("expected a mapping, or `${ ... }` that yields an object")


def _wait_for(value: Any) -> Any:
    """Accept a duration, or one ``${ ... }`` that yields seconds."""
    if isinstance(value, str) and value.strip().startswith("${"):
        return value.strip()
    return units.seconds(value)


def _identifier(value: str) -> str:
    if STEP_ID.fullmatch(value) is None or value in CEL_RESERVED:
        raise ValueError("expected a name of small letters, digits and `_`, beginning with a letter and not reserved")
    return value


_DURATION = {"type": "string", "pattern": units.DURATION_PATTERN, "examples": ["500ms", "60s", "10m", "24h", "2d"]}
_TEMPLATE = {"type": "string", "pattern": r"\$\{"}
_QUORUM = {
    "type": "object",
    "properties": {"quorum": {"type": "integer", "minimum": 1}},
    "required": ["quorum"],
    "additionalProperties": False,
}
_TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
_CHANNEL = {"enum": ["email", "console"]}
# The shapes that editors see are those of the file, before short forms become one form.

StepId = Annotated[str, AfterValidator(_step_id), WithJsonSchema({"type": "string", "pattern": f"^{STEP_ID.pattern}$"})]
Seconds = Annotated[float, BeforeValidator(units.seconds), WithJsonSchema(_DURATION)]
Usd = Annotated[
    Decimal,
    BeforeValidator(units.usd),
    WithJsonSchema({"type": ["number", "string"], "minimum": 0, "examples": [0.05]}),
]
Expression = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
WorkflowName = Annotated[
    str, AfterValidator(_workflow_name), WithJsonSchema({"type": "string", "pattern": f"^{WORKFLOW_NAME.pattern}$"})
]
NonEmpty = Annotated[str, StringConstraints(min_length=1)]
Names = Annotated[
    tuple[NonEmpty, ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, _TEXTS]}),
]
Count = Annotated[StrictInt, Field(ge=1)]
Join = Annotated[
    Literal["all", "any"] | int,
    BeforeValidator(_join),
    WithJsonSchema({"anyOf": [{"enum": ["all", "any"]}, _QUORUM]}),
]
Pause = Annotated[float | str, BeforeValidator(_wait_for), WithJsonSchema({"anyOf": [_DURATION, _TEMPLATE]})]
Identifier = Annotated[
    str, AfterValidator(_identifier), WithJsonSchema({"type": "string", "pattern": f"^{STEP_ID.pattern}$"})
]
OnFailure = Annotated[
    Literal["fail_fast", "collect_all"] | int | None,
    BeforeValidator(_on_failure),
    WithJsonSchema({"anyOf": [{"enum": ["fail_fast", "collect_all"]}, _QUORUM]}),
]
Over = Annotated[str | list[Any], BeforeValidator(_over), WithJsonSchema({"anyOf": [_TEMPLATE, {"type": "array"}]})]
ChildInput = Annotated[
    dict[str, Any] | str, BeforeValidator(_child_input), WithJsonSchema({"anyOf": [{"type": "object"}, _TEMPLATE]})
]
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


_NEED = {
    "type": "object",
    "properties": {
        "step": {"type": "string", "description": "The step to wait for."},
        "when": {"type": "string", "description": "The edge is active only if this condition holds."},
    },
    "required": ["step"],
    "additionalProperties": False,
}
_SOURCE = {"anyOf": [{"type": "string"}, _NEED]}
Needs = Annotated[
    tuple[Need, ...],
    BeforeValidator(_as_needs),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _SOURCE}]}),
]


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
    needs: Needs = ()
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
    model: Annotated[
        tuple[NonEmpty, ...], BeforeValidator(_as_list), WithJsonSchema({"anyOf": [{"type": "string"}, _TEXTS]})
    ] = ()
    prompt: NonEmpty | None = None
    value: Expression | None = None


Channels = Annotated[
    tuple[Literal["email", "console"], ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [_CHANNEL, {"type": "array", "items": _CHANNEL, "minItems": 1}]}),
]


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
    channels: Channels = ("email", "console")


class Container(Step):
    """A step that holds a graph of its own. ``timeout`` is of the whole, in seconds."""

    timeout: Seconds = LONGEST_PARKED

    @property
    def apart(self) -> bool:
        """Whether it has a run of its own, which its time-out ends and its budget limits."""
        return "timeout" in self.model_fields_set or self.budget != Budget()


class Map(Container):
    """The graph in ``steps``, once for every item of the list ``over``.

    ``max_concurrency`` 0 is no limit of its own, None the default that the compiler fills in. So is None in
    ``on_failure``, where a number is a quorum. ``collect`` is each item's output; without it, the outputs of the
    body's last steps by name.
    """

    type: Literal["map"]
    over: Over
    name: Annotated[Identifier, Field(alias="as")] = "item"
    steps: Annotated[dict[StepId, AnyStep], Field(min_length=1)]
    max_concurrency: Annotated[StrictInt, Field(ge=0, le=1000)] | None = None
    on_failure: OnFailure = None
    collect: Any = None


class Loop(Container):
    """The graph in ``steps``, again and again until ``until`` holds; the step fails after ``max_iterations``."""

    type: Literal["loop"]
    steps: Annotated[dict[StepId, AnyStep], Field(min_length=1)]
    until: Expression
    max_iterations: Count
    collect: Any = None


class EventWait(Model):
    """An event that somebody reports to the run. ``timeout`` in seconds (24 hours); ``match`` sees ``event``."""

    name: NonEmpty
    match: Expression | None = None
    timeout: Seconds = 86_400.0


class Wait(Step):
    """Exactly one of: ``for`` seconds (or a template that yields them), ``until`` a time, or an ``event``."""

    type: Literal["wait"]
    duration: Annotated[Pause | None, Field(alias="for")] = None
    until: NonEmpty | None = None
    event: EventWait | None = None


class SubWorkflow(Step):
    """A run of another workflow. ``version`` None is the latest; ``timeout`` of the whole child, in seconds (364 days).

    ``arguments`` is the child's input: a mapping, or one ``${ ... }`` that yields an object.
    """

    type: Literal["sub_workflow"]
    workflow: WorkflowName
    version: Count | None = None
    arguments: Annotated[ChildInput, Field(alias="with", default_factory=dict[str, Any])]
    timeout: Seconds = LONGEST_PARKED


AnyStep = Annotated[
    Agent | ToolStep | Transform | Router | Gate | SubWorkflow | Map | Loop | Wait, Field(discriminator="type")
]
Map.model_rebuild()
Loop.model_rebuild()


class Workflow(Model):
    """One workflow file. ``input`` is the JSON Schema of a run's input; ``deadline`` is wall-clock, in seconds."""

    workflow: WorkflowName
    description: str = ""
    input: Schema = Field(default_factory=lambda: {"type": "object"})
    budget: Budget = Budget()
    deadline: Seconds | None = None
    max_parallel: Annotated[StrictInt, Field(ge=1, le=1000)] = 10
    on_error: OnError = "pause"
    steps: Annotated[dict[StepId, AnyStep], Field(min_length=1)]
