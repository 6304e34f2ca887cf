"""From a definition to its machine: what the handlers rely on, what is refused, and how long it takes."""

import copy
import json
import time
from dataclasses import replace

import pytest

from shared.asl.jumps import only_reachable
from shared.compiler import Summary, compile_loaded, compile_manifest
from shared.definition.loader import load_text
from shared.errors import DefinitionError
from shared.manifest import Edge, Limits, Manifest, Retry, StepPlan
from shared.plan import plan
from shared.tools.registry import Tool

MODELS = frozenset({"claude-haiku-4-5"})


def look(what: str) -> dict[str, str]:
    """Read something."""
    return {"what": what}


UNBOOK = "{tool: unbook, with: {what: x}}"
TOOLS = {name: Tool(name, look, cost) for name, cost in {"look": 7, "book": 0, "unbook": 0}.items()}


def compiled(steps, head=""):
    text = f"workflow: w\n{head}steps:\n" + "".join(f"  {line}\n" for line in steps)
    return compile_loaded(load_text(text, "w.yaml", None), tools=TOOLS, models=MODELS)


def manifest_of(needs, **given):
    """A manifest of transforms, or of what ``given`` says about a step."""
    plans = {
        name: replace(
            StepPlan(id=name, type="transform", spec={"set": {}}),
            needs=tuple(Edge(source) for source in sources),
            dependents=tuple(other for other, its in needs.items() if name in its),
            **given.get(name, {}),
        )
        for name, sources in needs.items()
    }
    return Manifest("w", "", {}, Limits(), plans, tuple(plans))


ROUTER = {"type": "router", "spec": {"strategy": "rules"}}


def states(machine):
    for name, state in machine["States"].items():
        yield name, state
        for branch in state.get("Branches", ()):
            yield from states(branch)


SHAPES = [
    manifest_of({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}, a={"fallback": "d"}),
    manifest_of({"a": (), "b": (), "c": ("a",), "d": ("a", "b")}),
    manifest_of({"r": (), "a": ("r",), "b": ("a",), "c": ("r",), "d": ("b", "c")}, r=ROUTER),
    manifest_of({"a": (), "b": (), "c": ("a", "b")}, c={"join": "any"}, b={"type": "human_gate"}),
]


@pytest.mark.parametrize("manifest", SHAPES)
def test_every_task_keeps_the_contract(manifest):
    asl = compile_manifest(manifest).asl
    tasks = {name: state for name, state in states(asl) if state["Type"] == "Task"}
    for name, task in tasks.items():
        payload = task["Parameters"]["Payload"]
        assert payload["run.$"] == "$$.Execution.Input.run"
        assert payload["scope.$"] == "$.scope"
        assert payload["entered.$"] == "$$.State.EnteredTime"
        assert payload["retry.$"] == "$$.State.RetryCount"
        assert 0 < task["TimeoutSeconds"] < 99_999_999
        parks = task["Resource"] == "arn:aws:states:::lambda:invoke.waitForTaskToken"
        assert parks == ("token.$" in payload), name
        assert task["Retry"][-1]["JitterStrategy"] == "FULL"
        always = payload["op"] in {"cascade", "park", "await", "finish"}
        assert ("States.ALL" in task["Retry"][-1]["ErrorEquals"]) == always, name
        if payload["op"] == "run":
            assert name == payload["step"]
            assert task["Catch"] == [
                {"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": f"{name} · cascade"}
            ]


@pytest.mark.parametrize("manifest", SHAPES)
def test_every_name_is_unique_and_every_parallel_drops_its_result(manifest):
    found = list(states(compile_manifest(manifest).asl))
    assert len({name for name, _ in found}) == len(found)
    assert all(state["ResultPath"] is None for _, state in found if state["Type"] == "Parallel")


