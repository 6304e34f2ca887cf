"""Reminders and tiers of gates: what time makes of who may decide, who is written to, and that each is once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import loop, manifest, tool
from invariants import check
from machine import FINANCE, LEADS, UNWIND, World

from shared.compiler import compile_manifest
from shared.errors import Conflict, Forbidden, PermanentFailure, TransientFailure
from shared.events.rules import announcement
from shared.ledger.attributes import encode_item
from shared.manifest import Edge, Limits, StepPlan
from shared.runtime.announcing import ask_again, look
from shared.runtime.ending import request
from shared.runtime.gates import Word, decide_gate
from shared.runtime.mending import mend
from shared.runtime.parking import Order, resume_step
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.task import Task
from shared.runtime.tiers import CLAIM, PATIENCE, due
from shared.settings import Person
from shared.testing import FakeModels, FakeTools

FATIMA, BEN = (person.email for person in FINANCE)
(LENA,) = (person.email for person in LEADS)
HOUR = 3600
TIERS = {"remind_after": 4.0 * HOUR, "escalate": [{"after": 8.0 * HOUR, "to": ["finance_lead"]}]}
EDIT = {"type": "object", "properties": {"sum": {"type": "integer"}}}


def asking(do=None, *, timeout=24.0 * HOUR, people=None, **gate):
    """Return a world whose gate approves a payment, waiting for people; and its execution."""
    spec = {"approves": "pay", "approvers": ["finance"], "on_expiry": "reject", "subject": "Pay?", **TIERS, **gate}
    asked = StepPlan("g", "human_gate", (), dependents=("pay",), timeout=timeout, on_error="fail", spec=spec)
    call = {"tool": "pay", "with": {"sum": 5}, "compensate": None, "reconcile": None}
    pay = StepPlan("pay", "tool", (Edge("g"),), risk="irreversible", approved_by="g", spec=call)
    made = replace(manifest(asked, pay), budget=Limits(usd=10**9, tokens=1000, steps=20, active_time=600.0))
    tools = FakeTools({"pay": do or (lambda given, _: given["sum"])})
    w = World(compile_manifest(made), FakeModels(lambda _: ""), tools)
    if people:
        object.__setattr__(w.gates, "approvers", people)
    return w, w.start({})


def sweep(w):
    """Visit the run as the sweeper does, and let the stream announce what it wrote. Returns what was found and done."""
    before = w.head.seq
    found = [(one.what, one.done) for one in mend(w.steps, w.tenant, w.run, UNWIND, w.bus) if one.what in WATCHED]
    hear(w, before)
    return found


WATCHED = {"gate_due", "letters_unsent"}


def hear(w, before):
    """Let the function that writes letters hear of the events after number ``before``, and of the bus."""
    fresh = [{**event.to_item(), "pk": w.journal.pk, "sk": event.sk} for event in w.journal.events(after=before)]
    for one in (*filter(None, map(announcement, fresh)), *w.bus.announced):
        if one.detail.get("again"):
            ask_again(w.gates, one.detail)
    w.bus.announced.clear()


def passes(w, hours):
    w.clock.sleep(hours * HOUR)
    return sweep(w)


def letters(w):
    return [(message.to, message.subject.partition(":")[0]) for message in w.mail.messages]


def says(w, by, decision="approved", **more):
    known = w.records.gate("g")
    return decide_gate(
        w.steps, w.journal, "g", Word(decision, by, **{"digest": known.digest, "request": known.id} | more)
    )


def told(w, *kinds):
    return [event for event in w.journal.events() if event.type in kinds]


ASKED = [(BEN, "asked"), (FATIMA, "asked")]
REMINDED = [(BEN, "reminder"), (FATIMA, "reminder")]
LEAD = [(LENA, "escalation")]


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


# --- races and deaths -------------------------------------------------------------------------------------------------


def test_a_decision_that_comes_first_leaves_nothing_to_escalate():
    w, run = asking()
    w.clock.sleep(9 * HOUR)
    w.store.before_commit = lambda writes: _decide_first(w, writes)
    assert sweep(w) == []
    assert w.records.gate("g").tier == 1
    assert letters(w) == ASKED
    assert run.go().status == "SUCCEEDED"
    check(w)


def _decide_first(w, writes):
    if any(write.key.sk == "GATE#g" for write in writes):
        w.store.before_commit = list
        says(w, FATIMA)


def test_a_decision_that_comes_second_reads_again_and_counts():
    w, run = asking()
    w.clock.sleep(9 * HOUR)

    def escalate(writes):
        if any(write.key.sk == "GATE#g" for write in writes):
            w.store.before_commit = list
            sweep(w)

    w.store.before_commit = escalate
    assert says(w, FATIMA).status == "approved"
    gate = w.records.gate("g")
    assert (gate.tier, gate.by) == (2, FATIMA)
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_two_sweepers_and_a_repeated_announcement_write_to_nobody_twice():
    w, _ = asking()
    w.clock.sleep(9 * HOUR)
    before = w.head.seq
    sweep(w)
    sweep(w)
    hear(w, before)
    assert letters(w) == ASKED + LEAD
    assert len(told(w, "gate_escalated")) == 1


def test_of_two_processes_at_once_one_writes_the_letters():
    w, _ = asking()
    w.clock.sleep(5 * HOUR)
    about = {"tenant": w.tenant, "run": w.run, "path": "g"}
    send = w.mail.send

    def beside(message):
        w.mail.send = send
        ask_again(w.gates, about)
        send(message)

    w.mail.send = beside
    sweep(w)
    assert letters(w) == ASKED + REMINDED


def test_a_tier_that_begins_while_letters_are_written_is_told_by_the_same_process():
    w, _ = asking()
    w.clock.sleep(7.99 * HOUR)
    send = w.mail.send

    def meanwhile(message):
        w.mail.send = send
        w.clock.sleep(60)
        mend(w.steps, w.tenant, w.run, UNWIND, w.bus)
        send(message)

    w.mail.send = meanwhile
    sweep(w)
    assert sorted(letters(w)) == sorted(ASKED + REMINDED + LEAD)


def test_letters_whose_announcement_was_lost_are_announced_by_the_next_sweep():
    w, _ = asking()
    w.clock.sleep(9 * HOUR)
    mend(w.steps, w.tenant, w.run, UNWIND, w.bus)  # and no stream hears of it
    assert sweep(w) == [("letters_unsent", "announced")]
    assert letters(w) == ASKED + LEAD
    assert sweep(w) == []


def test_a_process_that_dies_between_letters_leaves_the_rest_to_who_comes_later():
    w, _ = asking()
    w.clock.sleep(5 * HOUR)
    send = w.mail.send

    def dies(message):
        if message.to == FATIMA:
            raise KeyboardInterrupt
        send(message)

    w.mail.send = dies
    with pytest.raises(KeyboardInterrupt):
        sweep(w)
    w.mail.send = send
    assert sweep(w) == [], "it may be alive"
    w.clock.sleep((CLAIM + PATIENCE) / 1000)
    assert sweep(w) == [("letters_unsent", "announced")]
    assert letters(w) == ASKED + REMINDED


def test_mail_that_is_down_is_tried_again_and_an_address_that_is_refused_is_not():
    w, _ = asking()
    w.clock.sleep(5 * HOUR)
    w.mail.failure = TransientFailure("down")
    with pytest.raises(TransientFailure):
        sweep(w)
    assert sweep(w) == []
    w.clock.sleep(PATIENCE / 1000)
    w.mail.failure = PermanentFailure("no such address")
    with pytest.raises(TransientFailure):
        sweep(w)
    w.mail.failure = None
    w.clock.sleep(PATIENCE / 1000)
    assert sweep(w) == []
    assert letters(w) == ASKED
    assert len(told(w, "gate_mail_failed")) == 4


def test_who_is_no_approver_any_more_gets_no_letter_and_keeps_nobody_waiting():
    w, _ = asking()
    object.__setattr__(w.gates, "approvers", {"finance": FINANCE[:1], "finance_lead": ()})
    passes(w, 5)
    passes(w, 4)
    assert letters(w) == [*ASKED, (FATIMA, "reminder")]
    assert passes(w, 1) == []


def test_nothing_is_reminded_or_escalated_once_the_run_ends_or_the_gate_has_expired():
    w, _ = asking()
    w.clock.sleep(9 * HOUR)
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    assert look(w.gates, w.journal, "g").tier == 1
    w, _ = asking()
    assert passes(w, 25) == []
    assert letters(w) == ASKED


# --- wherever a gate stands -------------------------------------------------------------------------------------------


def test_a_call_made_once_more_is_asked_of_the_first_tier_again():
    lost = []

    def loses_one(given, _):
        if not lost:
            lost.append(given)
            raise TimeoutError
        return given

    w, run = asking(loses_one)
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
