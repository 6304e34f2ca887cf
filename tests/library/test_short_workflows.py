"""Customer support, documents, moderation, expenses: from the sample to the end."""

from __future__ import annotations

import pytest
from invariants import check
from machine import UNWIND
from shelf import PEOPLE, Shelf

from shared.errors import Forbidden
from shared.runtime.ending import request

# --- customer support ---------------------------------------------------------------------------------------------


def test_a_customer_gets_the_reply_that_a_person_has_read(office):
    run = Shelf(office, "customer_support", "late-parcel")
    assert (run.state, run.open_gates, run.kept) == ("waiting_for_human", ["review"], [])
    assert "support@example.test" in [mail.to for mail in run.world.mail.messages]
    run.decide("review")
    assert (run.status, run.state) == ("SUCCEEDED", "completed")
    assert run.kept == [("reply", "posted", 1)]
    sent = run.documents[0]["body"]
    assert (sent["customer"], sent["subject"]) == ("marta.silva@example.com", "order GB-20418")
    assert "refund the postage" in sent["body"]
    check(run.world)


def test_a_reply_depends_on_the_message(office):
    run = Shelf(office, "customer_support", "return-de")
    assert run.output("classify")["topic"] == "refund"
    assert run.output("rule")["rule"].startswith("Unused goods")
    assert "innerhalb von 30 Tagen" in run.output("draft")["body"]


def test_a_rejected_reply_is_not_sent(office):
    run = Shelf(office, "customer_support", "late-parcel")
    run.decide("review", "rejected")
    run.world.unwind()
    assert (run.state, run.kept) == ("failed", [])
    check(run.world)


def test_junk_costs_one_request_and_no_persons_time(office):
    run = Shelf(office, "customer_support", "junk")
    assert (run.state, run.kept, len(run.world.models.requests)) == ("completed", [], 1)
    assert set(run.statuses("rule", "draft", "review", "send_reply")) == {"skipped"}
    check(run.world)


def test_a_reply_whose_connection_was_lost_is_looked_for_and_not_sent_again(office):
    run = Shelf(office, "customer_support", "late-parcel")
    office.faults.set({"next": [{"hang_up": True, "after": True, "match": "subject"}]})
    run.decide("review")
    assert (run.status, run.state, run.kept) == ("SUCCEEDED", "completed", [("reply", "posted", 1)])
    assert run.world.records.step("send_reply").by == "reconcile"
    check(run.world)


# --- document processing --------------------------------------------------------------------------------------------


def test_every_document_is_read_and_an_illegible_one_is_named(office):
    run = Shelf(office, "document_processing", "tenancy")
    assert (run.status, run.state) == ("SUCCEEDED", "completed")
    result = run.output("read_each")
    assert [item["status"] for item in result["items"]] == ["completed", "completed", "failed", "completed"]
    assert "Scan it again" in result["items"][2]["error"]["message"]
    assert [item["output"]["kind"] for item in result["items"] if item["output"]] == ["contract", "letter", "minutes"]
    assert [item["output"]["year"] for item in result["items"] if item["output"]] == [2024, 2026, 2024]
    assert run.output("sort")["unread"] == ["scan-003.txt"]
    summary = run.output("summarise")
    assert [point["title"] for point in summary["points"]] == [one["title"] for one in run.output("sort")["read"]]
    check(run.world)


def test_a_folder_in_which_nothing_can_be_read_has_no_summary(office):
    run = Shelf(office, "document_processing", {"folder": "F", "documents": [{"name": "a", "text": "~~ ## ||"}]})
    assert (run.state, run.statuses("summarise")) == ("completed", ["skipped"])
    assert run.output("sort") == {"read": [], "unread": ["a"]}
    check(run.world)


