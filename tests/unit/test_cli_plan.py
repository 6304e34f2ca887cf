"""`plan`, `compile --graph` and `schema`: what a file amounts to, how it looks, what it may hold."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.cli import app
from scripts.commands.plan import facts_of
from shared.asl.drawing import draw
from shared.compiler import compile_file
from shared.forecast import Forecast

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "golden" / "cases"
INVOICE = ROOT / "workflows" / "invoice.yaml"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def written(tmp_path, text):
    file = tmp_path / "w.yaml"
    file.write_text(text)
    return file


def forecast(tmp_path, text, **given):
    return Forecast(compile_file(written(tmp_path, text)), given)


def test_plan_prints_json():
    facts = json.loads(run("plan", INVOICE, "--json").stdout)
    assert facts["workflow"] == "invoice"
    assert next(step["path"] for step in facts["critical_path"]) == "extract"
    assert facts["gates"][0]["path"] == "review"
    assert facts["transitions"]["happy"] < facts["transitions"]["worst"] < facts["events"]
    assert float(facts["cost_usd"]["floor"]) < float(facts["cost_usd"]["ceiling"])
    assert facts["nearest_limit"] == max(facts["limits"], key=lambda need: need["share"])["name"]


def test_plan_speaks_to_people():
    told = run("plan", INVOICE).stdout
    assert "review approves post" in told
    assert re.search(r"nearest limit +\w+ \w+, \d", told)


def test_plan_takes_estimates():
    facts = json.loads(run("plan", INVOICE, "--estimate", "review=60", "--json").stdout)
    assert {step["path"]: step["seconds"] for step in facts["critical_path"]}["review"] == 60


def test_plan_says_when_a_gate_reminds_and_escalates():
    (gate,) = json.loads(run("plan", INVOICE, "--json").stdout)["gates"]
    assert (gate["remind_after"], gate["escalate"]) == (14400, [{"after": 28800, "to": ["finance_lead"]}])
    told = " ".join(run("plan", INVOICE).stdout.split())
    assert "(finance, reminded after 4 h 00 min, after 8 h 00 min finance_lead too, 24 h 00 min, then reject)" in told


def test_the_picture_says_who_may_decide_and_when():
    told = run("compile", INVOICE, "--graph").stdout
    assert "review · finance decide, after 8h finance_lead too" in told


@pytest.mark.parametrize("given", ["review", "review=soon", "nowhere=3"])
def test_plan_refuses_estimates_that_say_nothing(given):
    assert CliRunner().invoke(app, ["plan", str(INVOICE), "--estimate", given]).exit_code == 2


CHAIN = """workflow: w
steps:
  a: {type: transform, set: {v: 1}, timeout: 10s, retry: {max_retries: 0}}
  b: {type: transform, set: {v: 1}, timeout: 20s, retry: {max_retries: 0}, needs: [a]}
  c: {type: transform, set: {v: 1}, timeout: 90s, retry: {max_retries: 0}, needs: [a]}
  d: {type: wait, for: 1h, needs: [b, c]}
"""


def test_the_critical_path_goes_by_time(tmp_path):
    found = forecast(tmp_path, CHAIN).critical_path
    assert found == (("a", 10.0), ("c", 90.0), ("d", 3600.0))
    assert forecast(tmp_path, CHAIN, b=500.0).critical_path[1] == ("b", 500.0)


def test_retries_are_part_of_the_ceiling(tmp_path):
    retry = "{max_retries: 2, base_delay: 1s, max_delay: 60s, jitter: false}"
    steps = f"workflow: w\nsteps:\n  a: {{type: transform, set: {{v: 1}}, timeout: 10s, retry: {retry}}}\n"
    assert forecast(tmp_path, steps).critical_path == (("a", 3 * 10 + 1 + 2),)


def test_bodies_count_as_often_as_they_run_in_a_row(tmp_path):
    steps = """workflow: w
steps:
  each:
    type: map
    over: [1, 2, 3, 4, 5]
    max_concurrency: 2
    steps: {a: {type: transform, set: {v: 1}, timeout: 10s, retry: {max_retries: 0}}}
  again:
    type: loop
    needs: [each]
    until: "loop.iteration > 3"
    max_iterations: 4
    steps: {b: {type: transform, set: {v: 1}, timeout: 5s, retry: {max_retries: 0}}}
"""
    assert forecast(tmp_path, steps).critical_path == (("each", 30.0), ("again", 20.0))


def test_a_narrow_run_says_which_steps_wait(tmp_path):
    branches = "".join(
        f"  s{index}: {{type: transform, set: {{v: 1}}, timeout: 10s, retry: {{max_retries: 0}}}}\n"
        for index in range(5)
    )
    width = forecast(tmp_path, f"workflow: w\nmax_parallel: 2\nsteps:\n{branches}").width
    assert (width.width, width.max_parallel, width.seconds) == (5, 2, 30.0)
    assert len(width.delayed) == 3


def test_width_is_the_most_steps_at_once_and_not_the_widest_level(tmp_path):
    steps = """workflow: w
