"""What people say at a gate: approving with changes, several who must agree; exactly what they agreed on runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import loses_one, manifest, refuse, tool
from invariants import check
from machine import FINANCE, UNWIND, World

from shared.compiler import compile_manifest
from shared.errors import Conflict, Forbidden, PermanentFailure, UnfitChanges
from shared.ledger.attributes import encode_item
from shared.manifest import Edge, Limits, StepPlan
from shared.runtime.ending import request
from shared.runtime.gates import Word, decide_gate
from shared.runtime.mailing import ask_again
from shared.runtime.parking import Order, resume_step
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.task import Task
from shared.runtime.views import event_view
from shared.testing import FakeModels, FakeTools
from shared.values import canonical, digest, load

FATIMA, BEN = (person.email for person in FINANCE)
SUM = {"type": "number", "minimum": 1, "maximum": 100}
EDIT = {"type": "object", "properties": {"sum": SUM, "about": {"type": ["string", "null"]}, "to": {"type": "object"}}}
ARGUMENTS = {"sum": 50, "about": "paper", "to": {"name": "Contoso", "iban": "DE1"}, "currency": "EUR"}


def paying(do=None, **gate):
    """Return a world whose gate approves an irreversible payment, waiting for people; and its execution."""
    spec = {"approves": "pay", "approvers": ["finance"], "on_expiry": "reject", **gate}
    asked = StepPlan("g", "human_gate", (), dependents=("pay",), timeout=3600.0, on_error="fail", spec=spec)
    call = {"tool": "pay", "with": ARGUMENTS, "compensate": None, "reconcile": None}
    pay = StepPlan("pay", "tool", (Edge("g"),), ("after",), risk="irreversible", approved_by="g", spec=call)
    made = manifest(asked, pay, tool("after", "pay"))
    made = replace(made, budget=Limits(usd=10**9, tokens=1000, steps=20, active_time=600.0))
    tools = FakeTools({"pay": do or (lambda given, _: given), "do": lambda given, _: given["say"]})
    w = World(compile_manifest(made), FakeModels(lambda _: ""), tools)
    return w, w.start({})


def says(w, by, decision="approved", **more):
    known = w.records.gate("g")
    return decide_gate(
        w.steps, w.journal, "g", Word(decision, by, **{"digest": known.digest, "request": known.id} | more)
    )


def paid(w):
    return [arguments for name, arguments, _ in w.tools.calls if name == "pay"]


def told(w, *kinds):
    return [event for event in w.journal.events() if event.type in kinds]


# approving with changes


def deep(levels):
    """Return an object of as many levels."""
    return {"a": deep(levels - 1)} if levels else {}


def test_exactly_the_changed_arguments_run_and_everything_tells_of_them():
    w, run = paying(edit=EDIT)
    asked = w.records.gate("g").digest
    changes = {"sum": 7.5, "about": None, "to": {"iban": "DE2"}}
    gate = says(w, FATIMA, changes=changes, note="too dear")
    assert run.go().status == "SUCCEEDED"
    merged = {"sum": 7.5, "to": {"name": "Contoso", "iban": "DE2"}, "currency": "EUR"}
    assert paid(w) == [merged]
    assert (gate.status, gate.digest, gate.edited) == ("approved", digest(merged), asked)
    assert load(gate.changes, w.blobs) == changes
    (event,) = told(w, "gate_decided")
    facts = {"decision": "approved", "by": FATIMA, "note": "too dear"}
    assert event.data == facts | {"digest": gate.digest, "edited": asked, "changes": canonical(changes).decode()}
    assert event_view(event)["data"]["changes"] == changes
    for item in w.store.items.values():
        encode_item(item)  # DynamoDB takes it
    assert w.records.step("pay").call.digest == gate.digest
    check(w)


@pytest.mark.parametrize(
    ("changes", "field", "why"),
    [
        ({"sum": 101}, "sum", "101 is greater than the maximum of 100"),
        ({"sum": None}, "sum", "None is not of type 'number'"),
        ({"sum": 7, "about": 7}, "about", "is not of type"),
        ({"currency": "USD"}, "currency", "may not be changed"),
        ({"about": "sk-ant-" + "a" * 40}, "about", "looks like a secret"),
        ({"about": "x" * 70_000}, "", "65,536 fit"),
        ({"to": deep(900)}, "", "cannot be kept"),
        ({"sum": float("nan")}, "", "cannot be kept"),
    ],
)
def test_changes_that_do_not_fit_are_refused_by_name_and_decide_nothing(changes, field, why):
    w, _ = paying(edit=EDIT)
    before = dict(w.store.items)
    with pytest.raises(UnfitChanges) as refused:
        says(w, FATIMA, changes=changes)
    assert refused.value.field == field
    assert why in refused.value.detail
    assert w.store.items == before


def test_a_gate_without_edit_takes_no_changes():
    w, _ = paying()
    with pytest.raises(UnfitChanges, match="its workflow lets nobody change it"):
        says(w, FATIMA, changes={"sum": 7})


def test_who_saw_the_old_arguments_approves_nothing_after_an_edit():
    w, run = paying(edit=EDIT, quorum=2)
    old = w.records.gate("g").digest
    says(w, FATIMA, changes={"sum": 7})
    for more in ({}, {"changes": {"sum": 8}}, {"decision": "rejected"}):
        with pytest.raises(Conflict) as refused:
            says(w, BEN, digest=old, **more)
        assert refused.value.problem == "digest_mismatch"
    assert w.records.gate("g").status == "open"
    says(w, BEN)
    assert run.go().status == "SUCCEEDED"
    assert paid(w) == [ARGUMENTS | {"sum": 7}]


def test_changes_need_the_digest_of_what_they_change():
    w, _ = paying(edit=EDIT)
    with pytest.raises(Conflict):
        says(w, FATIMA, digest=None, changes={"sum": 7})


def test_an_edit_repeated_decides_once_and_another_one_is_refused():
    w, run = paying(edit=EDIT)
    old = w.records.gate("g").digest
    for _ in range(2):
        assert says(w, FATIMA, digest=old, changes={"sum": 7}).status == "approved"
    for more in ({"changes": {"sum": 8}}, {}):
        with pytest.raises(Conflict) as refused:
            says(w, FATIMA, digest=old, **more)
        assert refused.value.problem == "already_decided"
    assert run.go().status == "SUCCEEDED"
    assert len(told(w, "gate_decided")) == len(paid(w)) == 1


def test_changes_that_change_nothing_are_an_approval():
    w, run = paying(edit=EDIT)
    gate = says(w, FATIMA, changes={"sum": 50})
    assert (gate.status, gate.edited, gate.changes) == ("approved", "", None)
    assert run.go().status == "SUCCEEDED"
    assert paid(w) == [ARGUMENTS]


def test_arguments_forged_after_an_edit_do_not_run():
    w, run = paying(edit=EDIT)
    gate = says(w, FATIMA, changes={"sum": 7})
    forged = replace(gate.arguments, text=gate.arguments.text.replace("7", "9"))
    (key,) = [key for key in w.store.items if key.sk == "GATE#g"]
    w.store.items[key] = {**w.store.items[key], "arguments": {**vars_of(forged)}}
    run.go()
    assert (w.records.step("pay").status, w.records.step("pay").reason) == ("paused", "approval_mismatch")
    assert paid(w) == []


def vars_of(value):
    return {"digest": value.digest, "size": value.size, "text": value.text, "blob": value.blob}


def test_a_call_made_once_more_can_be_changed_before_it_is():
    lost = []

    def loses_the_key(given, call):
        if not lost:
            lost.append(call.idempotency_key)
            raise TimeoutError
        return given

    w, run = paying(loses_the_key, edit=EDIT)
    says(w, FATIMA)
    run.go()
    assert w.records.step("pay").status == "unknown"
    task = Task("resume", "pay", "", w.run, w.tenant, "w", 1, 1, "", "person", 0)
    resume_step(w.steps, task, Order("did_not_happen", "ops"), UNWIND)
    says(w, BEN, changes={"sum": 7})
    assert run.go().status == "SUCCEEDED"
    assert paid(w) == [ARGUMENTS, ARGUMENTS | {"sum": 7}]
    step = w.records.step("pay")
    assert (step.call.dispatch, step.call.digest) == (2, digest(ARGUMENTS | {"sum": 7}))
    assert step.call.key != lost[0]
    check(w)


def test_changes_stay_approved_where_the_call_was_never_made():
    w, run = paying(edit=EDIT)
    says(w, FATIMA, changes={"sum": 7})
    request(w.steps, w.journal, "cancelled", "between", UNWIND)
    run.go()
    w.unwind()
    assert paid(w) == []
    resume_run(w.steps, w.journal, Resume("ops"))
    assert w.execution().status == "SUCCEEDED"
    assert paid(w) == [ARGUMENTS | {"sum": 7}]
    check(w)


def test_a_call_that_failed_is_asked_for_anew_as_the_definition_has_it():
    answers = [PermanentFailure("no"), "fine"]

    def fails_once(*_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    w, run = paying(fails_once, edit=EDIT)
    says(w, FATIMA, changes={"sum": 7})
    run.go()
    request(w.steps, w.journal, "cancelled", "it is in the way", UNWIND)
    w.unwind()
    resume_run(w.steps, w.journal, Resume("ops"))
    run, gate = w.execution(), w.records.gate("g")
    assert (gate.status, gate.digest, gate.changes, gate.votes) == ("open", digest(ARGUMENTS), None, ())
    says(w, FATIMA, changes={"sum": 8})
    assert run.go().status == "SUCCEEDED"
    assert [arguments["sum"] for arguments in paid(w)] == [7, 8]
    check(w)


# several who must agree


def test_two_people_approve_and_only_then_it_runs():
    w, run = paying(quorum=2)
    gate = says(w, FATIMA, note="fine")
    assert (gate.status, [vote["by"] for vote in gate.votes]) == ("open", [FATIMA])
    assert (run.go().status, w.head.state, paid(w)) == ("RUNNING", "waiting_for_human", [])
    gate = says(w, BEN, note="so it is")
    assert (gate.status, gate.by, [vote["by"] for vote in gate.votes]) == ("approved", BEN, [FATIMA, BEN])
    assert run.go().status == "SUCCEEDED"
    assert load(w.records.step("g").output, w.blobs)["notes"] == "fine\nso it is"
    (first,), (last,) = told(w, "gate_voted"), told(w, "gate_decided")
    assert (first.data["approved_by"], last.data["approved_by"]) == ([FATIMA], [FATIMA, BEN])
    check(w)


def test_each_person_counts_once_however_often_they_say_it():
    w, _ = paying(quorum=2)
    for by in (FATIMA, FATIMA.upper(), FATIMA):
        assert says(w, by).status == "open"
    assert len(told(w, "gate_voted")) == 1


def test_one_who_rejects_rejects_at_once_also_who_approved_before():
    for by in (FATIMA, BEN):
        w, run = paying(quorum=2)
        says(w, FATIMA)
        assert says(w, by, "rejected", note="no").status == "rejected"
        assert run.go().status.startswith("FAILED")
        assert paid(w) == []
        check(w)


def test_an_edit_begins_the_count_anew_with_who_made_it():
    w, run = paying(quorum=2, edit=EDIT)
    says(w, FATIMA)
    gate = says(w, BEN, changes={"sum": 7})
    assert (gate.status, [vote["by"] for vote in gate.votes]) == ("open", [BEN])
    gate = says(w, FATIMA, changes={"sum": 8})
    assert [vote["by"] for vote in gate.votes] == [FATIMA]
    assert says(w, BEN).status == "approved"
    assert run.go().status == "SUCCEEDED"
    assert paid(w) == [ARGUMENTS | {"sum": 8}]
    assert [event.data["changes"] for event in told(w, "gate_edited")] == ['{"sum":7}', '{"sum":8}']
    check(w)


def test_an_edit_repeated_while_others_are_asked_counts_once():
    w, _ = paying(quorum=2, edit=EDIT)
    old = w.records.gate("g").digest
    for _ in range(2):
        assert len(says(w, FATIMA, digest=old, changes={"sum": 7}).votes) == 1
    assert len(told(w, "gate_edited")) == 1


def test_what_was_changed_everybody_else_is_written_to_about_once():
    w, _ = paying(quorum=2, edit=EDIT)
    told_ = {"tenant": w.tenant, "run": w.run, "path": "g"}
    ask_again(w.gates, told_)
    assert len(w.mail.messages) == 2
    says(w, FATIMA, changes={"sum": 7})
    for _ in range(2):
        ask_again(w.gates, told_)
    assert [message.to for message in w.mail.messages[2:]] == [BEN]


def test_who_started_the_run_is_nobody_of_the_quorum():
    w, _ = paying(quorum=2, not_initiator=True)
    with pytest.raises(Forbidden):
        says(w, "Alex@example.test")
    assert w.records.gate("g").votes == ()


def test_a_gate_does_not_open_for_more_people_than_there_are():
    w, run = paying(quorum=3)
    assert run.status.startswith("FAILED")
    failure = w.records.step("g").failure
    assert (failure.error_class, "needs 3 approvals, and finance has 2 people" in failure.message) == (
        "permanent",
        True,
    )


def test_approvals_so_far_do_not_outlive_the_time_to_decide():
    w, run = paying(quorum=2)
    says(w, FATIMA)
    w.clock.sleep(3605)
    assert run.expire().status.startswith("FAILED")
    with pytest.raises(Conflict):
        says(w, BEN)
    assert (w.records.gate("g").status, paid(w)) == ("expired", [])
    check(w)


def test_a_call_made_once_more_needs_all_of_them_once_more():
    w, run = paying(loses_one(), quorum=2)
    says(w, FATIMA)
    says(w, BEN)
    run.go()
    task = Task("resume", "pay", "", w.run, w.tenant, "w", 1, 1, "", "person", 0)
    resume_step(w.steps, task, Order("did_not_happen", "ops"), UNWIND)
    assert says(w, FATIMA).status == "open"
    assert run.go().status == "RUNNING"
    assert says(w, BEN).status == "approved"
    assert run.go().status == "SUCCEEDED"
    assert len(paid(w)) == 2
    check(w)


# nobody's word


@pytest.mark.parametrize(
    ("rule", "state", "by"),
    [
        ("reject", "completed", "fallback"),
        ("approve", "completed", "expiry"),
        ("fail", None, None),
        ("pause", None, None),
    ],
)
def test_what_time_rejects_has_its_fallback_like_what_a_person_rejects(rule, state, by):
    """A gate that had expired went by its ``on_error`` at once, and its fallback never stood in for it."""
    spec = {"approves": None, "approvers": ["finance"], "on_expiry": rule}
    asked = StepPlan("g", "human_gate", (), timeout=60.0, on_error="continue", fallback="help", spec=spec)
    made = manifest(asked, tool("help"))
    w = World(compile_manifest(replace(made, order=("g",))), FakeModels(lambda _: ""), FakeTools({"do": refuse()}))
    run = w.start({})
    w.clock.sleep(61)
    run.expire()
    gate = w.records.step("g")
    assert (w.head.ended, gate.by) == (state, by)
    assert bool(w.records.step("g/fallback")) == (rule == "reject")
    assert w.head.unwinding == ("failed" if rule == "fail" else None)
    assert gate.status == {"fail": "failed", "pause": "paused"}.get(rule, "completed")