def test_functions_by_type():
    types = {"agent": {}, "tool": {}, "transform": {}, "human_gate": {}}
    manifest = manifest_of(
        {**dict.fromkeys(types, ()), "rules": (), "llm": ()},
        **{name: {"type": name} for name in types},
        rules=ROUTER,
        llm={"type": "router", "spec": {"strategy": "llm"}},
    )
    found = dict(states(compile_manifest(manifest).asl))
    assert {name: found[name]["Parameters"]["FunctionName"] for name in manifest.order} == {
        "agent": "${StepFunction}",
        "tool": "${StepFunction}",
        "llm": "${StepFunction}",
        "transform": "${ControlFunction}",
        "rules": "${ControlFunction}",
        "human_gate": "${GateFunction}",
    }


def test_cascade_leads_where_it_decides():
    found = dict(states(compile_manifest(manifest_of({"a": (), "b": ("a",)}, a={"fallback": "b"})).asl))
    choice = found["a · cascaded"]
    assert {rule["StringEquals"]: rule["Next"] for rule in choice["Choices"]} == {
        "retry": "a · backoff",
        "recheck": "a · recheck",
        "fallback": "a · fallback",
        "park": "a · parked",
        "continue": "b",
    }
    assert choice["Default"] == "failed"
    assert found["a · backoff"]["Next"] == "a"
    assert found["a · recheck"]["Next"] == "a · cascade"
    assert found["a · parked"]["Next"] == "a · cascaded"
    assert found["a · parked"]["ResultSelector"] == {"action.$": "$.action", "seconds.$": "$.seconds"}
    assert found["a · fallback"]["Next"] == "b"
    assert found["failed"]["Type"] == "Fail"
    assert "fallback" not in {rule["StringEquals"] for rule in found["b · cascaded"]["Choices"]}


def test_inside_a_branch_trouble_ends_in_the_branch():
    asl = compile_manifest(manifest_of({"a": (), "b": ()})).asl
    branch = asl["States"]["fork a, b"]["Branches"][0]["States"]
    assert branch["a"]["End"] is True
    assert branch["a · cascaded"]["Default"] == "fork a, b · 1 failed"
    assert branch["fork a, b · 1 failed"]["Error"] == "Signalbox.RunFailed"
    continues = next(rule for rule in branch["a · cascaded"]["Choices"] if rule["StringEquals"] == "continue")
    assert branch[continues["Next"]] == {"Type": "Succeed"}


def test_a_read_router_keeps_its_route_and_answers_again_after_trouble():
    needs = {"r": (), "a": ("r",), "b": ("a",), "c": ("r",), "d": ("b", "c")}
    found = dict(states(compile_manifest(manifest_of(needs, r=ROUTER)).asl))
    assert found["r"]["ResultPath"] == "$.routes.r"
    assert found["r"]["ResultSelector"] == {"route.$": "$.Payload.route"}
    continues = next(rule for rule in found["r · cascaded"]["Choices"] if rule["StringEquals"] == "continue")
    assert continues["Next"] == "r"
    choice = found["r · a | c"]
    assert {rule["StringEquals"]: rule["Next"] for rule in choice["Choices"]} == {"a": "a", "c": "c"}
    assert {rule["Variable"] for rule in choice["Choices"]} == {"$.routes.r.route"}
    assert choice["Default"] == "d"


def test_one_skipped_step_is_not_worth_a_jump():
    needs = {"r": (), "gate": ("r",), "post": ("r", "gate")}
    found = dict(states(compile_manifest(manifest_of(needs, r=ROUTER)).asl))
    assert not [name for name, state in found.items() if state["Type"] == "Choice" and not name.endswith("cascaded")]
    assert found["r"]["ResultPath"] is None


def test_only_reachable_follows_joins():
    needs = {"r": (), "a": ("r",), "b": ("a",), "o": (), "any": ("b", "o"), "all": ("a", "b"), "two": ("b", "o")}
    manifest = manifest_of(needs, r=ROUTER, any={"join": "any"}, two={"join": 2})
    assert only_reachable(manifest, "r", "a") == {"a", "b", "all", "two"}


