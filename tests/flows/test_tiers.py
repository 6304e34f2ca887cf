"""Reminders and tiers of gates: what time makes of who may decide, who is written to, wherever a gate stands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import each, loop, loses_one, manifest, tool
from invariants import check
from machine import FINANCE, LEADS, UNWIND, World
from patience import (
    ASKED,
    BEN,
    EDIT,
    FATIMA,
    HOUR,
    LEAD,
    LENA,
    REMINDED,
    TIERS,
    asking,
    hear,
    letters,
    passes,
    says,
    told,
)
from town import Town

from shared.compiler import compile_manifest
from shared.errors import Conflict, Forbidden
from shared.ledger.attributes import encode_item
from shared.manifest import StepPlan
from shared.runtime.ending import request
from shared.runtime.gates import Word, decide_gate
from shared.runtime.mailing import ask_again
from shared.runtime.parking import Order, resume_step
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.sweep import Bounds, SweepHost
from shared.runtime.sweep import sweep as sweep_round
from shared.runtime.task import Task
from shared.runtime.tiers import due
from shared.settings import Person
from shared.testing import FakeModels, FakeTools


def test_a_tier_is_reminded_once_and_the_next_one_begins_and_is_reminded_too():
    w, run = asking()
    opened = w.records.gate("g")
    assert passes(w, 3.9) == []
    assert passes(w, 0.2) == [("gate_due", "reminded")]
    assert passes(w, 3) == []
    assert letters(w) == ASKED + REMINDED
    assert passes(w, 1) == [("gate_due", "escalated")]
    assert passes(w, 0.1) == []
    assert letters(w) == ASKED + REMINDED + LEAD
    gate = w.records.gate("g")
    assert (gate.tier, gate.roles, set(gate.recipients)) == (2, ("finance", "finance_lead"), {FATIMA, BEN, LENA})
    assert passes(w, 4) == [("gate_due", "reminded")]
    assert letters(w)[5:] == [*REMINDED, (LENA, "reminder")]
    assert passes(w, 7) == []
    gate = w.records.gate("g")
    assert (gate.token, gate.entry, gate.expires) == (opened.token, opened.entry, opened.expires)
    says(w, LENA)
    assert run.go().status == "SUCCEEDED"
    assert (w.records.gate("g").tier, told(w, "gate_decided")[0].data["tier"]) == (2, 2)
    check(w)
    for item in w.store.items.values():
        encode_item(item)  # DynamoDB takes it


def test_the_log_tells_who_may_decide_and_who_is_written_to():
    w, _ = asking()
    passes(w, 5)
    passes(w, 4)
    (reminded,), (escalated,) = told(w, "gate_reminded"), told(w, "gate_escalated")
    assert reminded.data == {"tier": 1, "roles": ["finance"], "to": [BEN, FATIMA]}
    roles = ["finance", "finance_lead"]
    assert escalated.data == {"tier": 2, "added": ["finance_lead"], "roles": roles, "to": [LENA]}
    assert [event.data.get("why") for event in told(w, "gate_mailed")] == [None, None, *2 * ["reminder"], "escalation"]


def test_everybody_of_every_tier_that_has_begun_may_decide():
    for person in (FATIMA, LENA):
        w, run = asking()
        passes(w, 9)
        assert says(w, person).status == "approved"
        assert run.go().status == "SUCCEEDED"


def test_tiers_that_are_due_together_begin_together_and_the_reminder_of_a_tier_that_is_over_is_left_out():
    later = [{"after": 8.0 * HOUR, "to": ["finance_lead"]}, {"after": 9.0 * HOUR, "to": ["board"]}]
    people = {"finance": FINANCE, "finance_lead": LEADS, "board": (Person("Bo", "B", "bo@example.test"), *LEADS)}
    w, _ = asking(people=people, escalate=later)
    assert passes(w, 10) == [("gate_due", "escalated")]
    assert [event.type for event in told(w, "gate_escalated", "gate_reminded")] == 2 * ["gate_escalated"]
    assert letters(w) == [*ASKED, *LEAD, ("bo@example.test", "escalation")], "who is in two tiers is asked once"
    assert due(w.records.gate("g")) == w.clock.now() + 4 * HOUR * 1000
    check(w)


def test_who_has_voted_is_not_reminded_and_a_quorum_goes_on_over_the_tiers():
    w, run = asking(quorum=2)
    says(w, FATIMA)
    passes(w, 4.5)
    assert letters(w) == [*ASKED, (BEN, "reminder")]
    passes(w, 4)
    assert says(w, LENA).status == "approved"
    assert run.go().status == "SUCCEEDED"
    (decided,) = told(w, "gate_decided")
    assert decided.data["roles"] == ["finance", "finance_lead"]
    check(w)


def test_an_edit_asks_everybody_anew_who_may_decide_by_then():
    w, run = asking(quorum=2, edit=EDIT)
    passes(w, 9)
    before = w.head.seq
    says(w, LENA, changes={"sum": 4})
    hear(w, before)
    hear(w, before)
    assert letters(w)[3:] == ASKED
    says(w, BEN)
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_who_started_the_run_is_neither_asked_nor_counted_in_any_tier():
    people = {"finance": FINANCE, "finance_lead": (*LEADS, Person("Alex", "A", "Alex@example.test"))}
    w, _ = asking(people=people, not_initiator=True)
    passes(w, 9)
    assert letters(w) == ASKED + LEAD
    with pytest.raises(Forbidden):
        says(w, "alex@example.test")


def test_without_mail_among_its_channels_nobody_is_written_to_and_the_log_tells_it_all_the_same():
    w, run = asking(channels=["console"])
    assert passes(w, 5) == [("gate_due", "reminded")]
    assert passes(w, 4) == [("gate_due", "escalated")]
    assert passes(w, 1) == []
    assert letters(w) == []
    says(w, LENA)
    assert run.go().status == "SUCCEEDED"


# --- who is enough ----------------------------------------------------------------------------------------------------


def test_all_tiers_together_must_be_enough_for_the_quorum():
    w, run = asking(quorum=3)
    assert w.records.gate("g").status == "open"
    w, run = asking(quorum=4)
    assert run.status.startswith("FAILED")
    wanted = "needs 4 approvals, and finance, finance_lead has 3 people"
    assert wanted in w.records.step("g").failure.message


def test_a_later_tier_without_people_is_found_when_the_gate_opens_not_when_it_is_needed():
    w, run = asking(people={"finance": FINANCE})
    assert run.status.startswith("FAILED")
    assert "escalates to finance_lead: it has no people" in w.records.step("g").failure.message


def test_a_later_tier_whose_only_person_started_the_run_is_no_mistake():
    people = {"finance": FINANCE, "finance_lead": (Person("Alex", "A", "alex@example.test"),)}
    w, _ = asking(people=people, not_initiator=True)
    assert passes(w, 9) == [("gate_due", "escalated")]
    assert letters(w) == ASKED


# --- wherever a gate stands -------------------------------------------------------------------------------------------


def test_a_call_made_once_more_is_asked_of_the_first_tier_again():
    w, run = asking(loses_one())
    passes(w, 9)
    says(w, LENA)
    run.go()
    assert w.records.step("pay").status == "unknown"
    before = w.head.seq
    task = Task("resume", "pay", "", w.run, w.tenant, "w", 1, 1, "", "person", 0)
    resume_step(w.steps, task, Order("did_not_happen", "ops"), UNWIND)
    hear(w, before)
    gate = w.records.gate("g")
    assert (gate.tier, gate.roles, gate.token) == (1, ("finance",), "")
    assert letters(w)[3:] == ASKED
    assert passes(w, 5) == [("gate_due", "reminded")]
    assert passes(w, 4) == [("gate_due", "escalated")]
    assert letters(w)[5:] == REMINDED + LEAD
    says(w, LENA)
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_a_gate_that_a_resumed_run_asks_again_begins_with_its_first_tier():
    w, run = asking()
    passes(w, 9)
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    run.go()
    w.unwind()
    resume_run(w.steps, w.journal, Resume("ops"))
    run = w.execution()
    gate = w.records.gate("g")
    assert (gate.status, gate.tier, gate.roles, gate.reminded) == ("open", 1, ("finance",), None)
    assert passes(w, 9) == [("gate_due", "escalated")]
    assert letters(w) == 2 * [*ASKED, *LEAD]
    says(w, LENA)
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_an_expired_gate_that_is_tried_again_begins_with_its_first_tier():
    w, run = asking(on_expiry="pause")
    passes(w, 9)
    w.clock.sleep(16 * HOUR)
    run.expire()
    assert w.records.step("g").status == "paused"
    task = Task("resume", "g", "", w.run, w.tenant, "w", 1, 1, "", "person", 0)
    resume_step(w.steps, task, Order("retry", "ops"), UNWIND)
    run.go()
    gate = w.records.gate("g")
    assert (gate.status, gate.tier, gate.roles, gate.recipients) == ("open", 1, ("finance",), (BEN, FATIMA))
    assert due(gate) == w.clock.now() + 4 * HOUR * 1000


def test_a_gate_inside_a_loop_is_reminded_and_escalated_in_each_round():
    spec = {"approves": None, "approvers": ["finance"], "on_expiry": "reject", "subject": "Go?", **TIERS}
    gate = StepPlan("g", "human_gate", (), timeout=24.0 * HOUR, on_error="fail", spec=spec)
    inner = loop(gate, until="loop.iteration >= 2", times=2)
    tools = FakeTools({"do": lambda given, _: given["say"]})
    w = World(compile_manifest(manifest(inner, tool("x", "again"))), FakeModels(lambda _: ""), tools)
    run = w.start({})
    for number in (1, 2):
        path = f"again[{number}]/g"
        passes(w, 5)
        passes(w, 4)
        assert w.records.gate(path).tier == 2
        decide_gate(w.steps, w.journal, path, Word("approved", LENA))
        run.go()
    assert run.status == "SUCCEEDED"
    assert letters(w) == 2 * [*ASKED, *REMINDED, *LEAD]
    check(w)


def test_who_may_not_decide_any_more_is_told_so_in_words():
    w, _ = asking()
    says(w, FATIMA, "rejected")
    with pytest.raises(Conflict):
        says(w, LENA)


def test_gates_in_the_items_of_parts_are_found_by_a_round_of_the_sweeper():
    spec = {"approves": None, "approvers": ["finance"], "on_expiry": "reject", "subject": "Go?", **TIERS}
    gate = StepPlan("g", "human_gate", (), timeout=24.0 * HOUR, on_error="fail", spec=spec)
    town = Town(each(gate, over=[0, 1, 2, 3], on_failure="collect_all"), room=120)
    town.start()
    world = town.w
    assert len(town.parts()) > 1
    ports = {name: getattr(world.steps, name) for name in ("store", "blobs", "clock", "engine", "definitions")}
    stores = {"tenants": world.store, "catalogue": world.store}
    host = SweepHost(**ports, **stores, machines=None, unwind_machine=UNWIND, events=world.bus)
    world.clock.sleep(9 * HOUR)
    waiting = [below for below in town.worlds() for one in below.records.gates() if one.status == "open"]
    assert len(waiting) == 4
    assert not any(below.run == world.run for below in waiting)
    for _ in range(2):  # what the stream would have announced, the second round finds
        sweep_round(host, [world.tenant], None, Bounds(world.clock.now() + 10**9))
    for one in world.bus.announced:
        ask_again(world.gates, one.detail)
    assert letters(world)[8:] == 4 * LEAD
    for below in {below.run: below for below in waiting}.values():
        for one in below.records.gates():
            assert (one.tier, one.roles) == (2, ("finance", "finance_lead"))
            decide_gate(world.steps, below.journal, one.path, Word("approved", LENA))
    town.go()
    assert world.head.state == "completed"
    town.check()


def test_an_address_in_two_spellings_is_one_person_in_every_tier():
    fatima, ben = FINANCE
    lead = replace(fatima, email=fatima.email.upper())
    w, _ = asking(people={"finance": (fatima, ben), "finance_lead": (lead,)})
    assert passes(w, 9) == [("gate_due", "escalated")]
    gate = w.records.gate("g")
    assert len({one.casefold() for one in gate.recipients}) == len(gate.recipients) == 2
    assert len(letters(w)) == 2
