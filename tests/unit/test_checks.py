import json
from pathlib import Path

import pytest
import yaml

from shared.definition.checks import RULES, check
from shared.definition.loader import load_file, load_text
from shared.definition.models import Agent, Budget, Gate, Reconcile, Retry, Route, Router, ToolStep, Transform, Workflow
from shared.tools.registry import Tool, load_tools

WORKFLOWS = Path(__file__).parents[2] / "workflows"
MODELS = frozenset({"claude-haiku-4-5", "claude-sonnet-4-5"})


def post(vendor: str, amount: float, note: str | None = None) -> dict[str, str]:
    return {"document": f"{vendor}{amount}{note}"}


def find(key: str) -> dict[str, int]:
    return {key: 1}


def untyped(a):
    return a


TOOLS = {one.__name__: Tool(one.__name__, one) for one in (post, find, untyped)}
HEAD = """workflow: demo
input: {type: object, required: [doc, n], properties: {doc: {type: string}, n: {type: number}}}
budget: {usd: 1, tokens: 5000, steps: 10, active_time: 5m}
steps:
"""


def findings(*steps, head=HEAD):
    text = head + "".join(f"  {step}\n" for step in steps)
    return check(load_text(text, "demo.yaml", None), TOOLS, MODELS)


def told(*steps, head=HEAD):
    return [(one.rule, one.line, one.message) for one in findings(*steps, head=head)]


def step(name, extra="", sets="x: 1"):
    return f"{name}: {{type: transform, set: {{{sets}}}{extra and ', ' + extra}}}"


def test_the_workflows_of_the_repository_have_no_findings():
    models = frozenset(json.loads((WORKFLOWS.parent / "shared/models/prices.json").read_text())["models"])
    files = sorted(WORKFLOWS.glob("*.yaml"))
    assert files
    for file in files:
        assert check(load_file(file), load_tools(WORKFLOWS / "tools"), models) == ()


def test_every_rule_says_what_it_wants():
    assert len(RULES) >= 25
    assert all(name.isidentifier() for name in RULES)


HERE = Path(__file__).parent
FAULTY = yaml.safe_load((HERE / "checks_faulty.yaml").read_text())
GOOD = yaml.safe_load((HERE / "checks_good.yaml").read_text())


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: f"{case['rule']}: {case['message']}")
def test_each_fault_is_found_alone(case):
    found = findings(*case["steps"].splitlines())
    assert [one.rule for one in found] == [case["rule"]]
    assert case["message"] in found[0].message
    assert found[0].file == "demo.yaml"
    assert found[0].line > 4


def test_every_rule_has_a_fault_that_only_it_finds():
    assert set(RULES) - {case["rule"] for case in FAULTY} == {"input_object"}


def test_the_input_is_an_object():
    assert told(step("a"), head="workflow: a\ninput: {type: string}\nsteps:\n") == [
        ("input_object", 2, "the input's schema must have `type: object`.")
    ]


@pytest.mark.parametrize("steps", GOOD)
def test_good_definitions_have_no_findings(steps):
    assert findings(*steps.splitlines()) == ()


def test_a_fallback_sees_what_every_step_that_uses_it_waits_for():
    users = [step("a"), step("b", "needs: a, fallback: f"), step("c", "fallback: f")]
    template = step("f", sets='x: "${ steps.a.output.x }"')
    assert [rule for rule, _, _ in told(*users[:2], template)] == []
    assert [rule for rule, _, _ in told(*users, template)] == ["expression_names"]


def test_two_cycles_are_two_findings_and_what_waits_for_them_is_none():
    steps = [step("a", "needs: b"), step("b", "needs: a"), step("c", "needs: d"), step("d", "needs: c")]
    assert [rule for rule, _, _ in told(*steps, step("e", "needs: [a, c]"))] == ["cycle", "cycle"]


