import json
import time
from pathlib import Path

import pytest
import yaml

from shared.definition.checks import RULES, check
from shared.definition.loader import load_file, load_text
from shared.definition.models import (
    Agent,
    AgentTool,
    Budget,
    ContextPolicy,
    EventWait,
    Gate,
    Loop,
    Map,
    Reconcile,
    Retry,
    Route,
    Router,
    SubWorkflow,
    Tier,
    ToolStep,
    Transform,
    Wait,
    Workflow,
)
from shared.definition.neighbours import Neighbour, neighbours
from shared.errors import DefinitionError
from shared.tools.registry import Tool, load_tools

WORKFLOWS = Path(__file__).parents[2] / "workflows"
MODELS = frozenset({"claude-haiku-4-5", "claude-sonnet-4-5"})


def post(vendor: str, amount: float, note: str | None = None) -> dict[str, str]:
    return {"document": f"{vendor}{amount}{note}"}


def find(key: str) -> dict[str, int]:
    return {key: 1}


def count(key: str) -> int:
    return len(key)


def untyped(a):
    return a


TOOLS = {one.__name__: Tool(one.__name__, one) for one in (post, find, count, untyped)}
OTHERS = {
    "onboard": Neighbour({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}),
    "caller": Neighbour(starts=frozenset({"demo"})),
}
HEAD = """workflow: demo
input: {type: object, required: [doc, n], properties: {doc: {type: string}, n: {type: number}}}
budget: {usd: 1, tokens: 5000, steps: 10, active_time: 5m}
steps:
"""


def findings(*steps, head=HEAD, tail=""):
    text = head + "".join(f"  {step}\n" for step in steps) + tail
    return check(load_text(text, "demo.yaml", None), TOOLS, MODELS, OTHERS)


def told(*steps, head=HEAD):
    return [(one.rule, one.line, one.message) for one in findings(*steps, head=head)]


def step(name, extra="", sets="x: 1"):
    return f"{name}: {{type: transform, set: {{{sets}}}{extra and ', ' + extra}}}"


def test_the_workflows_of_the_repository_have_no_findings():
    models = frozenset(json.loads((WORKFLOWS.parent / "shared/models/prices.json").read_text())["models"])
    files = sorted(WORKFLOWS.glob("*.yaml"))
    assert files
    for file in files:
        known = neighbours(WORKFLOWS)
        assert check(load_file(file), load_tools(WORKFLOWS / "tools"), models, known) == ()


def test_every_rule_says_what_it_wants():
    assert len(RULES) >= 25
    assert all(name.isidentifier() for name in RULES)


HERE = Path(__file__).parent
FAULTY = yaml.safe_load((HERE / "checks_faulty.yaml").read_text())
GOOD = yaml.safe_load((HERE / "checks_good.yaml").read_text())


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: f"{case['rule']}: {case['message']}")
def test_each_fault_is_found_alone(case):
    given = case.get("steps", "a: {type: transform, set: {x: 1}}")
    steps = given.replace("LONG", " || input.n > 2.0" * 250).replace("HUGE", "h" * 70_000)
    triggers = [f"  - {one}" for one in case.get("triggers", "").splitlines()]
    found = findings(
        *steps.splitlines(), head=case.get("head", HEAD), tail="\n".join(["triggers:", *triggers] if triggers else [])
    )
    assert [one.rule for one in found] == [case["rule"]]
    assert case.get("remedy", "") in found[0].remedy
    assert case["message"] in found[0].message
    assert found[0].file == "demo.yaml"
    assert found[0].line > (4 if found[0].severity == "error" else 2)


def test_every_rule_has_a_fault_that_only_it_finds():
    assert set(RULES) - {case["rule"] for case in FAULTY} == {"input_object", "size"}


def test_the_input_is_an_object():
    assert told(step("a"), head="workflow: a\ninput: {type: string}\nsteps:\n") == [
        ("input_object", 2, "the input's schema must have `type: object`.")
    ]


