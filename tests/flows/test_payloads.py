"""Values of any size travel by reference: what is kept where, and what happens to one that is too large."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from bodies import each, manifest, output, plan, task, tool, world
from invariants import check
from machine import UNWIND, World
from test_doubt import change

from shared import values
from shared.compiler import compile_manifest
from shared.manifest import Limits, Retry
from shared.runtime.parking import Order, resume_step
from shared.testing import FakeModels, FakeTools

MEGABYTE = 1024 * 1024
LARGE = "x" * (10 * MEGABYTE)
AGENT = {"model": ["claude-haiku-4-5"], "prompt": "${ steps.a.output }", "max_tokens": 100}


def returns(value):
    return lambda *_: value


def largest_item(w):
    return max(len(json.dumps(item)) for item in w.store.items.values())


def test_ten_megabytes_travel_from_step_to_step_and_stand_once_in_the_blobs():
    w = world(tool("a"), tool("b", "a", say="${ steps.a.output }"), tool("c", "b"), do=returns(LARGE))
    assert w.start({}).status == "SUCCEEDED"
    assert output_size(w, "a") == output_size(w, "b") == len(LARGE) + 2
    assert w.tools.calls[1][1] == {"say": LARGE}
    assert len([data for data in w.blobs.objects.values() if len(data) == len(LARGE) + 2]) == 1, "the same content once"
    assert largest_item(w) < 4000
    check(w)


def output_size(w, path):
    return w.records.step(path).output.size


def test_a_prompt_of_three_hundred_kilobytes_is_sent_whole_and_not_kept_in_the_table():
    text = "word " * 60_000
    unlimited = replace(manifest(tool("a"), plan("ask", "agent", ("a",), spec=AGENT)), budget=Limits())
    w = World(compile_manifest(unlimited), FakeModels(lambda _: "yes"), FakeTools({"do": returns(text)}))
    assert w.start({}).status == "SUCCEEDED"
    assert w.models.requests[0].prompt == text
    assert largest_item(w) < 4000
    check(w)


def test_many_items_of_a_map_make_one_large_output():
    w = world(each(tool("a"), over=list(range(20))), tool("b", "each"), do=returns("y" * 100_000))
    assert w.start({}).status == "SUCCEEDED"
    assert output_size(w, "each") > 20 * 100_000
    assert largest_item(w) < 4000
    assert w.records.step("b").status == "completed"


@pytest.mark.parametrize("name", ["deep", "flat"])
def test_what_is_too_large_is_final_and_the_field_is_named(name, monkeypatch):
    monkeypatch.setattr(values, "LARGEST", MEGABYTE)
    value = {"page": {"scan": LARGE, "number": 1}} if name == "deep" else {"scan": LARGE}
    w = world(tool("a", on_error="fail", retry=Retry(3)), do=returns(value))
    w.start({})
    w.unwind()
    step = w.records.step("a")
    assert (w.head.ended, step.attempt, step.failure.error_class) == ("failed", 1, "permanent")
    assert ("$.page.scan" if name == "deep" else "$.scan") in step.failure.message
    check(w)


def test_a_change_whose_answer_is_too_large_may_have_happened(monkeypatch):
    monkeypatch.setattr(values, "LARGEST", MEGABYTE)
    w = world(change("a"), do=returns(LARGE))
    run = w.start({})
    assert w.head.state == "paused"
    resume_step(w.steps, task(w, "a"), Order("accept", "ops", result="a reference"), UNWIND)
    assert (run.go().status, output(w, "a")) == ("SUCCEEDED", "a reference")
    check(w)


def nested(levels):
    return [nested(levels - 1)] if levels else []


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (lambda: "x" * 600_000, "1,048,576 are kept"),
        (lambda: nested(values.DEEPEST - 2), "nested too deeply: more than 128"),
    ],
)
@pytest.mark.parametrize("over", ["${ input.list }", "${ [steps.a.output, steps.a.output] }"])
def test_items_and_results_that_cannot_be_kept_say_why(over, kept, told, monkeypatch):
    """A map whose results were too many said that its process had ended without an answer."""
    monkeypatch.setattr(values, "LARGEST", MEGABYTE)
    item = tool("t", on_error="fail", say="${ thing }" if "input" in over else "x")
    # What is a value's size once is too much in a list, or beside its index and its state.
    plans = tool("a"), each(item, over=over, needs=("a",), collect="${ steps.t.output }"), tool("b", "each")
    w = world(*plans, do=lambda given, call: kept() if call.path != "b" else given)
    w.start({"list": [1, 2]})
    assert (w.head.state, w.records.step("each").status) == ("paused", "paused")
    assert told in w.records.step("each").failure.message
    check(w)


def test_an_input_that_is_too_large_starts_nothing(monkeypatch):
    monkeypatch.setattr(values, "LARGEST", MEGABYTE)
    w = world(replace(tool("a"), spec={**tool("a").spec, "with": {"say": "${ input.text + input.text }"}}))
    w.start({"text": "z" * (MEGABYTE // 2 + 100)})
    assert w.tools.calls == []
    assert "$.say" in w.records.step("a").failure.message
