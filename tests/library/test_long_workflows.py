"""Procurement, recruitment, contracts: nested approvals, weeks of waiting, loops."""

from __future__ import annotations

import json

import pytest
from invariants import check
from shelf import Shelf

DAY = 24 * 3600


# --- vendor check and procurement -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("sample", "accepted", "since"), [("known", True, 2014), ("dubious", False, 0)])
def test_a_vendor_is_accepted_or_not(office, sample, accepted, since):
    run = Shelf(office, "vendor_check", sample)
    verdict = run.output("verdict")
    assert (run.state, verdict["accepted"], verdict["known_since"]) == ("completed", accepted, since)
    check(run.world)


def ordering(office, sample):
    run = Shelf(office, "procurement", sample, others=["vendor_check"])
    below, ended = run.child("vendor", "vendor_check")
    assert ended.status == "SUCCEEDED"
    check(below)
    return run


def test_a_small_order_needs_nobody(office):
    run = ordering(office, "pens")
    assert (run.state, run.kept) == ("completed", [("order", "posted", 1)])
    assert run.statuses("manager", "finance", "legal") == ["skipped"] * 3
    assert run.documents[0]["body"]["total"] == 114
    check(run.world)


def test_a_larger_order_needs_the_manager(office):
    run = ordering(office, "desks")
    assert (run.open_gates, run.kept) == (["manager"], [])
    run.decide("manager")
    assert (run.status, run.state, run.kept) == ("SUCCEEDED", "completed", [("order", "posted", 1)])
    assert run.statuses("finance", "legal") == ["skipped"] * 2
    check(run.world)


def test_a_large_order_is_then_decided_by_finance_and_legal_at_the_same_time(office):
    run = ordering(office, "servers")
    assert run.open_gates == ["manager"]
    run.decide("manager")
    assert run.open_gates == ["finance", "legal"]
    run.decide("legal")
    assert (run.open_gates, run.kept) == (["finance"], [])
    run.decide("finance")
    assert (run.state, run.kept) == ("completed", [("order", "posted", 1)])
    check(run.world)


@pytest.mark.parametrize("gate", ["manager", "finance"])
def test_a_rejected_order_is_not_placed(office, gate):
    run = ordering(office, "servers")
    if gate != "manager":
        run.decide("manager")
    run.decide(gate, "rejected")
    assert run.status.startswith("FAILED")
    run.world.unwind()
    assert (run.state, run.kept) == ("failed", [])
    check(run.world)


def test_nothing_is_ordered_from_a_blocked_vendor(office):
    run = ordering(office, "blocked")
    assert (run.state, run.kept, run.open_gates) == ("completed", [], [])
    assert "never came" in run.output("vendor")["outputs"]["verdict"]["grounds"]
    assert set(run.statuses("total", "manager", "finance", "legal", "order")) == {"skipped"}
    check(run.world)


# --- recruitment ----------------------------------------------------------------------------------------------------


def test_an_application_takes_weeks_and_ends_with_an_account_on_the_last_evening(office):
    run = Shelf(office, "recruitment", "gardener")
    assert (run.status, run.kept) == ("RUNNING", [("invitation", "posted", 1)])
    run.world.clock.sleep(9 * DAY)
    assert run.tell("e1", "interview_held", {"notes": "Good, but one open question about budgets."})
    assert run.output("interviews[1]/assess")["recommendation"] == "interview_again"
    run.world.clock.sleep(12 * DAY)
    assert run.tell("e2", "interview_held", {"notes": "Convincing about budgets. The team was impressed."})
    assert (run.open_gates, run.output("interviews")["iterations"]) == (["offer_gate"], 2)
    run.decide("offer_gate")
    assert run.kept[1:] == [("offer", "posted", 1)]
    assert run.tell("e3", "offer_answered", {"accepted": True, "starts": "2027-01-04"})
    assert (run.status, run.state) == ("SUCCEEDED", "completed")
    assert run.kept[2:] == [("account", "posted", 1)]
    assert run.world.clock.now() == 1_798_999_200_000  # 2027-01-03, 18:00 UTC
    check(run.world)


