"""What the fields of a workflow file may hold: names, durations, money, short forms that become one form."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StringConstraints,
    WithJsonSchema,
)

from shared.definition import units
from shared.definition.names import CEL_RESERVED, STEP_ID, WORKFLOW_NAME


class Model(BaseModel):
    """Base of everything in a workflow file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


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


def as_list(value: Any) -> Any:
    """Return one text as a list of it; everything else as it is."""
    return [value] if isinstance(value, str) else value


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
TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
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
    BeforeValidator(as_list),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, TEXTS]}),
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
