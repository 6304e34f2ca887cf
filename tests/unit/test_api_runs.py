"""Runs over HTTP: starting, listing, looking, cancelling, resuming."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from shared.api.inputs import usd_field
from shared.api.problems import Unavailable
from shared.errors import InvalidRequest
from shared.ports import Key, Write
from shared.runtime.breaker import Breaker
from shared.runtime.journal import Change
from tests.unit.api_client import ask, data, problem
from tests.unit.waiting_run import TENANT, World, fresh, waiting

ID = "01M3250V00MRCMF029XDHYCAZ4"
TRICKY = [
    "x",
    "../..",
    "%2e%2e",
    "a" * 300,
    "01m3250v00mrcmf029xdhycaz4",
    "8" * 26,
    "\r\nset-cookie: a=b",
    "'\"<>",
    "\x00",
]


# starting


def test_a_run_starts_and_can_be_found_where_location_says():
    world = fresh()
    answer = ask(world, "POST", "/v1/workflows/invoice/runs", {"input": {"document": "x"}})
    run = data(answer)["run"]
    assert answer.status == 201
    assert answer.headers["location"] == f"../../runs/{run}"
    shown = data(ask(world, "GET", f"/v1/runs/{run}"))
    assert (shown["initiator"], shown["trigger"], shown["state"]) == ("ina@example.com", "api", "pending")


def test_one_idempotency_key_makes_one_run():
    world = fresh()
    key = {"idempotency-key": "order-17"}
    first = ask(world, "POST", "/v1/workflows/invoice/runs", {"input": {"document": "x"}}, headers=key)
    again = ask(world, "POST", "/v1/workflows/invoice/runs", {"input": {"document": "x"}}, headers=key)
    other = ask(world, "POST", "/v1/workflows/invoice/runs", {"input": {"document": "y"}}, headers=key)
    assert (first.status, again.status) == (201, 200)
    assert data(first)["run"] == data(again)["run"]
    assert data(again)["new"] is False
    assert problem(other) == (409, "idempotency_mismatch")
    assert len(data(ask(world, "GET", "/v1/runs"))["runs"]) == 1


@pytest.mark.parametrize("key", ["", "a b", "a" * 201, "ключ", "a\r\nb", "a\tb"])
def test_an_unusable_idempotency_key_is_refused(key: str):
    answer = ask(
        fresh(), "POST", "/v1/workflows/invoice/runs", {"input": {"document": "x"}}, headers={"idempotency-key": key}
    )
    assert problem(answer) == (400, "invalid_key")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"input": []}, "invalid_field"),
        ({"input": None}, "invalid_field"),
        ({"inptu": {}}, "unknown_field"),
        ({"input": {"document": "x"}, "version": 0}, "invalid_field"),
        ({"input": {"document": "x"}, "version": True}, "invalid_field"),
        ({"input": {"document": "x"}, "version": 1.5}, "invalid_field"),
        ({"input": {"document": "x"}, "version": 10**16}, "invalid_body"),
        ({"input": {"document": 5}}, "invalid_request"),
        ({}, "invalid_request"),
        ([], "invalid_body"),
        ("x", "invalid_body"),
    ],
)
def test_a_start_that_makes_no_sense_is_refused(body, code: str):
    assert problem(ask(fresh(), "POST", "/v1/workflows/invoice/runs", body)) == (400, code)


def test_an_unknown_field_gets_the_nearest_name():
    answer = ask(fresh(), "POST", "/v1/workflows/invoice/runs", {"inptu": {}})
    assert "Did you mean input?" in json.loads(answer.body)["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nope",
        b'{"input": NaN}',
        b'{"input": {"document": Infinity}}',
        b'{"input": {"document": ' + b"9" * 5000 + b"}}",
        b'{"input": {"document": 9007199254740993}}',
        b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"input": {"document": "\\ud800"}}',
        b"\xff\xfe",
    ],
)
def test_what_is_not_interoperable_json_is_refused(body: bytes):
    assert problem(ask(fresh(), "POST", "/v1/workflows/invoice/runs", body)) == (400, "invalid_body")


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data; a=b"])
def test_another_content_type_is_refused(kind: str):
    answer = ask(fresh(), "POST", "/v1/workflows/invoice/runs", {"input": {}}, headers={"content-type": kind})
    assert problem(answer) == (415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"])
def test_every_json_content_type_is_read(kind: str):
    body = {"input": {"document": "x"}}
    answer = ask(fresh(), "POST", "/v1/workflows/invoice/runs", body, headers={"content-type": kind})
    assert answer.status == 201


@pytest.mark.parametrize("name", ["unknown", "Invoice", "a b", "..", "%00", "x" * 80])
def test_an_unknown_workflow_is_not_found(name: str):
    assert ask(fresh(), "POST", f"/v1/workflows/{name}/runs", {"input": {}}).status == 404
    assert ask(fresh(), "GET", f"/v1/workflows/{name}").status == 404


def test_when_the_start_function_does_not_answer_the_request_may_be_repeated():
    world = fresh()

    def down(_payload):
        raise Unavailable("Send it again.")

    object.__setattr__(world, "start", down)
    answer = ask(world, "POST", "/v1/workflows/invoice/runs", {"input": {"document": "x"}})
    assert problem(answer) == (503, "unavailable")
    assert answer.headers["retry-after"] == "1"


# reading


def many_runs(world: World, count: int) -> list[str]:
    """Start ``count`` runs, three of them in every millisecond."""
    ids = list[str]()
    for number in range(count):
        payload = {"tenant": TENANT, "initiator": "i", "trigger": "api", "workflow": "invoice", "version": 1}
        ids.append(world.start({**payload, "input": {"document": str(number)}})["run"])
        world.clock.time += number % 3 == 2
    return ids


@pytest.mark.parametrize("filters", ["", "&workflow=invoice", "&state=pending", "&workflow=invoice&state=pending"])
def test_lists_can_be_paged_to_their_end_without_gap_or_repetition(filters: str):
    world = fresh()
    ids = many_runs(world, 23)
    seen, before = list[str](), ""
    while before is not None:
        page = data(ask(world, "GET", f"/v1/runs?limit=4{filters}{before and f'&before={before}'}"))
        seen += [run["id"] for run in page["runs"]]
        assert len(page["runs"]) <= 4
        before = page["next"]
    assert sorted(seen) == sorted(ids)
    assert len(set(seen)) == 23


def test_lists_are_filtered():
    world = waiting()
    assert data(ask(world, "GET", "/v1/runs?state=failed"))["runs"] == []
    assert data(ask(world, "GET", "/v1/runs?workflow=other"))["runs"] == []
    assert data(ask(world, "GET", "/v1/runs?workflow=invoice&state=failed"))["runs"] == []
    assert [run["id"] for run in data(ask(world, "GET", "/v1/runs?workflow=invoice"))["runs"]] == [world.run]


@pytest.mark.parametrize(
    "query",
    [
        *("limit=0", "limit=101", "limit=-1", "limit=x", "limit=\u0663", "limit=1,2", "limit=" + "9" * 400),
        *("state=done", "before=x", "workflow=A", "workflow=a%0d", "limits=3"),
    ],
)
def test_a_bad_query_is_refused_by_name(query: str):
    answer = ask(fresh(), "GET", f"/v1/runs?{query}")
    status, code = problem(answer)
    assert (status, code in {"invalid_parameter", "unknown_parameter", "invalid_id"}) == (400, True)


def test_events_are_gapless_and_can_be_read_in_pieces():
    world = waiting()
    every = data(ask(world, "GET", f"/v1/runs/{world.run}/events"))
    assert [event["seq"] for event in every["events"]] == list(range(1, len(every["events"]) + 1))
    pieces, after = list[Any](), 0
    while True:
        page = data(ask(world, "GET", f"/v1/runs/{world.run}/events?after={after}&limit=2"))
        if not page["events"]:
            break
        pieces += page["events"]
        after = page["next"]
    assert pieces == every["events"]
    assert page["next"] == data(ask(world, "GET", f"/v1/runs/{world.run}"))["seq"]


@pytest.mark.parametrize("text", TRICKY)
def test_what_is_no_id_is_refused(text: str):
    world = fresh()
    for path in (f"/v1/runs/{text}", f"/v1/runs/{text}/events", f"/v1/approvals/{text}", f"/v1/workflows/{text}"):
        answer = ask(world, "GET", path)
        assert answer.status in {400, 404}
        assert not any("\n" in value or "\r" in value for value in answer.headers.values())


def test_an_id_that_does_not_exist_is_not_found():
    for path in (f"/v1/runs/{ID}", f"/v1/runs/{ID}/steps", f"/v1/runs/{ID}/events", f"/v1/approvals/{ID}.{'a' * 16}"):
        assert problem(ask(fresh(), "GET", path)) == (404, "not_found")


def test_workflows_are_listed_and_shown():
    world = waiting()
    (listed,) = data(ask(world, "GET", "/v1/workflows"))["workflows"]
    assert (listed["workflow"], listed["version"]) == ("invoice", 1)
    shown = data(ask(world, "GET", "/v1/workflows/invoice"))
    assert shown == data(ask(world, "GET", "/v1/workflows/invoice/versions/1"))
    assert shown["budget"] == {"usd": "0.50", "tokens": 60_000, "steps": 20, "active_time": 600_000}
    assert [(step["id"], step["needs"]) for step in shown["steps"]] == [
        ("extract", []),
        ("review", ["extract"]),
        ("post", ["review"]),
    ]
    assert problem(ask(world, "GET", "/v1/workflows/invoice/versions/2")) == (404, "unknown_workflow")
    assert problem(ask(world, "GET", "/v1/workflows/invoice/versions/x")) == (400, "invalid_parameter")


# cancelling and resuming


def test_cancelling_unwinds_once():
    world = waiting()
    for _ in range(2):
        answer = ask(world, "POST", f"/v1/runs/{world.run}/cancel", {"reason": "wrong file"})
        assert (answer.status, data(answer)["unwinding"]) == (202, "cancelled")
    assert [name for machine, name in world.engine.executions if machine == "unwind"] == [f"{world.run}.1"]
    shown = data(ask(world, "GET", f"/v1/runs/{world.run}"))
    assert shown["reason"] == "cancelled by ina@example.com: wrong file"
    events = data(ask(world, "GET", f"/v1/runs/{world.run}/events"))["events"]
    assert [event["type"] for event in events].count("run_unwinding") == 1


def paused(status: str = "paused") -> World:
    world = waiting()
    journal = world.journal()
    step = journal.read(["STEP#extract"]).step("extract")
    stuck = replace(step, status=status, settled=False, reason="step_error")

    def stick(seen):
        return Change(None, (replace(seen.head, paused=1), stuck))

    journal.transact(journal.read(["STEP#extract"]), stick)
    return world


def test_a_paused_step_goes_on_with_more_budget():
    world = paused()
    assert data(ask(world, "GET", f"/v1/runs/{world.run}"))["reason"] == "step_error"
    order = {"step": "extract", "action": "retry", "raise": {"usd": "0.25", "tokens": 1000, "steps": 2}}
    assert ask(world, "POST", f"/v1/runs/{world.run}/resume", order).status == 202
    shown = data(ask(world, "GET", f"/v1/runs/{world.run}"))
    assert (shown["limits"]["usd"], shown["limits"]["tokens"], shown["limits"]["steps"]) == ("0.75", 61_000, 22)
    assert shown["steps"][0]["status"] == "retrying"
    assert problem(ask(world, "POST", f"/v1/runs/{world.run}/resume", order)) == (409, "not_paused")


def test_a_result_is_accepted_if_it_fits():
    world = paused("unknown")
    path = f"/v1/runs/{world.run}/resume"
    assert problem(ask(world, "POST", path, {"step": "extract", "action": "retry"})) == (409, "unknown_outcome")
    assert problem(ask(world, "POST", path, {"step": "extract", "action": "accept"}))[0] == 400
    refused = ask(world, "POST", path, {"step": "extract", "action": "accept", "result": "no object"})
    assert problem(refused) == (400, "invalid_request")
    assert ask(world, "POST", path, {"step": "extract", "action": "accept", "result": {"a": 1}}).status == 202
    (step, *_) = data(ask(world, "GET", f"/v1/runs/{world.run}/steps"))["steps"]
    assert (step["status"], step["output"], step["by"]) == ("completed", {"a": 1}, "person")


@pytest.mark.parametrize(
    ("order", "status"),
    [
        ({}, 409),
        ({"action": "retry"}, 400),
        ({"version": 0}, 400),
        ({"version": "newest"}, 400),
        ({"version": 9}, 404),
        ({"step": "extract", "action": "retry", "version": 1}, 400),
        ({"step": "extract"}, 400),
        ({"step": 5, "action": "retry"}, 400),
        ({"step": "extract", "action": "explode"}, 400),
        ({"step": "extract", "action": ["retry"]}, 400),
        ({"step": "nothing", "action": "retry"}, 404),
        ({"step": "nothing/compensate", "action": "retry"}, 404),
        ({"step": "", "action": "retry"}, 404),
        ({"step": "extract", "action": "retry", "raise": 5}, 400),
        ({"step": "extract", "action": "retry", "raise": {}}, 400),
        ({"step": "extract", "action": "retry", "raise": {"eur": 1}}, 400),
        ({"step": "extract", "action": "retry", "raise": {"tokens": -1}}, 400),
        ({"step": "extract", "action": "retry", "raise": {"steps": 1.5}}, 400),
        ({"step": "extract", "action": "retry", "raise": {"usd": -1}}, 400),
    ],
)
def test_a_resumption_that_makes_no_sense_changes_nothing(order, status: int):
    world = paused()
    before = dict(world.store.items)
    assert problem(ask(world, "POST", f"/v1/runs/{world.run}/resume", order))[0] == status
    assert world.store.items == before


def test_a_run_that_ended_early_goes_on():
    world = waiting()
    journal, path = world.journal(), f"/v1/runs/{world.run}/resume"
    assert problem(ask(world, "POST", path)) == (409, "not_ended")
    journal.transact(journal.read_all(), lambda seen: Change(None, (replace(seen.head, ended="stopped", waiting=0),)))
    refused = ask(world, "POST", path, {"action": "fail"})
    assert "A run that has ended has none: it is resumed without this field." in refused.body
    assert data(ask(world, "POST", path, {"version": "latest", "raise": {"steps": 5}}))["state"] == "running"
    shown = data(ask(world, "GET", f"/v1/runs/{world.run}"))
    assert shown["limits"]["steps"] == 25
    assert (shown["epoch"], shown["steps"][0]["status"]) == (2, "completed")
    assert problem(ask(world, "POST", path)) == (409, "not_ended")


@pytest.mark.parametrize("value", ["1e9", "NaN", "-1", "1,5", "0.0000000001", True, [], "1" * 10, "\uff11"])
def test_an_amount_of_money_is_plain(value):
    with pytest.raises(InvalidRequest):
        usd_field({"usd": value}, "usd")
    assert usd_field({"usd": "0.000000001"}, "usd") == Decimal("0.000000001")
    assert usd_field({"usd": 0.1}, "usd") == Decimal("0.1")


# sweeping


def test_an_admin_sweeps_the_tenants_runs():
    world = waiting()
    found = data(ask(world, "POST", "/v1/sweep", {}))
    assert found["next"] is None
    assert [(one["run"], one["what"]) for one in found["findings"]] == [(world.run, "list_behind")]
    assert data(ask(world, "POST", "/v1/sweep", {"after": "3."}))["findings"] == []
    assert problem(ask(world, "POST", "/v1/sweep", {"after": "x"})) == (400, "invalid_field")


def test_an_admin_compares_a_run_with_its_log():
    world = waiting()
    ask(world, "POST", "/v1/sweep", {})
    path = f"/v1/runs/{world.run}/rebuild"
    assert data(ask(world, "POST", path)) == {"run": world.run, "differences": [], "repaired": False}
    journal = world.journal()
    journal.transact(journal.read([]), lambda seen: Change(None, (replace(seen.head, waiting=3),)))
    (found,) = data(ask(world, "POST", path, {}))["differences"]
    assert found == {"record": "HEAD", "field": "waiting", "known": 3, "told": 1, "lost": False}
    assert data(ask(world, "POST", path, {"repair": True}))["repaired"] is True
    assert data(ask(world, "POST", path))["differences"] == []
    assert problem(ask(world, "POST", path, {"repair": 1})) == (400, "invalid_field")


# services


def test_degraded_services_are_listed():
    world = waiting()
    assert data(ask(world, "GET", "/v1/breakers")) == {"breakers": []}
    item = Breaker("model:anthropic", opened_at=world.clock.now()).to_item()
    world.store.commit([Write(Key(f"TENANT#{TENANT}#BREAKERS", "SERVICE#model:anthropic"), item, None)])
    (found,) = data(ask(world, "GET", "/v1/breakers"))["breakers"]
    assert (found["service"], found["state"]) == ("model:anthropic", "open")
