"""Dead letters over HTTP: which there are, how their runs stand, and that somebody has seen to one."""

from __future__ import annotations

from shared.ledger.records import Dead, dead_letters
from shared.runtime.journal import Change
from tests.unit.api_client import ask, data, problem
from tests.unit.waiting_run import TENANT, waiting


def test_dead_letters_are_listed_by_tenant_and_workflow():
    world = waiting()
    letter = Dead(
        path="extract",
        workflow="invoice",
        error_class="permanent",
        message="no",
        attempts=2,
        on_error="fail",
        opened=1_790_000_000_000,
        tenant_pending=dead_letters(TENANT),
    )
    world.journal().transact(world.journal().read([]), lambda _: Change(None, (letter,)))
    (found,) = data(ask(world, "GET", "/v1/dead-letters"))["dead_letters"]
    assert (found["run"], found["path"], found["attempts"]) == (world.run, "extract", 2)
    assert found["error"] == {"class": "permanent", "message": "no"}
    assert (found["top"], found["state"]) == (world.run, "waiting_for_human")
    assert data(ask(world, "GET", "/v1/dead-letters?workflow=other"))["dead_letters"] == []
    assert problem(ask(world, "GET", "/v1/dead-letters?workflow=A")) == (400, "invalid_parameter")
    assert len(data(ask(world, "GET", "/v1/approvals"))["approvals"]) == 1, "they are no approvals"


def test_a_dead_letter_is_dismissed_once():
    world = waiting()
    told = {"path": "extract", "workflow": "invoice", "error_class": "permanent", "message": "no", "attempts": 2}
    letter = Dead(**told, on_error="continue", opened=1, tenant_pending=dead_letters(TENANT))
    world.journal().transact(world.journal().read([]), lambda _: Change(None, (letter,)))
    path = f"/v1/runs/{world.run}/dead-letters/dismiss"
    assert problem(ask(world, "POST", path, {"path": "post"})) == (404, "no_dead_letter")
    assert data(ask(world, "POST", path, {"path": "extract"})) == {"run": world.run, "dismissed": ["extract"]}
    assert data(ask(world, "GET", "/v1/dead-letters")) == {"dead_letters": []}
    assert problem(ask(world, "POST", path)) == (404, "no_dead_letter")
    assert problem(ask(world, "POST", path, {"path": 5}))[0] == 400