# --- content moderation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sample", "kind"), [("harmless", "published"), ("harmful", "hidden")])
def test_a_clear_case_asks_nobody(office, sample, kind):
    run = Shelf(office, "content_moderation", sample)
    assert (run.state, run.kept) == ("completed", [(kind, "posted", 1)])
    assert run.statuses("look", "hide_rejected") == ["skipped", "skipped"]
    check(run.world)


@pytest.mark.parametrize(("decision", "kind"), [("approved", "published"), ("rejected", "hidden")])
def test_a_doubtful_case_ends_as_the_moderator_says(office, decision, kind):
    run = Shelf(office, "content_moderation", "doubtful")
    assert (run.open_gates, run.kept) == (["look"], [])
    run.decide("look", decision)
    assert (run.status, run.state, run.kept) == ("SUCCEEDED", "completed", [(kind, "posted", 1)])
    check(run.world)


def test_a_doubtful_case_that_nobody_looks_at_stays_hidden(office):
    run = Shelf(office, "content_moderation", "doubtful")
    run.world.clock.sleep(12 * 3600 + 5)
    run.execution.expire()
    assert (run.state, run.kept) == ("completed", [("hidden", "posted", 1)])
    check(run.world)


# --- expense claims -------------------------------------------------------------------------------------------------


def test_a_small_claim_within_the_policy_is_paid_and_booked_without_a_manager(office):
    run = Shelf(office, "expense_claim", "train-to-leeds")
    assert (run.state, run.statuses("manager")) == ("completed", ["skipped"])
    assert run.kept == [("reimbursement", "posted", 1), ("booking", "posted", 1)]
    assert run.documents[0]["body"]["amount"] == 64.1
    assert run.documents[1]["body"]["payment"] == run.documents[0]["document"]
    check(run.world)


def test_a_large_claim_waits_for_the_manager_who_sees_what_is_unusual(office):
    run = Shelf(office, "expense_claim", "trade-fair")
    assert run.open_gates == ["manager"]
    assert run.output("policy")["findings"] == ["Hotel, night of the 21st: 214.00 is more than 180 for hotel"]
    assert not run.output("plausible")["plausible"]
    assert "private" in run.world.mail.messages[0].text
    run.decide("manager")
    assert (run.state, [kind for kind, *_ in run.kept]) == ("completed", ["reimbursement", "booking"])
    check(run.world)


def test_nobody_approves_a_claim_of_their_own(office):
    run = Shelf(office, "expense_claim", "trade-fair")
    with pytest.raises(Forbidden):
        run.decide("manager", by="alex@example.test")
    assert PEOPLE["manager"][0].email != "alex@example.test"


def test_a_payment_whose_booking_is_refused_is_taken_back(office):
    office.faults.set({"next": [{"status": 422, "match": "booking"}]})
    run = Shelf(office, "expense_claim", "train-to-leeds")
    assert run.status.startswith("FAILED")
    run.world.unwind()
    assert (run.state, run.kept) == ("failed", [("reimbursement", "voided", 1)])
    assert run.statuses("reimburse") == ["compensated"]
    check(run.world)


def test_a_claim_that_cannot_be_right_is_returned_before_anything_is_paid(office):
    expense = {"date": "yesterday", "category": "meal", "description": "Lunch", "amount": -3}
    given = {"employee": "e", "purpose": "p", "cost_centre": "4120", "currency": "EUR", "expenses": [expense]}
    run = Shelf(office, "expense_claim", given)
    run.world.unwind()
    assert (run.state, run.kept) == ("failed", [])
    assert "Lunch costs -3.00; Lunch has no date" in run.world.records.step("policy").failure.message
    check(run.world)


def test_cancelling_takes_back_what_was_paid(office):
    office.faults.set({"next": [{"status": 500, "match": "booking"}]})
    run = Shelf(office, "expense_claim", "trade-fair")
    request(run.world.steps, run.world.journal, "cancelled", "by ops", UNWIND)
    run.world.unwind()
    assert (run.state, run.kept) == ("cancelled", [])
    check(run.world)
