"""A manifest survives the way through JSON, and does not write what is as by default."""

from __future__ import annotations

import json

from shared.manifest import Body, Edge, Limits, Manifest, Retry, StepPlan, Turns


def test_a_manifest_is_read_back_as_it_was_written():
    inner = StepPlan("b", "tool", (Edge("x", when="true"),), retry=Retry(2, on=("timeout",)), budget=Limits(usd=5))
    body = Body({"b": inner}, ("b",))
    steps = {
        "a": StepPlan("a", "map", dependents=("c",), wakes=("c",), join=2, body=body, spec={"k": [1]}),
        "c": StepPlan("c", "agent", (Edge("a", optional=True),), output={"type": "object"}, on_error="fail"),
        "d": StepPlan("d", "turns", turns=Turns(StepPlan("turn", "turn", budget=Limits(usd=1)), {"b": inner}, 3, 2)),
    }
    manifest = Manifest("w", "h", {"type": "object"}, Limits(tokens=3), steps, ("a", "c", "d"), deadline=5.0)
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


def test_what_is_as_by_default_is_left_out():
    data = Manifest("w", "h", {}, Limits(), {"a": StepPlan("a", "tool")}, ("a",)).to_json()
    assert data["steps"]["a"] == {"id": "a", "type": "tool"}