def test_the_second_assessment_knows_the_first(office):
    run = Shelf(office, "recruitment", "gardener")
    run.tell("e1", "interview_held", {"notes": "Should meet the team."})
    run.tell("e2", "interview_held", {"notes": "Fine."})
    prompts = [one.prompt for one in run.world.models.requests]
    assert "The assessment before: none" in prompts[1]
    assert "The assessment before: The notes leave a question open." in prompts[2]


def test_an_event_that_does_not_match_is_kept_and_an_early_one_is_used_later(office):
    run = Shelf(office, "recruitment", "gardener")
    assert not run.tell("e1", "interview_held", {"by": "phone"})
    assert not run.tell("e2", "offer_answered", {"accepted": False})
    assert run.tell("e3", "interview_held", {"notes": "Convincing."})
    run.decide("offer_gate")
    assert (run.state, run.statuses("day_before", "account")) == ("completed", ["skipped", "skipped"])
    assert run.output("answer")["event"] == {"accepted": False}
    check(run.world)


def test_an_unsuitable_application_is_left_to_a_person(office):
    run = Shelf(office, "recruitment", "unsuitable")
    assert (run.state, run.kept) == ("completed", [])
    check(run.world)


def test_a_candidate_who_does_not_convince_gets_no_offer(office):
    run = Shelf(office, "recruitment", "gardener")
    run.tell("e1", "interview_held", {"notes": "Came late and unprepared."})
    assert (run.state, [kind for kind, *_ in run.kept]) == ("completed", ["invitation"])
    check(run.world)


def test_a_rejected_offer_withdraws_the_invitation_and_sends_nothing(office):
    run = Shelf(office, "recruitment", "gardener")
    run.tell("e1", "interview_held", {"notes": "Convincing."})
    run.decide("offer_gate", "rejected")
    run.world.unwind()
    assert (run.state, run.kept) == ("failed", [("invitation", "voided", 1)])
    check(run.world)


def test_an_interview_that_never_happens_pauses_the_run(office):
    run = Shelf(office, "recruitment", "gardener")
    run.world.clock.sleep(30 * DAY + 10)
    run.execution.expire()
    assert run.state == "paused"
    check(run.world)


# --- contract drafting ----------------------------------------------------------------------------------------------


def headings(run, iteration):
    return [clause["heading"] for clause in run.output(f"revise[{iteration}]/draft")["clauses"]]


def test_a_contract_is_revised_until_the_reviewer_is_content(office):
    run = Shelf(office, "contract_drafting", "website")
    assert run.output("revise")["iterations"] == 3
    assert headings(run, 1) == ["Services", "Payment"]
    assert headings(run, 2) == ["Services", "Payment", "Liability"]
    assert headings(run, 3) == ["Services", "Payment", "Liability", "Termination"]
    run.decide("sign_off")
    assert (run.state, run.kept) == ("completed", [("contract", "posted", 1)])
    assert len(run.documents[0]["body"]["clauses"]) == 4
    check(run.world)


def test_a_complete_contract_is_reviewed_once(office):
    run = Shelf(office, "contract_drafting", "complete")
    assert run.output("revise")["iterations"] == 1
    assert run.open_gates == ["sign_off"]
    check(run.world)


def never_content(request):
    clause = {"heading": "Services", "text": "Say more."}
    return json.dumps({name: [clause] for name in request.schema["properties"]})


def test_a_reviewer_who_is_never_content_is_stopped_and_a_person_asked(office):
    run = Shelf(office, "contract_drafting", "website", models=never_content)
    assert (run.state, len(run.world.models.requests)) == ("paused", 8)
    assert run.world.records.step("revise").failure.error_class == "permanent"
    assert run.kept == []
    check(run.world)
