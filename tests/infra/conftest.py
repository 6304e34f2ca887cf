"""The app synthesised once a session and environment, without packaging: templates are what is looked at."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# jsii starts the first node it finds: the one that was set up, not an older one of the system.
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks, ServerlessChecks

from app import build
from infra.settings import settings_for
from infra.stacks.workflows import Definition
from shared.manifest import Trigger

if TYPE_CHECKING:
    from collections.abc import Callable

TRIGGERS = (
    Trigger("webhook", "erp", "acme", "${ trigger.body }", {"scheme": "standard-webhooks", "secret": "erp_webhook"}),
    Trigger("schedule", "nightly", "default", {}, {"cron": "0 2 * * ? *", "timezone": "Europe/Berlin"}),
    Trigger("event", "uploaded", "default", {}, {"pattern": {"source": ["app.uploads"], "detail": {"a": [1]}}}),
    Trigger("queue", "in_take", "default", {}, {}),
)
DEFINITION = Definition(
    name="invoice",
    source="workflow: invoice\n",
    asl=json.dumps(
        {
            "StartAt": "extract",
            "States": {
                "extract": {
                    "Type": "Task",
                    "Resource": "arn:aws:states:::lambda:invoke",
                    "Parameters": {"FunctionName": "${StepFunction}"},
                    "End": True,
                },
            },
        },
    ),
    manifest='{"hash":"abc"}',
    hash="abc",
    triggers=TRIGGERS,
)
TOOLS = {"ERP_URL": "http://127.0.0.1:9"}
# AWS's own switch for "do not package": asset digests stay what they are.
NO_BUNDLING: dict[str, list[str]] = {"aws:cdk:bundling-stacks": []}


@dataclass(frozen=True)
class Resource:
    """One resource of a template."""

    id: str
    type: str
    body: dict[str, Any]

    @property
    def properties(self) -> dict[str, Any]:
        return self.body.get("Properties", {})


@dataclass(frozen=True)
class Synthesised:
    """One environment's templates by stack (``data``, ``engine``, ...) and the folder they stand in."""

    folder: Path
    templates: dict[str, dict[str, Any]]

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        bodies = ((id_, body) for each in self.templates.values() for id_, body in each["Resources"].items())
        return tuple(Resource(id_, body["Type"], body) for id_, body in bodies)

    def of(self, type_: str, prefix: str = "") -> list[Resource]:
        found = [one for one in self.resources if one.type == type_ and one.id.startswith(prefix)]
        assert found, f"no {type_} {prefix}"
        return found

    def one(self, type_: str, prefix: str = "") -> Resource:
        (found,) = self.of(type_, prefix)
        return found


def synthesise(
    name: str, folder: Path, *, nag: bool = False, triggers: tuple[Trigger, ...] = TRIGGERS, **context: Any
) -> Synthesised:
    app = App(outdir=str(folder), context=NO_BUNDLING, analytics_reporting=False)
    overrides = {"tool_settings": TOOLS, **context}
    build(app, settings=settings_for(name, overrides), definitions=[replace(DEFINITION, triggers=triggers)])
    if nag:
        Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
    # With plugins, findings end synthesis with an error once everything, the report too, is written.
    with contextlib.suppress(RuntimeError) if nag else contextlib.nullcontext():
        app.synth()
    templates = {
        path.name.split(".")[0].removeprefix(f"signalbox-{name}-"): json.loads(path.read_text())
        for path in folder.glob("*.template.json")
    }
    return Synthesised(folder, templates)


@pytest.fixture(scope="session")
def prod(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    return synthesise("prod", tmp_path_factory.mktemp("prod"))


@pytest.fixture(scope="session")
def nagged(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    return synthesise("prod", tmp_path_factory.mktemp("nagged"), nag=True)


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    url = "http://127.0.0.1:4566/_aws/execute-api/{api}"
    return synthesise("local", tmp_path_factory.mktemp("local"), public_url=url, models_url="http://127.0.0.1:8")


@pytest.fixture
def app_of(tmp_path: Path) -> Callable[..., Synthesised]:
    """Return what synthesises an environment with other values in its context."""
    return lambda name, **context: synthesise(name, tmp_path, **context)