def test_an_mcp_server_is_one_that_the_deployment_names():
    steps = ["a: {type: tool, tool: mcp.call, risk: read, with: {server: crn, tool: find}}"]
    steps += ["b: {type: agent, model: claude-haiku-4-5, prompt: p, tools: [{mcp: erp, tool: t, risk: read}]}"]
    loaded = load_text(
        HEAD.replace("steps: 10", "steps: 100") + "".join(f"  {one}\n" for one in steps), "demo.yaml", None
    )
    found = check(loaded, TOOLS, MODELS, OTHERS, frozenset({"crm"}))
    assert [(one.rule, one.line) for one in found] == [("mcp_server", 5), ("mcp_server", 6)]
    assert "Did you mean `crm`?" in found[0].remedy
    assert check(loaded, TOOLS, MODELS, OTHERS) == ()


@pytest.mark.parametrize("steps", GOOD)
def test_good_definitions_have_no_findings(steps):
    assert findings(*steps.splitlines()) == ()


def test_a_fallback_sees_what_every_step_that_uses_it_waits_for():
    users = [step("a"), step("b", "needs: a, fallback: f"), step("c", "fallback: f")]
    template = step("f", sets='x: "${ steps.a.output.x }"')
    assert [rule for rule, _, _ in told(*users[:2], template)] == []
    assert [rule for rule, _, _ in told(*users, template)] == ["expression_names"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "the output of `f` does not fit: string is given where object is expected."),
        (", output: {type: object, required: [route], properties: {route: {enum: [b, c]}}}", None),
    ],
)
def test_what_stands_in_for_a_router_names_its_route(output, message):
    router = "a: {type: router, strategy: rules, routes: [{to: b, when: 'input.n > 1'}], default: c, fallback: f}"
    spare = f"f: {{type: agent, model: claude-haiku-4-5, prompt: Which{output}}}"
    found = [
        text for rule, _, text in told(router, step("b", "needs: a"), step("c", "needs: a"), spare) if "fallb" in rule
    ]
    assert found == ([message] if message else [])


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


def test_twenty_faults_are_twenty_findings():
    text = (HERE / "twenty_faults.yaml").read_text()
    found = check(load_text(text, "demo.yaml", None, strict=False), TOOLS, MODELS, OTHERS)
    wanted = [number for number, line in enumerate(text.splitlines(), 1) if line.rstrip()[-1:] and " # " in line]
    assert len(wanted) == 20
    assert [one.line for one in found] == wanted
    assert len({(one.rule, one.message) for one in found}) == 20
    assert len({one.rule for one in found}) >= 17


def test_faults_of_reading_do_not_hide_those_of_the_graph():
    text = HEAD + "  a: {typ: agent}\n  b: {type: transform, needs: [a, c], set: {x: '${ steps.a.output.y }'}}\n"
    with pytest.raises(DefinitionError) as caught:
        load_text(text, "demo.yaml", None)
    assert [one.rule for one in caught.value.findings] == ["schema"]
    found = check(load_text(text, "demo.yaml", None, strict=False), TOOLS, MODELS)
    assert [(one.rule, one.line) for one in found] == [("schema", 5), ("unknown_step", 6)]


def test_a_faulty_step_is_no_reason_for_further_faults():
    text = HEAD + (
        "  gate: {type: human_gate, approves: post, approvers: x, needs: a}\n"
        "  a: {type: transform, set: {x: 1}}\n"
        "  post: {type: tool, tool: post, with: {vendor: a, amount: 1}, risk: irreversible, needs: gate, fallback: f}\n"
        "  f: {type: nothing}\n"
        "  m: {type: map, over: [1], steps: {i: {type: x}}}\n"
        "  n: {type: transform, set: {x: '${ steps.m.output.items[0].output.y }'}, needs: m}\n"
    )
    found = check(load_text(text, "demo.yaml", None, strict=False), TOOLS, MODELS)
    assert [(one.rule, one.line) for one in found] == [("schema", 5), ("schema", 8), ("schema", 9)]


def test_nothing_is_left_of_a_file_without_steps():
    for text in ("workflow: demo", "- 1", "workflow: demo\nsteps: {a: {type: x}}", "steps: [1]"):
        with pytest.raises(DefinitionError):
            load_text(text, "demo.yaml", None, strict=False)


