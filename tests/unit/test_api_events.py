"""Events from outside, through the API: delivered, kept, recognised when repeated, refused when the run has ended."""

from __future__ import annotations

from tests.unit.api_client import ask, data, problem
from tests.unit.waiting_run import waiting


def test_an_event_that_nobody_waits_for_yet_is_kept_once():
    world = waiting()
    path = f"/v1/runs/{world.run}/events"
    body = {"name": "paid", "data": {"amount": 5}}
    first = data(ask(world, "POST", path, body, headers={"idempotency-key": "bank-1"}))
    assert first == {"run": world.run, "event": "bank-1", "used": False}
    assert data(ask(world, "POST", path, body, headers={"idempotency-key": "bank-1"})) == first
    events = [event.type for event in world.journal().events()]
    assert events.count("event_received") == 1


def test_bad_events_are_refused():
    world = waiting()
    path = f"/v1/runs/{world.run}/events"
    assert problem(ask(world, "POST", path, {}))[0] == 400
    assert problem(ask(world, "POST", path, {"name": "x" * 101}))[0] == 400
    assert problem(ask(world, "POST", path, {"name": "paid", "more": 1}))[0] == 400
    assert problem(ask(world, "POST", path, {"name": "paid"}, token=world.token("viewer")))[0] == 403


def test_a_run_that_ends_takes_no_events():
    world = waiting()
    ask(world, "POST", f"/v1/runs/{world.run}/cancel", {})
    answer = ask(world, "POST", f"/v1/runs/{world.run}/events", {"name": "paid"})
    assert problem(answer) == (409, "run_ended")