def test_nested_routers_jump_inside_a_jump():
    needs = {"r": (), "q": ("r",), "x": ("q",), "y": ("x",), "z": ("q",), "end": ("y", "z")}
    found = dict(states(compile_manifest(manifest_of(needs, r=ROUTER, q=ROUTER)).asl))
    assert found["r · q"]["Choices"][0]["Next"] == "q"
    assert found["r · q"]["Default"] == "finish"
    assert found["q · x | z"]["Default"] == "end"


def test_wakes_are_the_awaits_that_listen():
    steps = compile_manifest(manifest_of({"a": (), "b": (), "c": ("a",), "d": ("a", "b")})).manifest.steps
    assert {name: step.wakes for name, step in steps.items()} == {"a": ("d",), "b": (), "c": (), "d": ()}


def test_an_early_join_is_woken_by_all_its_sources():
    manifest = manifest_of({"a": (), "b": (), "c": ("a", "b")}, c={"join": "any"})
    steps = compile_manifest(manifest).manifest.steps
    assert steps["a"].wakes == steps["b"].wakes == ("c",)


def test_timeouts_have_a_margin_and_are_whole():
    found = dict(states(compile_manifest(manifest_of({"a": ()}, a={"timeout": 0.5})).asl))
    assert found["a"]["TimeoutSeconds"] == 6


def test_only_a_deadline_limits_the_machine():
    manifest = manifest_of({"a": ()})
    assert "TimeoutSeconds" not in compile_manifest(manifest).asl
    assert compile_manifest(replace(manifest, deadline=3600.0)).asl["TimeoutSeconds"] == 3600


ON = ("timeout", "rate_limit", "transient", "invalid_output")
BY_ITSELF = Retry(0, "exponential", base_delay=2.0, max_delay=60.0, jitter=True, on=ON)
"""How retries wait where a step says nothing of them."""


def test_plan_resolves_policies():
    done = compiled(
        [
            "think: {type: agent, model: claude-haiku-4-5, prompt: Think., budget: {usd: 0.05}, timeout: 2m}",
            "read: {type: tool, needs: [think], tool: look, with: {what: x}, risk: read}",
            "ask: {type: human_gate, needs: [read], approves: pay, approvers: [boss], subject: Pay}",
            "pay: {type: tool, needs: [ask], tool: book, with: {what: x}, risk: irreversible}",
            "undo: {type: tool, needs: [pay], tool: book, with: {what: x}, risk: reversible, compensate: *}".replace(
                "*", UNBOOK
            ),
            "guess: {type: agent, needs: [undo], model: claude-haiku-4-5, prompt: Guess., fallback: by_hand}",
            "by_hand: {type: tool, tool: look, with: {what: x}, risk: read}",
        ],
        "budget: {usd: 1.5, active_time: 1h}\non_error: pause\n",
    )
    steps = done.manifest.steps
    retries = {name: step.retry.max_retries for name, step in steps.items()}
    assert retries == {"think": 2, "read": 2, "ask": 2, "pay": 0, "undo": 1, "guess": 2, "by_hand": 2}
    assert {replace(step.retry, max_retries=0) for step in steps.values()} == {BY_ITSELF}
    assert (steps["ask"].on_error, steps["pay"].on_error) == ("fail", "pause")
    assert steps["pay"].approved_by == "ask"
    assert steps["read"].spec["cost"] == 7
    assert steps["think"].timeout == 120.0
    assert steps["think"].budget.usd == 50_000_000
    assert (done.manifest.budget.usd, done.manifest.budget.active_time) == (1_500_000_000, 3600.0)
    assert done.manifest.order == ("think", "read", "ask", "pay", "undo", "guess")
    assert steps["read"].dependents == ("ask",)
    assert Manifest.from_json(json.loads(json.dumps(done.manifest.to_json()))) == done.manifest