def test_times_fit_into_the_deadline():
    head = HEAD.replace("budget:", "deadline: 1h\nbudget:")
    gate = "g: {type: human_gate, approvers: x, subject: s}"
    wait = "w: {type: wait, for: 2h}"
    event = "e: {type: wait, event: {name: paid, timeout: 2h}}"
    child = "c: {type: sub_workflow, workflow: onboard, with: {name: a}, timeout: 2h}"
    assert [rule for rule, _, _ in told(gate, wait, event, child, head=head)] == ["deadline"] * 4
    fits = "c: {type: sub_workflow, workflow: onboard, with: {name: a}}"
    assert told(fits, "w: {type: wait, for: 1h}", head=head) == []
    chain = ["a: {type: wait, for: 40m}", "b: {type: wait, for: 40m, needs: a}"]
    assert told(*chain, head=head) == [
        ("deadline_total", 3, "`deadline` is 3600 s, and one after the other these may take 4800 s: a → b.")
    ]


def test_what_is_too_large_to_be_checked_is_found_alone():
    nested = "{type: transform, set: {x: '${ nobody }'}}"
    for level in range(9):
        nested = f"{{type: map, over: [1], steps: {{s{level}: {nested}}}}}"
    assert [rule for rule, _, _ in told(f"top: {nested}")] == ["size"]
    many = "a: {type: transform, set: {x: '" + "${ 1 }" * 5001 + "'}}"
    assert [rule for rule, _, _ in told(many)] == ["size"]


def test_neighbours_know_inputs_and_whom_a_workflow_starts(tmp_path):
    (tmp_path / "one.yaml").write_text(
        "workflow: one\ninput: {type: object, properties: {a: {type: string}}}\n"
        "steps: {m: {type: map, over: [1], steps: {s: {type: sub_workflow, workflow: two}}}, bad: {type: x}}\n"
    )
    (tmp_path / "two.yaml").write_text("nothing: here\n")
    found = neighbours(tmp_path)
    assert found["one"].starts == {"two"}
    assert found["one"].input["properties"] == {"a": {"type": "string"}}
    assert found["two"] == Neighbour()


def test_a_thousand_steps_are_checked_in_little_time():
    def seconds(count):
        lines = [step("s0", sets="score: 1.0")]
        for number in range(1, count):
            before = f"steps.s{number - 1}.output.score"
            schema = (
                f"{{type: object, required: [score], properties: {{score: {{type: number, description: d{number}}}}}}}"
            )
            rest = f"needs: s{number - 1}, when: '{before} >= {number}.5 || input.n > {number}'"
            ask = f"{{type: agent, model: claude-haiku-4-5, prompt: 'x ${{ {before} }}', output: {schema}, {rest}}}"
            lines.append(
                step(f"s{number}", rest, f"score: '${{ {before} * 2.0 }}'") if number % 2 else f"s{number}: {ask}"
            )
        loaded = load_text(
            HEAD.replace("steps: 10, active_time: 5m", "steps: 5000") + "".join(f"  {one}\n" for one in lines),
            "x",
            None,
        )
        began = time.process_time()
        assert check(loaded, TOOLS, MODELS) == ()
        return time.process_time() - began

    unit = min(seconds(50) for _ in range(3))
    assert seconds(1000) < 60 * unit
    # Twenty times the steps take hardly more than twenty times as long: nothing grows with the square.


def test_the_examples_of_the_reference_have_no_findings():
    page = (WORKFLOWS / "README.md").read_text()
    examples = [block.split("```")[0] for block in page.split("```yaml\n")[1:]]
    assert examples
    tools = TOOLS | dict(load_tools(WORKFLOWS / "tools"))
    for example in examples:
        assert check(load_text(example, "README.md", WORKFLOWS), tools, MODELS, OTHERS) == ()


def test_the_reference_names_every_field():
    page = (WORKFLOWS / "README.md").read_text()
    calls = (Agent, ToolStep, Transform, Router, Route, Gate, Tier, Retry, Reconcile, Budget)
    kinds = (Workflow, AgentTool, ContextPolicy, *calls, SubWorkflow, Map, Loop, Wait, EventWait)
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
