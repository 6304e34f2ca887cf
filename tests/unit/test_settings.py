"""Environment models: what infrastructure writes is what a function reads."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from shared import settings
from shared.settings import Environment, GateEnvironment, Person, SettingsError, StartEnvironment, StepEnvironment

BASE: dict[str, Any] = {
    "environment": "local",
    "runs_table": "runs",
    "definitions_table": "definitions",
    "blobs_bucket": "blobs",
    "service": "signalbox-start",
}
SPECIFIC: dict[str, Any] = {
    "tenants_table": "tenants",
    "model_secret": "arn:aws:secretsmanager:eu-central-1:1:secret:model",
    "models_url": "http://127.0.0.1:1",
    "tool_settings": {"ERP_URL": "http://127.0.0.1:2"},
    "unwind_machine": "arn:aws:states:eu-central-1:1:stateMachine:unwind",
    "public_url": "http://localhost:1/api",
    "link_secret": "arn:aws:secretsmanager:eu-central-1:1:secret:link",
    "seal_secret": "arn:aws:secretsmanager:eu-central-1:1:secret:seal",
    "sender": "signalbox@example.com",
    "approvers": {"finance": (Person("Ann Example", "AE", "ann@example.com"),), "empty": ()},
    "event_bus": "signalbox-prod",
    "dead_letters": "https://sqs.eu-central-1.amazonaws.com/1/letters",
    "start_function": "arn:aws:lambda:eu-central-1:1:function:start:1",
    "sweep_function": "arn:aws:lambda:eu-central-1:1:function:sweep",
}
MODELS = [model for name, model in vars(settings).items() if isinstance(model, type) and name.endswith("Environment")]


def build(model: type[Environment], **changes: Any) -> Environment:
    wanted = {one.name for one in fields(model)}
    values = {name: value for name, value in {**BASE, **SPECIFIC}.items() if name in wanted}
    return model(**{**values, **changes})


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("changes", [{"tracing_disabled": True}, {}], ids=["untraced", "traced"])
def test_what_is_written_is_read_back(model: type[Environment], changes: dict[str, bool]):
    written = build(model, **changes, log_level="DEBUG")
    variables = written.variables()
    assert all(isinstance(value, str) and value for value in variables.values())
    assert model.read({**variables, "UNRELATED": "x"}) == written


def test_every_function_has_a_model():
    names = {"Start", "Step", "Control", "Gate", "Approvals", "Api", "Finalise", "Project", "Publish", "Sweep"}
    assert {model.__name__.removesuffix("Environment") for model in MODELS} - {""} == names | {"Trigger"}


def test_every_missing_variable_is_named_at_once():
    variables = build(GateEnvironment).variables()
    del variables["SENDER"]
    variables["LINK_SECRET"] = ""
    with pytest.raises(SettingsError, match=r"GateEnvironment: environment variable LINK_SECRET, SENDER is missing"):
        GateEnvironment.read(variables)


def test_optional_variables_have_defaults():
    variables = build(StepEnvironment).variables()
    for name in ("MODELS_URL", "TOOL_SETTINGS", "POWERTOOLS_LOG_LEVEL", "POWERTOOLS_TRACE_DISABLED"):
        del variables[name]
    read = StepEnvironment.read(variables)
    assert (read.models_url, read.tool_settings, read.log_level, read.tracing_disabled) == ("", {}, "INFO", False)


@pytest.mark.parametrize("text", ["{", "[]", '{"finance": [{"nom": "x"}]}', '{"finance": 1}'])
def test_an_unreadable_variable_is_named(text: str):
    variables = {**build(GateEnvironment).variables(), "APPROVERS": text}
    with pytest.raises(SettingsError, match="environment variable APPROVERS: cannot read"):
        GateEnvironment.read(variables)


def test_logging_is_configured_through_the_variables_powertools_reads():
    variables = build(StartEnvironment).variables()
    assert variables["POWERTOOLS_SERVICE_NAME"] == "signalbox-start"
    assert variables["POWERTOOLS_LOG_LEVEL"] == "INFO"
    assert variables["POWERTOOLS_TRACE_DISABLED"] == "false"


def test_models_are_frozen():
    with pytest.raises(FrozenInstanceError):
        build(StartEnvironment).environment = "prod"  # type: ignore[misc]
