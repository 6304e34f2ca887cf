"""What holds of every workflow of the library."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml
from shelf import NAMES, WORKFLOWS, compiled
from statelint.linter import Linter

LIBRARY = [name for name in NAMES if name != "invoice"]
SAMPLES = sorted(path.relative_to(WORKFLOWS / "samples") for path in (WORKFLOWS / "samples").glob("*/*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_it_compiles_without_errors_or_warnings(name):
    assert compiled(name).findings == ()
    assert compiled(name).name == name


@pytest.mark.parametrize("path", SAMPLES, ids=str)
def test_its_samples_fit_its_input(path):
    data = json.loads((WORKFLOWS / "samples" / path).read_text())
    jsonschema.validate(data, dict(compiled(path.parts[0]).manifest.input))


@pytest.mark.parametrize("name", LIBRARY)
def test_it_has_samples_a_rehearsal_and_a_comment_that_names_a_sample(name):
    text = (WORKFLOWS / f"{name}.yaml").read_text()
    command = next(line for line in text.splitlines() if line.startswith("# Try it: "))
    file, given = command.split()[5], command.split("@")[1]
    assert file == f"workflows/{name}.yaml"
    assert (WORKFLOWS.parent / given).is_file()
    played = {
        yaml.safe_load(path.read_text())["workflow"] for path in (WORKFLOWS / "fixtures/rehearsal").glob("*.yaml")
    }
    assert name in played or name == "procurement"


@pytest.mark.parametrize("name", LIBRARY)
def test_its_prompts_are_all_used(name):
    text = (WORKFLOWS / f"{name}.yaml").read_text()
    for path in (WORKFLOWS / "prompts").glob(f"{name}-*.md"):
        assert f"file:prompts/{path.name}" in text


@pytest.mark.parametrize("name", NAMES)
def test_statelint_accepts_its_machine(name):
    assert Linter.validate(json.loads(json.dumps(compiled(name).asl))) == []
