"""Reminders and tiers in-process: timers of the engine, set again from the records after every death."""

from __future__ import annotations

import pytest
from bodies import manifest, tool
from house import FINANCE, House
from shell import Shell

from shared.compiler import compile_manifest
from shared.errors import TransientFailure
from shared.inprocess.handlers import UNWIND
from shared.manifest import Edge, StepPlan
from shared.runtime.gates import Word, decide_gate
from shared.runtime.parking import Order, resume_step
from shared.runtime.task import Task
from shared.testing import FakeModels, FakeTools

HOUR = 3600
SPEC = {
    "approves": None,
    "approvers": ["finance"],
    "on_expiry": "reject",
    "subject": "Go?",
    "remind_after": 4.0 * HOUR,
    "escalate": [{"after": 8.0 * HOUR, "to": ["finance"]}, {"after": 16.0 * HOUR, "to": ["finance"]}],
}


def asking():
    gate = StepPlan("g", "human_gate", (), timeout=24.0 * HOUR, on_error="fail", spec=SPEC)
    made = compile_manifest(manifest(gate, tool("x", "g"))).manifest
    return House((made,), FakeModels(lambda _: ""), FakeTools({"do": lambda given, _: given["say"]}))


def until(house, hours):
    """Let time pass until so many hours after the gate has opened."""
    opened = house.journal.read(["GATE#g"]).gate("g").opened
    return house.go((opened - house.clock.now()) / 1000 + hours * HOUR)


def turns(house):
    return [kind for kind, _, path in (event.partition(":") for event in house.events) if kind in KINDS and path == "g"]


KINDS = {"gate_reminded", "gate_escalated"}


def test_each_tier_is_reminded_and_begun_in_its_time():
    house = asking().start({}, patience=1)
    assert turns(until(house, 3.9)) == []
    assert turns(until(house, 4.1)) == ["gate_reminded"]
    assert turns(until(house, 8.1)) == ["gate_reminded", "gate_escalated"]
    until(house, 18)
    assert turns(house) == ["gate_reminded", "gate_escalated", "gate_reminded", "gate_escalated"]
    house.decide("g", "approved")
    assert house.head.ended == "completed"


def test_what_was_due_while_no_process_ran_is_caught_up_once():
    house = asking().start({}, patience=1)
    ends = house.journal.read(["GATE#g"]).gate("g").expires
    house.clock.sleep(5 * HOUR)
    house.reborn().go(1)
    assert turns(house) == ["gate_reminded"]
    house.clock.sleep(12 * HOUR)
    house.reborn().go(1)
    house.reborn().go(1)
    assert turns(house) == ["gate_reminded", "gate_escalated", "gate_escalated"]
    gate = house.journal.read(["GATE#g"]).gate("g")
    assert (gate.tier, gate.expires) == (3, ends)


def test_a_decision_from_elsewhere_leaves_nothing_to_remind_of():
    house = asking().start({}, patience=1)
    decide_gate(house.steps, house.journal, "g", Word("rejected", "fatima@example.test"))
    until(house, 20)
    assert turns(house) == []


def test_the_gate_ends_when_it_would_have_ended():
    house = asking().start({}, patience=1)
    ends = house.journal.read(["GATE#g"]).gate("g").expires
    until(house, 23.9)
    assert house.journal.read(["GATE#g"]).gate("g").expires == ends
    assert house.head.ended is None
    until(house, 24.1)
    assert house.head.ended == "failed"


FILE = """workflow: patience
steps:
  check:
    type: human_gate
    approvers: [finance]
    subject: Decide
    remind_after: 200ms
    escalate: [{after: 5s, to: [finance_lead]}]
    timeout: 1d
"""


def test_a_killed_process_takes_its_timers_up_again_and_the_terminal_tells(tmp_path):
    file = tmp_path / "patience.yaml"
    file.write_text(FILE)
    shell = Shell(tmp_path)
    first = shell.watched("run", str(file))
    reminded, run = first.seen("gate_reminded", "check"), first.id
    assert reminded["data"] == {"tier": 1, "roles": ["finance"], "to": ["finance@localhost"]}
    first.kill()
    second = shell.watched("run", str(file))
    escalated = second.seen("gate_escalated", "check")
    assert second.id == run
    assert escalated["data"]["roles"] == ["finance", "finance_lead"]
    second.kill()
    kinds = shell.kinds(run)
    assert kinds.count("gate_escalated:check") == 1
    gate = shell.run(run)["gates"][0]
    assert (gate["tier"], gate["roles"], gate["next_tier"]) == (2, ["finance", "finance_lead"], None)
    assert "(tier 2)" in shell.words("approvals", "list", "--in-process")
    assert "2: it was escalated" in shell.words("approvals", "show", run)
    assert shell("approvals", "approve", run, "--as", "lena")["tier"] == 2


def denied():
    """Return a house where a payment was lost, did not happen, and is asked for once more."""
    spec = {**SPEC, "approves": "pay"}
    gate = StepPlan("g", "human_gate", (), dependents=("pay",), timeout=24.0 * HOUR, on_error="fail", spec=spec)
    call = {"tool": "pay", "with": {"sum": 5}, "compensate": None, "reconcile": None}
    pay = StepPlan("pay", "tool", (Edge("g"),), risk="irreversible", approved_by="g", spec=call)
    lost = []

    def loses_one(given, _):
        if not lost:
            lost.append(given)
            raise TimeoutError
        return given["sum"]

    made = compile_manifest(manifest(gate, pay)).manifest
    house = House((made,), FakeModels(lambda _: ""), FakeTools({"pay": loses_one})).start({}, patience=1)
    until(house, 9)
    decide_gate(house.steps, house.journal, "g", Word("approved", FINANCE[0].email))
    house.go(600)
    assert house.step("pay").status == "unknown"
    task = Task("", "pay", "", house.run, house.tenant, "w", 1, 1, "", "", 0)
    resume_step(house.steps, task, Order("did_not_happen", "ops"), UNWIND)
    house.go(1)
    return house


def test_a_call_that_is_asked_for_once_more_is_reminded_of_as_well():
    house = denied()
    assert house.journal.read(["GATE#g"]).gate("g").tier == 1
    before = len(turns(house))
    until(house, 9)
    assert turns(house)[before:] == ["gate_reminded", "gate_escalated"]
    decide_gate(house.steps, house.journal, "g", Word("approved", FINANCE[0].email))
    assert house.go(1).head.ended == "completed"


@pytest.mark.parametrize("reborn", [False, True])
def test_one_that_nobody_approves_once_more_expires(reborn):
    house = denied()
    house = house.reborn() if reborn else house
    house.go(25 * HOUR)
    gate, step = house.journal.read(["GATE#g"]).gate("g"), house.step("pay")
    assert (gate.status, step.failure.error_class) == ("expired", "rejected")


def test_a_gate_that_could_not_be_looked_at_is_looked_at_again_and_other_runs_go_on():
    house = asking().start({}, patience=1)
    house.clock.sleep(5 * HOUR)
    busy = [1, 2]

    def refuses(_):
        if busy:
            busy.pop()
            raise TransientFailure("busy")

    house.store.before_commit = refuses
    house.go(10)
    assert (busy, turns(house), house.engine.failure) == ([], ["gate_reminded"], None)