steps:
  a: {type: transform, set: {v: 1}}
  b: {type: transform, set: {v: 1}}
  c: {type: transform, set: {v: 1}, needs: [a]}
  d: {type: transform, set: {v: 1}, needs: [a]}
  e: {type: transform, set: {v: 1}, needs: [d]}
"""
    assert forecast(tmp_path, steps).width.width == 3


AGENT = "type: agent, model: claude-haiku-4-5, prompt: 'Say it.', retry: {max_retries: 1}, max_tokens: 100000"


@pytest.mark.parametrize(
    ("head", "budget", "ceiling", "unbounded"),
    [
        ("", "", 2 * 500_001_000, ("a",)),
        ("", ", budget: {usd: 0.2}", 200_000_000, ()),
        ("budget: {usd: 0.05}\n", "", 50_000_000, ()),
    ],
)
def test_the_ceiling_is_what_budgets_and_prices_allow(tmp_path, head, budget, ceiling, unbounded):
    cost = forecast(tmp_path, f"workflow: w\n{head}steps:\n  a: {{{AGENT}{budget}}}\n").cost
    assert (cost.ceiling, cost.unbounded) == (ceiling, unbounded)
    assert 0 < cost.floor < cost.ceiling


def test_what_may_be_skipped_costs_nothing_at_least(tmp_path):
    steps = f"workflow: w\nsteps:\n  a: {{{AGENT}, when: 'false || true'}}\n"
    assert forecast(tmp_path, steps).cost.floor == 0


def test_irreversible_steps_stand_with_their_gates():
    facts = facts_of(Forecast(compile_file(ROOT / "workflows" / "customer_support.yaml")))
    assert all(step["approved_by"] for step in facts["irreversible"])
    assert facts["irreversible"]


def test_the_graph_shows_bodies_and_awaits():
    drawn = run("compile", "--graph", CASES / "body_graph.yaml").stdout
    assert drawn.startswith("flowchart TD\n")
    assert "subgraph s_each[" in drawn
    assert "s_each__a -.-> s_each__d" in drawn
    assert "s_each__b --> s_each__d" in drawn
    assert 's_each__pick -->|"good"| s_each__good' in drawn
    assert drawn.count("subgraph") == drawn.count("\n  end")


def test_the_graph_shows_every_step_and_edge_of_the_library():
    for file in sorted((ROOT / "workflows").glob("*.yaml")):
        compiled = compile_file(file)
        drawn = draw(compiled.layout, compiled.manifest)
        edges = sum(len(compiled.manifest.steps[name].needs) for name in compiled.manifest.order)
        assert all(f"s_{name}" in drawn for name in compiled.manifest.order), file.name
        assert sum("->" in line and "failed" not in line for line in drawn.splitlines()) >= edges, file.name


def test_text_from_the_file_cannot_leave_its_label(tmp_path):
    steps = "workflow: w\nsteps:\n  a: {type: transform, set: {v: 1}, when: \"'<\\\"]--> b' != ''\"}\n"
    compiled = compile_file(written(tmp_path, steps))
    line = next(line for line in draw(compiled.layout, compiled.manifest).splitlines() if "s_a" in line)
    assert line.count('"') == 2
    assert "<" not in line


def test_one_thing_at_a_time():
    assert CliRunner().invoke(app, ["compile", "--graph", "--summary", str(INVOICE)]).exit_code == 2


def test_schema_is_json_and_names_every_step_type():
    found = json.loads(run("schema").stdout)
    assert found["$schema"]
    text = json.dumps(found)
    assert all(f'"{kind}"' in text for kind in ("agent", "map", "loop", "wait", "sub_workflow"))


STOCK = ROOT / "workflows" / "stock_request.yaml"


def test_an_agent_with_tools_is_planned_with_all_its_turns_and_calls():
    facts = facts_of(Forecast(compile_file(STOCK)))
    (agent,) = facts["agents"]
    assert (agent["path"], agent["turns"], agent["calls_a_turn"], agent["steps"]) == ("serve", 6, 8, 54)
    assert [tool["risk"] for tool in agent["tools"]] == ["read", "reversible"]
    assert facts["cost_usd"]["ceiling"] == "0.100000"
    assert facts["critical_path"][0]["seconds"] > 6 * (30 + 15)
    assert "serve: at most 6 turns of at most 8 calls" in run("plan", STOCK).stdout


def test_an_agent_with_tools_is_drawn_as_a_box_with_its_tools():
    drawn = run("compile", STOCK, "--graph").stdout
    assert 's_serve__reserve_article[["reserve_article · reversible"]]' in drawn
    assert "at most 6 turns" in drawn


def test_the_plan_and_the_graph_show_what_has_a_run_of_its_own():
    case = CASES / "own_runs.yaml"
    each, again = json.loads(run("plan", case, "--json").stdout)["apart"]
    assert (each["path"], each["timeout"], each["budget"]["usd"]) == ("each", 3600.0, None)
    assert (again["path"], again["timeout"], again["budget"]["usd"]) == ("again", None, "0.500000")
    assert "each (time-out 1 h 00 min); again ($ 0.500000, attempts 6)" in run("plan", case).stdout
    drawn = run("compile", "--graph", case).stdout
    assert "10 at once, within 1h" in drawn
    assert "at most 3 times, USD 0.5 together, 6 attempts together" in drawn
