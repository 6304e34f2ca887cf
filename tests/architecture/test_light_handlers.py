"""Importing a handler loads nothing heavy: a cold start pays for every module."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from shared import settings
from tests.architecture.sources import ROOT, python_files

HEAVY = ("pydantic", "anthropic", "jsonschema", "jinja2", "aws_cdk", "cel_expr_python", "google.protobuf", "moto")
NAMES = [path.parent.name for path in python_files("functions") if path.name == "handler.py"]


def loaded_by(module: str) -> set[str]:
    code = f"import sys, json, {module}; print(json.dumps(sorted(sys.modules)))"
    # No environment: a handler that reads it while being imported fails here.
    environment = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-2000:]
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", NAMES)
def test_importing_a_handler_is_light(name: str):
    modules = loaded_by(f"functions.{name}.handler")
    # The API's router is Powertools', which brings its own; what is ours stays light there too.
    assert not modules & set(HEAVY)


@pytest.mark.parametrize("module", ["shared.settings", "shared.ports", "shared.manifest", "shared.publishing.rules"])
def test_what_all_handlers_share_is_light(module: str):
    modules = loaded_by(module)
    assert not modules & {*HEAVY, "boto3", "botocore", "yaml"}


def test_a_workflow_that_names_no_built_in_tool_loads_none():
    modules = loaded_by("shared.compiler; shared.compiler.compile_file('workflows/invoice.yaml')")
    rooms = {name for name in modules if name.startswith("shared.tools.builtin.")}
    assert not (modules & {"boto3", "botocore", "httpcore2"}) | rooms


def test_every_function_that_infra_deploys_has_a_handler():
    models = {name.removesuffix("Environment").lower() for name in vars(settings) if name.endswith("Environment")}
    assert models - {""} == set(NAMES)
