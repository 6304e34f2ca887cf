import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from shared.definition.descriptions import DESCRIPTIONS
from shared.definition.loader import load_text
from shared.definition.schema import definition_schema
from shared.definition.yaml_tree import read
from shared.errors import DefinitionError

HERE = Path(__file__).parent
WORKFLOWS = HERE.parents[1] / "workflows"
SCHEMA = definition_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
HEAD = "workflow: demo\nsteps:\n"
GOOD = [
    HEAD + "".join(f"  {line}\n" for line in case.splitlines())
    for case in yaml.safe_load((HERE / "checks_good.yaml").read_text())
]


def complaints(text):
    return [error.message for error in VALIDATOR.iter_errors(read(text, "x").data)]


def test_it_is_a_schema_that_json_can_hold():
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert definition_schema() == SCHEMA


@pytest.mark.parametrize("file", sorted(WORKFLOWS.glob("*.yaml")), ids=lambda file: file.name)
def test_it_accepts_the_workflow_library(file):
    assert complaints(file.read_text()) == []


@pytest.mark.parametrize("text", GOOD)
def test_it_accepts_every_good_definition(text):
    assert complaints(text) == []


def test_it_accepts_the_examples_of_the_reference():
    blocks = (WORKFLOWS / "README.md").read_text().split("```yaml\n")[1:]
    examples = [block.split("```")[0] for block in blocks]
    assert examples
    for example in examples:
        assert complaints(example) == []


@pytest.mark.parametrize(
    "text",
    [
        "steps: {a: {type: transform, set: {x: 1}}}",
        "workflow: demo",
        "workflow: Demo\nsteps: {a: {type: transform, set: {x: 1}}}",
        "workflow: demo\nstep: {}\nsteps: {a: {type: transform, set: {x: 1}}}",
        "workflow: demo\ndeadline: 2\nsteps: {a: {type: transform, set: {x: 1}}}",
        HEAD + "  A: {type: transform, set: {x: 1}}",
        HEAD + "  a: {type: trasnform, set: {x: 1}}",
        HEAD + "  a: {type: transform, sett: {x: 1}}",
        HEAD + "  a: {type: transform, set: {x: 1}, neds: b}",
        HEAD + "  a: {type: transform, set: {x: 1}, needs: [{step: b, wen: x}]}",
        HEAD + "  a: {type: transform, set: {x: 1}, join: most}",
        HEAD + "  a: {type: tool, tool: x}",
        HEAD + "  a: {type: tool, tool: x, risk: none}",
        HEAD + "  w: {type: wait, for: 2}",
        HEAD + "  a: {type: transform, set: {x: 1}}\ntriggers: [{hook: {id: a}}]",
        HEAD + "  a: {type: transform, set: {x: 1}}\ntriggers: [{webhook: {id: a}}]",
        HEAD + "  a: {type: transform, set: {x: 1}}\ntriggers: [{queue: {id: A}}]",
        HEAD + "  a: {type: transform, set: {x: 1}}\ntriggers: [{queue: {id: a, tenant: 'A B'}}]",
        HEAD + "  m: {type: map, over: [1], on_failure: {quorum: 0}, steps: {a: {type: transform, set: {x: 1}}}}",
        HEAD + "  m: {type: map, over: [1], steps: {}}",
        HEAD + "  m: {type: map, over: [1], steps: {a: {type: transform, sett: {x: 1}}}}",
        HEAD + "  l: {type: loop, until: x, steps: {a: {type: transform, set: {x: 1}}}}",
        HEAD
        + "  l: {type: loop, until: x, max_iterations: 2, steps: {m: {type: map, over: x, steps: {a: {type: x}}}}}",
    ],
)
def test_it_refuses_what_the_loader_refuses(text):
    assert complaints(text)
    with pytest.raises(DefinitionError):
        load_text(text, "x", None)


def fields(schema):
    yield from schema["properties"].items()
    for model in schema["$defs"].values():
        yield from model["properties"].items()


def test_every_field_is_described_and_every_step_has_an_example():
    found = list(fields(SCHEMA))
    assert len(found) > 120
    assert all(len(field["description"]) > 10 for _, field in found)
    steps = [model for model in SCHEMA["$defs"].values() if "const" in model["properties"].get("type", {})]
    assert len(steps) == 9
    assert all(model["examples"] for model in steps)


def test_no_description_is_left_over():
    names = {"Workflow": SCHEMA, **SCHEMA["$defs"]}
    for model, told in DESCRIPTIONS.items():
        known = names[model]["properties"] if model != "Step" else names["Agent"]["properties"]
        assert set(told) <= set(known)


def test_defaults_are_written_as_in_the_file():
    gate = SCHEMA["$defs"]["Gate"]["properties"]
    assert (gate["timeout"]["default"], gate["on_expiry"]["default"]) == ("1d", "reject")
    assert SCHEMA["$defs"]["Retry"]["properties"]["base_delay"]["default"] == "2s"
