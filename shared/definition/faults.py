"""pydantic's complaints about a workflow file, as findings with position and remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, get_args

from pydantic import BaseModel, ValidationError

from shared.definition.models import (
    Agent,
    Gate,
    Loop,
    Map,
    Router,
    Step,
    SubWorkflow,
    ToolStep,
    Transform,
    Wait,
    Workflow,
)
from shared.definition.names import STEP_TYPES, listed, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.yaml_tree import Path

Fault = tuple["Path", str, str]
"""Where, what is wrong, what to do."""

_STEP_MODELS: dict[str, type[Step]] = {
    "agent": Agent,
    "tool": ToolStep,
    "transform": Transform,
    "router": Router,
    "human_gate": Gate,
    "sub_workflow": SubWorkflow,
    "map": Map,
    "loop": Loop,
    "wait": Wait,
}
_ENDLESS = "a loop without `max_iterations` might never end", "Add `max_iterations: n`, the most that can make sense."


def validate(data: Any, most: int) -> tuple[Workflow | None, list[Fault], int]:
    """Return the workflow, or the first ``most`` faults of ``data`` and the number of the others."""
    if not isinstance(data, dict):
        return None, [((), "expected a mapping with `workflow` and `steps`", "")], 0
    try:
        return Workflow.model_validate(data), [], 0
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
        found = [_fault(cast("dict[str, Any]", detail), data) for detail in details[:most]]
        return None, found, len(details) - len(found)


def step_path(path: Path) -> Path:
    """Return the path of the innermost step that a path leads into; empty when it leads into none."""
    end = 0
    while path[end : end + 1] == ("steps",) and len(path) > end + 1:
        end += 2
    return path[:end]


def _fault(detail: dict[str, Any], data: Any) -> Fault:
    path, missing = _walk(detail["loc"], data)
    kind: str = detail["type"]
    name = str(detail["loc"][-1]) if detail["loc"] else ""
    if kind == "extra_forbidden":
        return _unknown_field(path, data)
    if kind == "missing":
        hint = _sibling_hint(name, path, data)
        return (path, *_ENDLESS) if name == "max_iterations" and "Add" in hint else (path, f"`{name}` is missing", hint)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_type(path, detail, data)
    told = _expected(kind, detail)
    return path, told if missing or not path else f"`{path[-1]}`: {told}", ""


def _walk(loc: tuple[str | int, ...], data: Any) -> tuple[Path, bool]:
    """Follow pydantic's location through the data, leaving out the marks it inserts for union members and keys."""
    path: list[str | int] = []
    complete = True
    for element in _without_types(loc):
        known = isinstance(data, dict) and element in data
        if known or (isinstance(data, list) and isinstance(element, int) and element < len(cast("list[Any]", data))):
            path.append(element)
            data = cast("Any", data)[element]
            complete = True
        else:
            complete = False
    return tuple(path), not complete


def _without_types(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Leave out the type that pydantic puts behind every step's name; it may also be the name of a field."""
    if loc[:1] != ("steps",):
        return loc
    return (*loc[:2], *_without_types(loc[3:]))


def _unknown_field(path: Path, data: Any) -> Fault:
    name = str(path[-1])
    model = _model_at(path[:-1], data)
    if model is None:
        return path, f"`{name}` is not a field here", ""
    fields = list(_fields(model))
    return path, f"unknown field `{name}`", nearest(name, fields) or f"Fields here: {listed(fields)}."


def _unknown_type(path: Path, detail: dict[str, Any], data: Any) -> Fault:
    available = f"Available: {listed(STEP_TYPES)}."
    if detail["type"] == "union_tag_not_found":
        return path, "the step has no `type`", available
    tag = str(detail["ctx"]["tag"])
    at = (*path, "type") if isinstance(data, dict) else path
    return at, f"unknown step type `{tag}`", f"{nearest(tag, STEP_TYPES)} {available}".strip()


def _sibling_hint(name: str, path: Path, data: Any) -> str:
    """Name a present but misspelt field that the missing one may hide behind."""
    for element in path:
        data = data[element]
    model = _model_at(path, data)
    known = set(_fields(model)) if model else set[str]()
    present = [key for key in cast("dict[str, Any]", data) if key not in known] if isinstance(data, dict) else []
    close = nearest(name, present)
    return close.replace("Did you mean", "Is it misspelt as") if close else f"Add `{name}: ...`."


def _expected(kind: str, detail: dict[str, Any]) -> str:
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "literal_error":
        expected = str(detail["ctx"]["expected"])
        options = [option.strip("' ") for option in expected.replace(" or ", ", ").split(",")]
        remedy = nearest(str(detail["input"]), options)
        return f"expected one of {listed(options)}, not `{detail['input']}`. {remedy}".strip()
    wanted = {
        "string_type": "expected text",
        "bool_type": "expected true or false",
        "int_type": "expected a whole number",
        "dict_type": "expected a mapping",
        "tuple_type": "expected a list",
        "model_type": "expected a mapping",
        "model_attributes_type": "expected a mapping",
        "string_too_short": "must not be empty",
        "too_short": "must not be empty",
    }
    return wanted.get(kind) or str(detail["msg"])[:1].lower() + str(detail["msg"])[1:]


def _model_at(path: Path, data: Any) -> type[BaseModel] | None:
    """Return the model that describes the mapping at ``path``."""
    model: type[BaseModel] | None = Workflow
    step = step_path(path)
    if step:
        model = _step_model(step, data)
    for element in path[len(step) :]:
        if isinstance(element, int) or model is None:
            continue
        field = _fields(model).get(str(element))
        model = next(_models_in(field.annotation), None) if field else None
    return model


def _step_model(path: Path, data: Any) -> type[Step] | None:
    try:
        for element in path:
            data = data[element]
        return _STEP_MODELS.get(data["type"])
    except (KeyError, TypeError):
        return None


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
