"""JSON Schema of the workflow file, for editors: completion, descriptions and typing errors while one writes."""

from __future__ import annotations

from typing import Any, cast

from shared.definition.descriptions import DESCRIPTIONS
from shared.definition.models import Workflow
from shared.definition.units import spelled

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_EXAMPLE = {"workflow": "hello", "steps": {"greet": {"type": "transform", "set": {"text": "Hello ${ input.name }"}}}}
_STEP_EXAMPLES: dict[str, dict[str, Any]] = {
    "Agent": {"type": "agent", "model": "claude-haiku-4-5", "prompt": "Summarise: ${ input.text }"},
    "ToolStep": {"type": "tool", "tool": "lookup", "with": {"customer": "${ input.customer }"}, "risk": "read"},
    "Transform": {"type": "transform", "set": {"total": "${ input.net + input.tax }"}},
    "Router": {
        "type": "router",
        "strategy": "rules",
        "routes": [{"to": "pay", "when": "input.n < 5"}],
        "default": "ask",
    },
    "Gate": {"type": "human_gate", "approvers": ["finance"], "subject": "Pay ${ input.amount }?", "approves": "pay"},
    "SubWorkflow": {"type": "sub_workflow", "workflow": "onboarding", "with": {"name": "${ input.name }"}},
    "Map": {"type": "map", "over": "${ input.documents }", "as": "document", "steps": {}},
    "Loop": {"type": "loop", "until": "steps.review.output.ok", "max_iterations": 5, "steps": {}},
    "Wait": {"type": "wait", "for": "2h"},
}


def definition_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a workflow file. What it cannot say, ``signalbox validate`` does."""
    schema = Workflow.model_json_schema(by_alias=True)
    models: dict[str, Any] = schema["$defs"]
    for name, model in {**models, "Workflow": schema}.items():
        _describe(name, model)
    for name, example in _STEP_EXAMPLES.items():
        models[name]["examples"] = [example]
    properties = schema.pop("properties")
    return {
        "$schema": _DIALECT,
        "title": "Signalbox workflow",
        **schema,
        "properties": properties,
        "examples": [_EXAMPLE],
    }


def _describe(name: str, model: dict[str, Any]) -> None:
    """Put the table's words on every field, and drop what the generator guessed from names."""
    fields = cast("dict[str, dict[str, Any]]", model["properties"])
    told = {**DESCRIPTIONS["Step"], **DESCRIPTIONS[name]} if "type" in fields else DESCRIPTIONS[name]
    model.pop("title", None)
    model["description"] = " ".join(str(model["description"]).replace("``", "`").split())
    for field, properties in fields.items():
        properties.pop("title", None)
        properties["description"] = told[field]
        if "default" in properties:
            _default(properties, properties.pop("default"))
        if "patternProperties" in properties:
            _names_only(properties)


def _default(properties: dict[str, Any], value: Any) -> None:
    """Keep a default that a reader can use, as the file would say it."""
    if isinstance(value, float):
        properties["default"] = spelled(value)
    elif isinstance(value, bool | int | list | str) and value not in ("", []):
        properties["default"] = value


def _names_only(steps: dict[str, Any]) -> None:
    """Refuse steps whose names do not fit, and drop what is no JSON Schema."""
    steps["additionalProperties"] = False
    for step in steps["patternProperties"].values():
        step.pop("discriminator", None)
