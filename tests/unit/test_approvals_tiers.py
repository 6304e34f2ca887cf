"""Reminders and tiers as people see them: the letters, the page behind their links, the API."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.approvals.letters import LetterWriter
from shared.runtime.mailing import look
from tests.unit.api_client import ask, data, problem
from tests.unit.page_client import send, text, visit
from tests.unit.waiting_run import FIONA, INVOICE, KEY, LENA, OMAR, URL, waiting

HOUR = 3600
TIERS = {"remind_after": 4.0 * HOUR, "escalate": [{"after": 8.0 * HOUR, "to": ["lead"]}]}


def world_after(hours, **gate):
    world = waiting(**TIERS, **gate)
    for moment in (4.5, 8.5, 13):
        if moment <= hours:
            world.clock.time += int(moment * HOUR * 1000) - (world.clock.now() - opened(world))
            look(world.gates, world.journal(), "review")
    return world


def opened(world):
    return world.journal().read(["GATE#review"]).gate("review").opened


def approval(world):
    return data(ask(world, "GET", "/v1/approvals"))["approvals"][0]


def written(person, **change):
    seen = waiting(**TIERS).journal().read_all()
    (gate,) = seen.gates()
    return LetterWriter(URL, KEY)(replace(gate, **change), seen.run, person, {"invoice": INVOICE})


# --- letters


def test_a_reminder_says_that_it_is_one():
    letter = written(FIONA, to_remind=(FIONA.email,))
    assert letter.subject == "Reminder, decision still needed: Approve invoice from Contoso Büromöbel GmbH"
    for body in (letter.text, letter.html):
        assert "nobody has decided yet" in body
        assert "It is open since 21 September 2026, 14:13 UTC" in body
        assert "escalated" not in body.casefold()
    assert "Signalbox · Reminder" in letter.html


def test_an_escalation_says_that_it_is_one_and_that_the_others_still_may():
    letter = written(LENA, tier=2, to_ask=(LENA.email,))
    assert letter.subject == "Escalated to you, decision needed: Approve invoice from Contoso Büromöbel GmbH"
    for body in (letter.text, letter.html):
        assert "This was escalated to you" in body
        assert "They still may, too." in body
        assert "erp_post" in body
    assert "Lena &lt;Lead&gt;" in letter.html
    assert "<Lead>" not in letter.html


def test_who_is_asked_anew_because_of_a_change_hears_of_the_change_not_of_a_tier():
    letter = written(FIONA, tier=2, to_ask=(FIONA.email,))
    assert letter.subject.startswith("Decision needed: ")


def test_a_subject_of_a_reminder_stays_a_header():
    letter = written(FIONA, to_remind=(FIONA.email,), subject="x\r\nBcc: a@example.com" + "y" * 300)
    assert letter.subject.startswith("Reminder, decision still needed: x Bcc: a@example.com")
    assert len(letter.subject) <= 160


# --- the page


def test_the_page_says_when_it_escalates_to_whom_and_that_it_has_been():
    page = text(visit(world_after(0)))
    assert "Escalates" in page
    assert "to lead" in page
    page = text(visit(world_after(9), person=LENA))
    assert "tier 2" in page
    assert "Escalates" not in page
    assert LENA.name in page


@pytest.mark.parametrize("person", [FIONA, LENA])
def test_links_of_every_tier_decide(person):
    world = world_after(9)
    keep_first_letter(world, person)
    assert send(world, person).status == 200
    gate = world.journal().read(["GATE#review"]).gate("review")
    assert (gate.status, gate.by, gate.tier) == ("approved", person.email, 2)


def keep_first_letter(world, person):
    mine = [message for message in world.outbox.messages if message.to == person.email]
    world.outbox.messages[:] = mine[:1]


def test_who_is_in_two_tiers_is_asked_once():
    world = world_after(9)
    to_omar = [message.subject.partition(":")[0] for message in world.outbox.messages if message.to == OMAR.email]
    assert to_omar == ["Decision needed", "Reminder, decision still needed"]


# --- the API


def test_the_api_shows_who_may_decide_now_and_what_comes_next():
    asked = approval(world_after(0))
    assert (asked["roles"], asked["tier"], asked["reminded_at"]) == (["finance"], 1, None)
    assert asked["next_tier"] == {"at": "2026-09-21T22:13:23.000Z", "roles": ["lead"]}
    assert approval(world_after(5))["reminded_at"] is not None
    asked = approval(world_after(9))
    assert (asked["roles"], asked["tier"], asked["next_tier"]) == (["finance", "lead"], 2, None)


def test_a_token_of_the_next_tier_decides_when_that_has_begun_and_not_before():
    for hours, expected in ((5, 403), (9, 200)):
        world = world_after(hours)
        asked = approval(world)
        lead = world.token("approver", email=LENA.email, approver_roles=["lead"])
        body = {"decision": "approve", "digest": asked["digest"]}
        answer = ask(world, "POST", f"/v1/approvals/{asked['id']}", body, token=lead)
        assert answer.status == expected
        if expected == 403:
            assert problem(answer) == (403, "forbidden")
        else:
            assert (data(answer)["by"], data(answer)["tier"]) == (LENA.email, 2)