def test_columns_point_into_expressions_wherever_they_stand(tmp_path):
    (tmp_path / "p.md").write_text("one\ntwo ${ input.nn }\n")
    text = HEAD + (
        "  a: {type: agent, model: claude-haiku-4-5, prompt: 'file:p.md'}\n"
        "  b:\n    type: transform\n    set:\n      x: |\n        one\n        two ${ input.mm }\n"
        "    when: >-\n      input.n > 1 &&\n      input.doc > 1\n"
    )
    found = check(load_text(text, "demo.yaml", tmp_path), TOOLS, MODELS)
    assert [(Path(one.file).name, one.line, one.column) for one in found] == [
        ("demo.yaml", 11, 21),
        ("demo.yaml", 12, 5),
        ("p.md", 2, 13),
    ]


def test_ten_faults_are_ten_findings():
    steps = [
        "a: {type: agent, model: nobody, prompt: '${ input.q }', output: {type: strin}, timeout: 6m, fallback: zz}",
        "b: {type: tool, tool: nothing, risk: reversible, needs: c, retry: {max_retries: 3}}",
        "c: {type: tool, tool: post, with: {vendor: 1}, needs: b, risk: irreversible}",
    ]
    rules = {rule for rule, _, _ in told(*steps)}
    assert len(told(*steps)) >= 10
    assert {"unknown_model", "schema", "timeout_budget", "unknown_tool", "cycle", "irreversible_gate"} <= rules


def test_the_examples_of_the_reference_have_no_findings():
    page = (WORKFLOWS / "README.md").read_text()
    examples = [block.split("```")[0] for block in page.split("```yaml\n")[1:]]
    assert examples
    for example in examples:
        assert check(load_text(example, "README.md", WORKFLOWS), TOOLS, MODELS) == ()


def test_the_reference_names_every_field():
    page = (WORKFLOWS / "README.md").read_text()
    kinds = (Workflow, Agent, ToolStep, Transform, Router, Route, Gate, Retry, Reconcile, Budget)
    for kind in kinds:
        for name, field in kind.model_fields.items():
            assert f"{field.alias or name}" in page


WRONG_SCHEMAS = [
    "{properties: 3}",
    "{properties: [a]}",
    "{properties: {x: 3}}",
    "{properties: {x: {}}, required: 5}",
    "{properties: {x: {}}, required: [1]}",
    "{type: [string, 3]}",
    "{type: 3}",
    "{anyOf: 3}",
    "{anyOf: [3]}",
    "{items: 3, type: array}",
    "{$ref: 5}",
    "{enum: 3}",
    "{$defs: 3, $ref: '#/$defs/x'}",
    "{$ref: '#'}",
    "{$defs: {a: {$ref: '#/$defs/a'}}, $ref: '#/$defs/a'}",
    "{properties: {x: true}, type: object}",
    "{type: object, properties: {a_b: {type: object}, aB: {type: object}}}",
    "{anyOf: [{type: object}, {type: 'null'}]}",
    "{type: array, items: {type: array, items: {anyOf: [{type: string}, {type: integer}]}}}",
]


@pytest.mark.parametrize("schema", WRONG_SCHEMAS)
def test_no_schema_breaks_a_check(schema):
    used = "'${ steps.a.output }', y: '${ steps.a.output.x.y }'"
    agent = f"a: {{type: agent, model: claude-haiku-4-5, prompt: p, fallback: f, output: {schema}}}"
    call = "with: {vendor: '${ steps.a.output }'}"
    tool = f"t: {{type: tool, tool: post, needs: a, risk: read, output: {schema}, {call}}}"
    steps = [agent, tool, step("f", f"output: {schema}"), step("b", "needs: a", f"x: {used}")]
    assert all(one.line > 4 and one.message for one in findings(*steps))
    head = f"workflow: demo\ninput: {schema}\nsteps:\n"
    assert isinstance(findings(step("a", sets="x: '${ input.x }'"), head=head), tuple)
