"""Decisions over HTTP: exactly what was shown, once, by those who are asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.api_client import ask, data, problem
from tests.unit.waiting_run import EDIT, World, waiting


def approval(world: World) -> dict[str, Any]:
    return data(ask(world, "GET", "/v1/approvals"))["approvals"][0]


def test_an_approver_decides_exactly_what_was_shown():
    world = waiting()
    asked = approval(world)
    assert asked["arguments"] == {"vendor": "Contoso Büromöbel GmbH", "amount": 8420.5, "currency": "EUR"}
    token = world.token("approver", email="fiona@example.com", approver_roles=["finance"])
    body = {"decision": "approve", "digest": asked["digest"], "note": "fine"}
    for _ in range(2):
        decided = data(ask(world, "POST", f"/v1/approvals/{asked['id']}", body, token=token))
        assert (decided["status"], decided["by"], decided["note"]) == ("approved", "fiona@example.com", "fine")
    assert ("token-review", "success", {"status": "completed", "route": ""}) in world.engine.answers
    assert data(ask(world, "GET", "/v1/approvals"))["approvals"] == []
    assert data(ask(world, "GET", f"/v1/approvals/{asked['id']}"))["status"] == "approved"
    other = world.token("admin", email="omar@example.com")
    late = ask(world, "POST", f"/v1/approvals/{asked['id']}", {**body, "decision": "reject"}, token=other)
    assert problem(late) == (409, "already_decided")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"digest": "0" * 64}, (409, "digest_mismatch")),
        ({"digest": ""}, (409, "digest_mismatch")),
        ({"digest": None}, (400, "invalid_field")),
        ({"decision": "approved"}, (400, "invalid_field")),
        ({"decision": {}}, (400, "invalid_field")),
        ({"note": "x" * 2001}, (400, "invalid_field")),
        ({"edit": {}}, (400, "unknown_field")),
        ({"changes": {"amount": 1}}, (400, "invalid_field")),
        ({"decision": "edit"}, (400, "invalid_field")),
        ({"decision": "edit", "changes": {}}, (400, "invalid_field")),
        ({"decision": "edit", "changes": [1]}, (400, "invalid_field")),
        ({"decision": "edit", "changes": {"amount": 1}}, (422, "invalid_changes")),
    ],
)
def test_a_decision_on_anything_else_is_refused(change, expected):
    world = waiting()
    asked = approval(world)
    token = world.token("approver", email="fiona@example.com", approver_roles=["finance"])
    body = {"decision": "approve", "digest": asked["digest"], **change}
    assert problem(ask(world, "POST", f"/v1/approvals/{asked['id']}", body, token=token)) == expected
    assert approval(world)["status"] == "open"


def test_a_decision_without_a_digest_is_refused():
    world = waiting()
    answer = ask(world, "POST", f"/v1/approvals/{approval(world)['id']}", {"decision": "approve"})
    assert problem(answer)[0] == 400


def test_only_the_groups_that_are_asked_decide_and_never_the_initiator():
    world = waiting()
    asked = approval(world)
    body = {"decision": "approve", "digest": asked["digest"]}
    path = f"/v1/approvals/{asked['id']}"
    legal = world.token("approver", email="l@example.com", approver_roles=["legal"])
    assert problem(ask(world, "POST", path, body, token=legal)) == (403, "forbidden")
    initiator = world.token("approver", email="ina@example.com", approver_roles=["finance"])
    assert problem(ask(world, "POST", path, body, token=initiator)) == (403, "initiator")


def test_after_its_deadline_nothing_is_decided():
    world = waiting()
    asked = approval(world)
    world.clock.sleep(25 * 3600)
    body = {"decision": "approve", "digest": asked["digest"]}
    token = world.token("admin", email="omar@example.com")
    assert problem(ask(world, "POST", f"/v1/approvals/{asked['id']}", body, token=token)) == (409, "expired")


def test_an_approver_changes_what_may_be_changed():
    world = waiting(edit=EDIT)
    asked = approval(world)
    assert (asked["edit"], asked["edited"], asked["quorum"], asked["approved_by"]) == (EDIT, None, 1, [])
    token = world.token("approver", email="fiona@example.com", approver_roles=["finance"])
    path, body = f"/v1/approvals/{asked['id']}", {"decision": "edit", "digest": asked["digest"]}
    for changes, told in (({"amount": "much"}, "changes.amount: "), ({"vendor": "x"}, "changes.vendor: ")):
        refused = ask(world, "POST", path, {**body, "changes": changes}, token=token)
        assert problem(refused) == (422, "invalid_changes")
        assert json.loads(refused.body)["detail"].startswith(told)
    for _ in range(2):
        decided = data(ask(world, "POST", path, {**body, "changes": {"amount": 8000}}, token=token))
        assert (decided["status"], decided["arguments"]["amount"]) == ("approved", 8000)
        assert (decided["edited"], decided["changes"]) == (asked["digest"], {"amount": 8000})
    old = ask(world, "POST", path, {"decision": "approve", "digest": asked["digest"]}, token=token)
    assert problem(old) == (409, "already_decided")


def test_a_quorum_shows_who_has_approved():
    world = waiting(quorum=2)
    asked = approval(world)
    body = {"decision": "approve", "digest": asked["digest"], "note": "fine"}
    for name, status in (("fiona", "open"), ("fiona", "open"), ("omar", "approved")):
        token = world.token("approver", email=f"{name}@example.com", approver_roles=["finance"])
        decided = data(ask(world, "POST", f"/v1/approvals/{asked['id']}", body, token=token))
        assert decided["status"] == status
    assert [vote["by"] for vote in decided["approved_by"]] == ["fiona@example.com", "omar@example.com"]
    assert decided["quorum"] == 2
