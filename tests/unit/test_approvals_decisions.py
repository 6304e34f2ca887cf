"""A signed form decides, once; anything else decides nothing."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from shared.approvals.forms import Form, is_signed
from shared.settings import Person
from tests.unit.page_client import FORM, send, status, text, visit
from tests.unit.waiting_run import FIONA, OMAR, waiting

if TYPE_CHECKING:
    from shared.api.web import Response


# deciding


@pytest.mark.parametrize(("decision", "outcome"), [("approve", "approved"), ("reject", "rejected")])
def test_a_signed_form_decides(decision: str, outcome: str):
    world = waiting()
    answer = send(world, decision=decision, note="Checked.\r\nTwice.")
    assert answer.status == 200
    (gate,) = world.journal().read_all().gates()
    assert (gate.status, gate.by, gate.note) == (outcome, FIONA.email, "Checked.\nTwice.")
    assert "Decided by Fiona Ångström on 21 September 2026, 14:14 UTC" in text(answer)
    kinds = {"approved": "success", "rejected": "failure"}
    assert [(each[0], each[1]) for each in world.engine.answers] == [("token-review", kinds[outcome])]


def test_sending_twice_decides_once_and_shows_the_same():
    world = waiting()
    page = visit(world).body
    digest = re.findall(r'name="digest" value="(\w+)"', page)[0]
    body = urlencode({"decision": "approve", "signature": "få", "note": "a", "digest": digest})
    first = visit(world, "POST", body=body, headers=FORM)
    records = dict(world.store.items)
    again = visit(world, "POST", body=body.replace("note=a", "note=b"), headers=FORM)
    assert (first.status, again.status) == (200, 200)
    assert text(first) == text(again)
    assert world.store.items == records


def test_a_repeated_decision_sends_an_answer_again_that_was_lost():
    world = waiting()

    class Losing(type(world.engine)):
        lost = False

        def succeed(self, token, output):
            if not self.lost:
                self.lost = True
                raise ConnectionError("the answer was lost")
            return super().succeed(token, output)

    world.engine = Losing()
    digest = re.findall(r'name="digest" value="(\w+)"', visit(world).body)[0]
    body = urlencode({"decision": "approve", "signature": "FÅ", "digest": digest})
    first = visit(world, "POST", body=body, headers=FORM)
    assert (first.status, status(world)) == (500, "approved")
    assert "Nothing was decided" not in first.body
    assert visit(world, "POST", body=body, headers=FORM).status == 200
    assert world.engine.answers == [("token-review", "success", {"status": "completed", "route": ""})]


def test_later_visitors_see_who_decided():
    world = waiting()
    send(world, note="Looks right")
    world.clock.sleep(48 * 3600)
    for person in (FIONA, OMAR):
        answer = visit(world, person=person)
        assert answer.status == 200
        shown = text(answer)
        assert "Decided by Fiona Ångström on 21 September 2026, 14:14 UTC" in shown
        assert "Looks right" in shown
        assert f"This link is for {person.name}" in shown
        assert "<form" not in answer.body


def test_the_second_of_two_approvers_is_told_that_it_is_decided():
    world = waiting()
    page = visit(world, person=OMAR).body
    digest = re.findall(r'name="digest" value="(\w+)"', page)[0]
    send(world, FIONA)
    body = urlencode({"decision": "reject", "signature": "OL", "digest": digest})
    answer = visit(world, "POST", OMAR, body=body, headers=FORM)
    assert answer.status == 409
    assert "Decided by Fiona Ångström" in text(answer)
    assert status(world) == "approved"


def test_of_many_decisions_at_once_one_counts():
    world = waiting()
    digest = re.findall(r'name="digest" value="(\w+)"', visit(world).body)[0]
    answers: list[Response] = []

    def decide(person: Person, decision: str) -> None:
        body = urlencode({"decision": decision, "signature": person.initials, "digest": digest})
        answers.append(visit(world, "POST", person, body=body, headers=FORM))

    pairs = [(person, decision) for person in (FIONA, OMAR) for decision in ("approve", "reject")] * 2
    threads = [threading.Thread(target=decide, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    decided = [event for event in world.journal().events() if event.type == "gate_decided"]
    assert len(decided) == 1
    assert {answer.status for answer in answers} == {200, 409}
    assert sorted(answer.status for answer in answers).count(200) == 2


@pytest.mark.parametrize(
    "signature", ["", " ", "FA", "F Å", "Omar Lead", "OL", "fiona@example.com", "Fiona", "approve"]
)
def test_a_form_that_is_not_signed_decides_nothing_and_is_kept(signature: str):
    world = waiting()
    answer = send(world, signature=signature, note='My "note" <b>')
    assert answer.status == 422
    assert status(world) == "open"
    assert "My &#34;note&#34; &lt;b&gt;</textarea>" in answer.body
    assert 'aria-invalid="true"' in answer.body
    assert "Nothing was decided yet" in answer.body
    assert send(world, signature="fiona  ÅNGSTRÖM").status == 200


@pytest.mark.parametrize(
    ("typed", "person"),
    [
        ("FÅ", FIONA),
        (" fa\u030a ", FIONA),
        ("FIONA ÅNGSTRÖM", FIONA),
        ("fiona\u00a0 a\u030angstro\u0308m", FIONA),
        ("STRASSE", Person("Straße", "ß", "s@example.com")),
        ("ss", Person("Straße", "ß", "s@example.com")),
        ("\uff21\uff22", Person("A B", "AB", "ab@example.com")),
    ],
)
def test_case_spacing_and_unicode_form_of_a_signature_do_not_matter(typed: str, person: Person):
    assert is_signed(Form(signature=typed), person)


def test_nobody_without_initials_is_signed_by_nothing():
    assert not is_signed(Form(signature=""), Person("Ann", "", "a@example.com"))
    assert not is_signed(Form(signature=" "), Person("", "", "a@example.com"))


@pytest.mark.parametrize("fields", [{"decision": ""}, {"decision": "approved"}, {"note": "x" * 2001}])
def test_an_incomplete_form_is_shown_again(fields: dict[str, str]):
    world = waiting()
    assert send(world, **fields).status == 422
    assert status(world) == "open"


@pytest.mark.parametrize("digest", ["0" * 64, ""])
def test_a_decision_on_something_else_than_was_shown_is_refused(digest: str):
    world = waiting()
    answer = send(world, digest=digest)
    assert answer.status == 409
    assert "What would run is not what was shown" in text(answer)
    assert status(world) == "open"


def test_a_form_without_digest_is_refused():
    world = waiting()
    answer = visit(world, "POST", body="decision=approve&signature=F%C3%85", headers=FORM)
    assert (answer.status, status(world)) == (409, "open")


# who sends the form


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"origin": "null"}, True),
        ({"origin": "null", "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"origin": "http://localhost:4566", "host": "localhost:4566"}, True),
        ({"origin": "https://evil.example", "host": "localhost:4566"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site", "origin": "null"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://localhost:4566", "host": "localhost:4566"}, False),
    ],
)
def test_a_form_from_another_site_is_refused_and_a_real_browser_never(headers, allowed):
    world = waiting()
    assert send(world, headers=headers).status == (200 if allowed else 403)
    assert status(world) == ("approved" if allowed else "open")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"body": "decision=approve", "headers": {"content-type": "application/json"}}, 415),
        ({"body": "decision=approve", "headers": {}}, 415),
        ({"body": "x=" + "a" * 300_000, "headers": FORM}, 413),
        ({"body": "***", "headers": FORM, "isBase64Encoded": True}, 400),
        ({"body": "&".join(f"a{n}=1" for n in range(250)), "headers": FORM}, 400),
        ({"body": "signature=%FF%FE&decision=approve", "headers": FORM}, 400),
        ({"body": "", "headers": FORM}, 422),
        ({"body": "&&&==", "headers": FORM}, 422),
    ],
)
def test_a_form_that_no_browser_sends_is_refused(more, expected: int):
    world = waiting()
    assert visit(world, "POST", **more).status == expected
    assert status(world) == "open"
