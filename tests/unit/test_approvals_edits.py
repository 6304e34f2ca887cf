"""Approving with changes, and with others, on the page: what is typed, what is refused, what is shown."""

from __future__ import annotations

import html
import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from shared.approvals.changes import fields, read
from shared.runtime.mailing import ask_again
from tests.unit.page_client import FORM, send, status, text, visit
from tests.unit.waiting_run import EDIT, FIONA, OMAR, TENANT, waiting

if TYPE_CHECKING:
    from shared.settings import Person


def gate(world):
    return world.journal().read_all().gate("review")


def typed(page):
    """Return what the form's fields hold."""
    found = re.findall(r'<input id="(change\.\w+)"[^>]* value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found}


def test_the_form_shows_what_may_be_changed_as_it_is():
    page = visit(waiting(edit=EDIT)).body
    assert typed(page) == {"change.amount": "8420.5", "change.currency": "EUR"}
    assert "Approve with changes" in page
    assert "Approve with changes" not in visit(waiting()).body


def test_what_is_typed_is_approved_and_shown():
    world = waiting(edit=EDIT)
    asked = gate(world).digest
    fields = {"change.amount": "8000", "change.currency": "EUR"}
    answer = send(world, decision="edit", **fields)
    assert (answer.status, status(world)) == (200, "approved")
    assert '"amount":8000' in gate(world).arguments.text
    assert (gate(world).edited, gate(world).changes.text) == (asked, '{"amount":8000}')
    assert "Changed since it was asked amount 8000" in text(answer)


@pytest.mark.parametrize(
    ("decision", "given", "told"),
    [
        ("edit", {"change.amount": "viel"}, "amount: This is not JSON"),
        ("edit", {"change.amount": "-1"}, "-1 is less than the minimum of 0"),
        ("edit", {"change.amount": ""}, "amount: None is not of type"),
        ("edit", {"change.amount": "NaN"}, "amount: This is not JSON"),
        ("edit", {"change.currency": "sk-ant-" + "a" * 40}, "It looks like a secret"),
        ("edit", {"change.amount": "8420.50"}, "Nothing was changed"),
        ("approve", {"change.amount": "8000"}, "You have changed amount. Choose Approve with changes"),
    ],
)
def test_what_does_not_fit_decides_nothing_and_stays_in_the_form(decision, given, told):
    world = waiting(edit=EDIT)
    answer = send(world, decision=decision, **given)
    assert (answer.status, status(world)) == (422, "open")
    assert told in text(answer)
    assert given.items() <= typed(answer.body).items()


def test_an_edit_where_nothing_may_be_changed_is_refused():
    world = waiting()
    assert send(world, decision="edit", **{"change.amount": "1"}).status == 422
    assert status(world) == "open"


def test_a_rejection_does_not_mind_what_was_typed():
    world = waiting(edit=EDIT)
    assert send(world, decision="reject", **{"change.amount": "viel"}).status == 200
    assert status(world) == "rejected"


def form(page, **more):
    shown = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)) | typed(page)
    return urlencode(shown | more)


def test_who_had_the_page_open_approves_nothing_that_was_changed_since():
    world = waiting(edit=EDIT, quorum=2)
    before = visit(world, person=OMAR).body
    send(world, FIONA, decision="edit", **{"change.amount": "8000"})
    for decision in ("approve", "edit", "reject"):
        given = form(before, decision=decision, signature="OL")
        answer = visit(world, "POST", OMAR, body=given, headers=FORM)
        assert answer.status == 409
        assert "What would run is not what was shown" in text(answer)
        assert typed(answer.body)["change.amount"] == "8000", "what is asked now"
    assert (status(world), len(gate(world).votes)) == ("open", 1)
    assert send(world, OMAR).status == 200
    assert status(world) == "approved"


def test_a_form_sent_twice_counts_once():
    for quorum in (1, 2):
        world = waiting(edit=EDIT, quorum=quorum)
        given = form(visit(world).body, decision="edit", signature="FÅ", **{"change.amount": "8000"})
        for _ in range(2):
            assert visit(world, "POST", body=given, headers=FORM).status == 200
        assert len(gate(world).votes) == 1


def test_two_people_approve_and_the_page_says_who_has():
    world = waiting(quorum=2)
    assert "Waiting for a decision: 0 of 2 approvals" in text(visit(world))
    first = send(world, FIONA, note="fine")
    assert (first.status, status(world)) == (200, "open")
    assert "You have approved this." in text(first)
    assert 'value="approve"' not in first.body
    seen = text(visit(world, person=OMAR))
    assert "1 of 2 approvals" in seen
    assert "So far: Fiona Ångström." in seen
    last = send(world, OMAR)
    assert (last.status, status(world)) == (200, "approved")
    assert "Approved by Fiona Ångström" in text(last)
    assert "Approved by Omar Lead" in text(last)


def test_the_mail_says_how_many_must_approve_and_that_it_was_changed():
    world = waiting(edit=EDIT, quorum=2)
    letter = world.outbox.messages[0]
    for body in (letter.text, letter.html):
        assert "2 people must approve it; it has 0 of 2 approvals so far" in body
        assert "approve it with changes" in body
    send(world, FIONA, decision="edit", **{"change.amount": "8000"})
    ask_again(world.gates, {"tenant": TENANT, "run": world.run, "path": "review"})
    again = world.outbox.messages[2:]
    assert [letter.to for letter in again] == [OMAR.email]
    assert "Somebody has approved it with changes" in again[0].text
    assert "1 of 2 approvals" in again[0].text
    assert "8000" in again[0].text


STRANGE = {
    "plain": "a",
    "lines": "a\nb",
    "ends": "a\r\nb",
    "hidden": "a\u202eb",
    "deep": {"a": [1, {"b": None}]},
    "no": None,
}
"""Values that a form may not send back as they were, if it showed them as they are."""


def test_what_is_left_as_it_is_is_never_a_change():
    schema = {"properties": {name: {"type": "string"} for name in (*STRANGE, "missing")}}
    shown = {field.name: field.shown for field in fields(schema, STRANGE)}
    assert read(schema, STRANGE, shown) == ({}, {})
    assert all(text.isprintable() or text == "a\nb" for text in shown.values())


def test_objects_are_changed_by_what_differs():
    schema = {"properties": {"deep": {"type": "object"}, "lines": {"type": "array"}}}
    now = {"deep": {"a": 1, "b": {"c": 2, "d": 3}}, "lines": [1, 2]}
    given = {"deep": '{"a": 1, "b": {"c": 5}}', "lines": "[1]"}
    assert read(schema, now, given) == ({"deep": {"b": {"c": 5, "d": None}}, "lines": [1]}, {})


def test_of_many_at_once_each_person_counts_once_and_all_that_are_needed_count():
    world = waiting(quorum=2)
    answers: list[int] = []

    page = visit(world).body

    def approve(person: Person) -> None:
        given = form(page, decision="approve", signature=person.initials)
        answers.append(visit(world, "POST", person, body=given, headers=FORM).status)

    threads = [threading.Thread(target=approve, args=(person,)) for person in (FIONA, OMAR) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (status(world), set(answers)) == ("approved", {200})
    assert {vote["by"] for vote in gate(world).votes} == {FIONA.email, OMAR.email}
    kinds = [event.type for event in world.journal().events()]
    assert (kinds.count("gate_voted"), kinds.count("gate_decided")) == (1, 1)
    assert {answer[:2] for answer in world.engine.answers} == {("token-review", "success")}