def test_a_reversible_step_retries_at_most_once():
    text = (
        "workflow: w\nsteps:\n  a: {type: tool, tool: book, risk: reversible, retry: {max_retries: 5, base_delay: 1s},"
        " compensate: {tool: unbook}}\n"
    )
    planned = plan(load_text(text, "w.yaml", None).workflow, {})
    assert planned.steps["a"].retry == Retry(max_retries=1, base_delay=1.0)


def test_what_a_retry_says_is_what_runs_and_what_it_leaves_out_is_as_everywhere():
    said = "backoff: linear, base_delay: 3s, max_delay: 9s, jitter: false, on: [timeout]"
    text = (
        "workflow: w\nsteps:\n  a: {type: transform, set: {v: 1}, retry: {max_retries: 5, %s}}\n"
        "  b: {type: transform, set: {v: 1}, retry: {max_retries: 5}}\n"
    )
    planned = plan(load_text(text % said, "w.yaml", None).workflow, {})
    assert planned.steps["a"].retry == Retry(5, "linear", 3.0, 9.0, jitter=False, on=("timeout",))
    assert planned.steps["b"].retry == replace(BY_ITSELF, max_retries=5)


def test_every_finding_is_raised_at_once():
    with pytest.raises(DefinitionError) as caught:
        compiled(["a: {type: transform, needs: [b], set: {v: 1}}", "b: {type: agent, model: nope, prompt: x}"])
    assert caught.value.findings
    assert all(finding.file == "w.yaml" for finding in caught.value.findings)
    with pytest.raises(DefinitionError, match="wait"):
        compiled(["a: {type: transform, needs: [b], set: {v: 1}}", "b: {type: transform, needs: [a], set: {v: 1}}"])


def test_what_a_run_could_not_finish_is_refused_with_its_number():
    steps = [
        f"s{index:03}: {{type: transform, set: {{v: 1}}, retry: {{max_retries: 20, base_delay: 1s}}}}"
        for index in range(120)
    ]
    with pytest.raises(DefinitionError) as caught:
        compiled(steps)
    limits = [finding for finding in caught.value.findings if finding.rule == "limits"]
    assert any("history events in the worst case; at most 25,000" in finding.message for finding in limits)


def test_the_hash_covers_definition_and_machine():
    first = compiled(["a: {type: transform, set: {v: 1}}"])
    assert first.hash == compiled(["a: {type: transform, set: {v: 1}}"]).hash == first.manifest.hash
    assert first.hash != compiled(["a: {type: transform, set: {v: 2}}"]).hash
    assert first.hash != compiled(["a: {type: transform, set: {v: 1}, timeout: 61s}"]).hash


def test_summary_counts():
    done = compile_manifest(manifest_of({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}))
    assert isinstance(done.summary, Summary)
    assert done.summary.steps == 4
    assert done.summary.critical_path == ("a", "b", "d")
    assert done.summary.transitions == 7  # four steps, one Parallel, finish, completed
    each = 12 + 10 + 5  # one failure, one parking, one attempt more
    assert done.summary.events == 4 * each + (4 + 2 * 2) + 9


@pytest.mark.parametrize("width", [1, 10, 50])
def test_a_thousand_steps_compile_in_a_few_times_what_copying_their_machine_takes(width):
    """A ratio, for machines differ; how many seconds that is, the bench says."""
    needs = {f"s{i}": tuple({f"s{i - width}", f"s{max(0, i - width - 1)}"}) if i >= width else () for i in range(1000)}
    manifest = manifest_of(needs)
    multiples = []
    for _ in range(4):  # the best of four, each against a copy made at the same time: the machine is shared
        begun = time.process_time()
        unit = compile_manifest(manifest)
        between = time.process_time()
        assert unit.summary.steps == 1000
        copy.deepcopy(unit.asl)
        multiples.append((between - begun) / (time.process_time() - between))
    assert min(multiples) < 7
