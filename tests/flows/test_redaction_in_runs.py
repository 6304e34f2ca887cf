"""Nothing that must not be kept is found anywhere in a run's records, log, blobs or mail."""

from __future__ import annotations

from dataclasses import replace

import agents
import pytest
from bodies import plan, task, tool, world
from machine import UNWIND
from test_probes import FarSide, paid

from shared.errors import PermanentFailure
from shared.runtime.ending import request
from shared.runtime.parking import Order, resume_step
from shared.runtime.waits import Arrival, deliver

SECRET = "ghp_" + "a" * 36
MARKED = {"type": "object", "properties": {"ssn": {"type": "string", "x-redact": True}}}


def everything(w):
    return repr(w.store.items) + repr(w.blobs.__dict__) + repr(w.mail.messages)


def returns(value):
    def do(*_):
        if isinstance(value, Exception):
            raise value
        return value

    return do


@pytest.mark.parametrize(
    "value", [f"token {SECRET}", {"deep": [SECRET]}, "x " * 10_000 + SECRET, PermanentFailure(f"refused {SECRET}")]
)
def test_a_secret_that_a_tool_returns_is_not_kept(value):
    w = world(tool("a", on_error="continue"), tool("b"), do=returns(value))
    w.start({})
    assert SECRET not in everything(w)


def test_a_marked_field_is_not_kept():
    w = world(replace(tool("a"), output=MARKED), do=returns({"ssn": "078-05-1120"}))
    w.start({})
    assert "078-05" not in everything(w)
    assert "[redacted]" in everything(w)


def test_neither_is_what_people_and_other_systems_send():
    w = world(
        plan("w", "wait", (), spec={"event": {"name": "go"}}, timeout=60.0),
        tool("a"),
        do=returns(PermanentFailure("no")),
    )
    w.start({"token": SECRET})
    deliver(w.steps, task(w, ""), Arrival("e1", "other", {"token": SECRET}))
    resume_step(w.steps, task(w, "a"), Order("accept", "ops", result={"token": SECRET}), UNWIND)
    request(w.steps, w.journal, "cancelled", f"leaked {SECRET}", UNWIND)
    assert SECRET not in everything(w)


def test_neither_is_what_a_model_proposes():
    refused = agents.look(f"{SECRET}", more=1)
    w = agents.desk(agents.calls(agents.book(SECRET), refused, text=f"Here: {SECRET}"), agents.says(SECRET))
    assert agents.asked(w).status == "SUCCEEDED"
    assert SECRET not in everything(w)
    assert [arguments for _, arguments, _ in w.tools.calls] == [{"item": "[redacted]"}]


def test_neither_are_marked_fields_of_an_agents_reply():
    file = agents.FILE.replace("answer: {type: string}", "answer: {type: string, x-redact: true}")
    w = agents.desk(agents.calls(agents.look()), agents.says("078-05-1120"), unit=agents.compiled(file=file))
    assert agents.asked(w).status == "SUCCEEDED"
    assert "078-05" not in everything(w)
    assert agents.value(w, "research") == {"answer": "[redacted]"}


TYPED = {"type": "object", "properties": {"ssn": {"type": "integer", "x-redact": True}}}


@pytest.mark.parametrize("kind", ["tool", "transform"])
def test_why_a_result_does_not_fit_does_not_tell_what_must_not_be_kept(kind):
    given = {"ssn": "078-05-1120"}
    step = tool("a") if kind == "tool" else plan("a", "transform", spec={"set": given})
    w = world(replace(step, output=TYPED, on_error="continue"), do=returns(given))
    w.start({})
    assert w.records.step("a").failure.error_class == "invalid_output"
    assert "078-05" not in everything(w)


def test_a_failure_before_anything_was_opened_tells_no_secret():
    numbers = {"type": "object", "properties": {"n": {"type": "integer"}}}
    w = world(plan("a", "transform", spec={"set": {"n": SECRET}}, output=numbers, on_error="continue"))
    w.start({})
    assert SECRET not in everything(w)


def test_a_marked_field_of_a_transform_is_not_kept():
    w = world(plan("a", "transform", spec={"set": {"ssn": "078-05-1120"}}, output=MARKED))
    w.start({})
    assert "078-05" not in everything(w)


@pytest.mark.parametrize("answer", [{"count": 0, "token": SECRET}, PermanentFailure(f"refused {SECRET}")])
def test_what_a_far_side_says_about_a_call_tells_no_secret(answer):
    far_side = FarSide(arrives=False)
    far_side.find = returns(answer)
    w, _ = paid(far_side, risk="irreversible", after=3600.0)
    assert w.records.step("pay").probes
    assert SECRET not in everything(w)
