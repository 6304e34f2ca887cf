"""The workflow file as frozen, validated data. Unknown fields are refused; the loader says where and what instead."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, WithJsonSchema

from shared.definition.fields import (
    TEXTS,
    ChildInput,
    Count,
    Expression,
    Identifier,
    Join,
    Model,
    Names,
    NonEmpty,
    OnError,
    OnFailure,
    Over,
    Pause,
    RetryClass,
    Seconds,
    StepId,
    Usd,
    WorkflowName,
    as_list,
)
from shared.definition.triggers import Trigger  # noqa: TC001 - pydantic reads it
from shared.tools.mcp_tools import named

LONGEST_PARKED = 364 * 86_400.0
"""Seconds that a step may wait for something outside: a Step Functions execution ends after a year."""

Schema = dict[str, Any]
"""A JSON Schema (draft 2020-12), checked by the rules."""


def _as_needs(value: Any) -> Any:
    items = cast("list[Any]", as_list(value))
    if not isinstance(value, list | tuple | str):
        return value
    return [{"step": item} if isinstance(item, str) else item for item in items]


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


MAX_TURNS = 8
"""How often the model of an agent with tools is asked at most, where the file does not say it."""


class AgentTool(Model):
    """One tool that an agent's model may call. ``risk`` is the author's judgement, ``timeout`` (s) that of one attempt.

    Without ``description`` the model reads the function's docstring. The arguments are the model's to choose, and
    checked against the function's signature before anything is called. With ``mcp`` it is a tool of that MCP server,
    which says what it does and takes.
    """

    tool: NonEmpty
    mcp: Identifier | None = None
    risk: Literal["read", "reversible", "irreversible"]
    description: NonEmpty | None = None
    timeout: Seconds = 60.0
    compensate: ToolCall | None = None
    reconcile: Reconcile | None = None

    @property
    def name(self) -> str:
        """What it is called in records: a server's tool is no function that has the same name."""
        return named(self.mcp, self.tool) if self.mcp else self.tool


class ContextPolicy(Model):
    """What a turn's request holds of the turns before: the last ``keep_turns`` verbatim, older ones as a digest."""

    keep_turns: Annotated[StrictInt, Field(ge=1)]


class Agent(Step):
    """Asks a model. Without ``output`` the result is the model's text, with it JSON that fits.

    With ``tools`` the model is asked again with the results of the calls it proposes, ``max_turns`` times at most (8);
    ``timeout`` and ``retry`` are then those of one turn.
    """

    type: Literal["agent"]
    model: Names
    portable: StrictBool = True
    system: NonEmpty | None = None
    prompt: NonEmpty
    max_tokens: Annotated[StrictInt, Field(ge=1, le=200_000)] = 1024
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    tools: Annotated[tuple[AgentTool, ...], Field(min_length=1)] = ()
    max_turns: Count | None = None
    context: ContextPolicy | None = None


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
        tuple[NonEmpty, ...], BeforeValidator(as_list), WithJsonSchema({"anyOf": [{"type": "string"}, TEXTS]})
    ] = ()
    prompt: NonEmpty | None = None
    value: Expression | None = None


_CHANNEL = {"enum": ["email", "console"]}
Channels = Annotated[
    tuple[Literal["email", "console"], ...],
    BeforeValidator(as_list),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [_CHANNEL, {"type": "array", "items": _CHANNEL, "minItems": 1}]}),
]


class Tier(Model):
    """Who may decide a gate besides, ``after`` so many seconds from its opening."""

    after: Seconds
    to: Names


class Gate(Step):
    """A decision by a person. ``timeout`` is how long the gate stays open, in seconds (24 hours).

    ``remind_after`` (s) counts from the beginning of each tier: the ``approvers`` first, then those in ``escalate``.
    ``edit`` is the JSON Schema of changes to the arguments of the step that it ``approves``.
    """

    type: Literal["human_gate"]
    approves: str | None = None
    approvers: Names
    subject: NonEmpty
    show: Any = None
    edit: Schema | None = None
    quorum: Count = 1
    timeout: Seconds = 86_400.0
    remind_after: Seconds | None = None
    escalate: Annotated[tuple[Tier, ...], Field(min_length=1)] = ()
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
    triggers: tuple[Trigger, ...] = ()
    steps: Annotated[dict[StepId, AnyStep], Field(min_length=1)]
