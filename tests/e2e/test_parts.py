"""Long maps and long loops run as child executions on the local cloud, and steps wait for slots."""

from __future__ import annotations

import pytest
from publish import publish

pytestmark = pytest.mark.e2e

LONG_MAP = """
workflow: long_map
input: {type: object, required: [numbers], properties: {numbers: {type: array, items: {type: number}}}}
steps:
  base: {type: transform, set: {more: "${ 1.0 }"}}
  each:
    type: map
    needs: [base]
    over: "${ input.numbers }"
    max_concurrency: 4
    steps:
      double: {type: transform, set: {v: "${ item * 2.0 + steps.base.output.more }"}}
    collect: "${ steps.double.output.v }"
  after: {type: transform, needs: [each], set: {done: "${ steps.each.output.completed }"}}
"""
LONG_LOOP = """
workflow: long_loop
steps:
  again:
    type: loop
    until: "loop.iteration >= 310"
    max_iterations: 1200
    steps:
      count: {type: transform, set: {n: "${ loop.previous == null ? 1 : loop.previous.count.n + 1 }"}}
    collect: "${ steps.count.output.n }"
"""


def finished(deployed, name, data):
    answer = deployed.api("POST", f"/v1/workflows/{name}/runs", {"input": data})
    assert answer.status == 201, answer.text
    return deployed.reaches(answer.json["run"], "completed", "failed", "paused", patience=180)


def steps_of(view):
    return {step["path"]: step for step in view["steps"]}


def test_a_long_list_runs_in_parts(deployed):
    name = publish(deployed, LONG_MAP)
    view = finished(deployed, name, {"numbers": [float(n) for n in range(120)]})
    assert view["state"] == "completed", view["steps"]
    steps = steps_of(view)
    assert steps["after"]["output"] == {"done": 120}
    parts = {path: step for path, step in steps.items() if step["type"] == "part"}
    assert sorted(parts) == ["each[0-59]", "each[60-119]"]
    child = deployed.run(parts["each[60-119]"]["child"])
    assert (child["state"], child["part"]) == ("completed", "each[60-119]")
    assert steps_of(child)["each[61]/double"]["output"] == {"v": 123}


def test_a_long_loop_runs_in_parts(deployed):
    name = publish(deployed, LONG_LOOP)
    view = finished(deployed, name, {})
    assert view["state"] == "completed", view["steps"]
    steps = steps_of(view)
    assert steps["again"]["output"] == {"iterations": 310, "output": 310}
    assert len([path for path in steps if path.startswith("again[")]) > 1
