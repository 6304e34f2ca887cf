"""The API as a whole: its document, methods and paths, tokens and roles, unreadable requests."""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared.api import openapi
from shared.api.dispatch import find, respond
from shared.api.problems import WrongMethod
from shared.api.routes import ROUTES
from shared.api.schemas import SCHEMAS
from shared.api.web import MAX_BODY, to_result
from shared.errors import NotFound
from tests.unit.api_client import ask, data, problem
from tests.unit.waiting_run import fresh, waiting

# the document and the table of routes


def test_the_document_describes_every_route_and_nothing_else():
    document = openapi.document()
    described = {
        (method.upper(), path, operation["operationId"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert described == {(route.method, route.path, route.id) for route in ROUTES}
    assert set(openapi.OPERATIONS) == {route.id for route in ROUTES}
    assert len({route.id for route in ROUTES}) == len(ROUTES)


def test_every_reference_in_the_document_leads_somewhere():
    document = openapi.document()
    references = set[str]()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            references.update([value["$ref"]] if "$ref" in value else [])
            [walk(inner) for inner in value.values()]
        elif isinstance(value, list):
            [walk(inner) for inner in value]

    walk(document)
    for reference in references:
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
        assert place
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert any(name in reference for reference in references), f"{name} is used nowhere"


def test_the_document_is_served_without_a_token():
    assert data(ask(fresh(), "GET", "/v1/openapi.json", token="")) == openapi.document()
    assert data(ask(fresh(), "GET", "/v1/health", token="")) == {"status": "ok"}


# methods, paths, headers


def test_head_is_answered_like_get_without_a_body():
    world = waiting()
    for route in (each for each in ROUTES if each.method == "GET" and "{" not in each.path):
        got, head = ask(world, "GET", route.path), ask(world, "HEAD", route.path)
        assert (head.status, head.body, head.content_type) == (got.status, "", got.content_type)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_a_wrong_method_names_the_right_ones(route):
    answer = ask(fresh(), "PATCH", route.path, token="")
    assert problem(answer) == (405, "method_not_allowed")
    assert route.method in answer.headers["allow"].split(", ")
    assert ("HEAD" in answer.headers["allow"]) == ("GET" in answer.headers["allow"])


@pytest.mark.parametrize(
    "path", ["/", "", "/v1", "/v2/runs", "/v1/runs/x/y/z", "//v1//runs", "/console", "/v1/runs/\n"]
)
def test_an_unknown_path_is_not_found(path: str):
    if path == "/v1/runs/\n":
        assert problem(ask(fresh(), "GET", path))[0] == 400
    else:
        assert problem(ask(fresh(), "GET", path, token="")) == (404, "unknown_path")


def test_a_path_without_end_is_refused():
    assert problem(ask(fresh(), "GET", "/v1/" + "a" * 2000, token="")) == (400, "invalid_path")


def test_no_answer_is_cached_sniffed_or_framed_and_each_names_its_request():
    for answer in (ask(fresh(), "GET", "/v1/health"), ask(fresh(), "GET", "/nothing"), ask(fresh(), "GET", "/v1/runs")):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-request-id"] == "request-1"


# who may do what


@pytest.mark.parametrize("route", [route for route in ROUTES if route.role], ids=lambda route: route.id)
def test_every_route_needs_a_token_with_its_role(route):
    world = waiting()
    path = route.path.replace("{id}", world.run).replace("{name}", "invoice").replace("{n}", "1")
    missing = ask(world, route.method, path, token="")
    assert problem(missing) == (401, "token_missing")
    assert missing.headers["www-authenticate"] == 'Bearer realm="signalbox"'
    wrong = ask(world, route.method, path, token="sbx_acme_wrong")
    assert problem(wrong) == (401, "unauthenticated")
    assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
    answer = ask(world, route.method, path, token=world.token("viewer"))
    assert (answer.status == 403) == (route.role != "viewer")
    other = {"operator": "approver", "approver": "operator", "viewer": "approver", "admin": "operator"}[route.role]
    assert (ask(world, route.method, path, token=world.token(other)).status == 403) == (route.role != "viewer")


def test_nothing_of_another_tenant_is_visible():
    world = waiting()
    stranger = world.token("admin", tenant="other")
    approval = data(ask(world, "GET", "/v1/approvals"))["approvals"][0]["id"]
    decision = {"decision": "approve", "digest": ""}
    for method, path, body in (
        ("GET", f"/v1/runs/{world.run}", None),
        ("GET", f"/v1/runs/{world.run}/steps", None),
        ("GET", f"/v1/runs/{world.run}/events", None),
        ("POST", f"/v1/runs/{world.run}/cancel", None),
        ("POST", f"/v1/runs/{world.run}/resume", {"step": "extract", "action": "retry"}),
        ("GET", f"/v1/approvals/{approval}", None),
        ("POST", f"/v1/approvals/{approval}", decision),
    ):
        assert problem(ask(world, method, path, body, token=stranger)) == (404, "not_found")
    assert data(ask(world, "GET", "/v1/runs", token=stranger))["runs"] == []
    assert data(ask(world, "GET", "/v1/approvals", token=stranger))["approvals"] == []


# events of API Gateway


def event(body: str | None = None, **more: Any) -> dict[str, Any]:
    http = {"method": more.pop("method", "POST")}
    return {
        "version": "2.0",
        "rawPath": "/v1/workflows/invoice/runs",
        "headers": {"Content-Type": "application/json", **more.pop("headers", {})},
        "requestContext": {"http": http, "requestId": "request-9"},
        "body": body,
        **more,
    }


def test_a_base64_body_is_read():
    world = fresh()
    text = base64.b64encode(json.dumps({"input": {"document": "ü"}}).encode()).decode()
    headers = {"Authorization": f"Bearer {world.token('operator')}"}
    answer = respond(lambda: world.api, event(text, isBase64Encoded=True, headers=headers))
    assert answer.status == 201
    assert to_result(answer)["headers"]["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (event("x" * (MAX_BODY + 1)), (413, "too_large")),
        (event("A" * (MAX_BODY * 4 // 3 + 8), isBase64Encoded=True), (413, "too_large")),
        (event("***", isBase64Encoded=True), (400, "invalid_body")),
        (event("é" * 10, isBase64Encoded=True), (400, "invalid_body")),
        (event("é" * (MAX_BODY // 2 + 1)), (413, "too_large")),
        ({}, (404, "unknown_path")),
        ({"rawPath": None, "headers": None, "requestContext": None}, (404, "unknown_path")),
    ],
)
def test_an_unreadable_event_gets_a_problem_document(given, expected):
    world = fresh()
    assert problem(respond(lambda: world.api, given)) == expected


def test_an_unforeseen_error_is_logged_under_the_id_that_the_caller_gets(caplog):
    def broken():
        raise RuntimeError("the secret reason")

    with caplog.at_level(logging.ERROR, logger="signalbox"):
        answer = respond(broken, event("{}"))
    assert problem(answer) == (500, "internal")
    assert json.loads(answer.body)["correlation_id"] == "request-9"
    assert "secret reason" not in answer.body
    (record,) = caplog.records
    assert record.correlation_id == "request-9"
    assert "the secret reason" in str(record.exc_info)


def test_find_knows_its_routes():
    route, names = find("HEAD", "/v1/runs/x/")
    assert (route.id, names) == ("getRun", {"id": "x"})
    with pytest.raises(WrongMethod):
        find("DELETE", "/v1/runs/x")
    with pytest.raises(NotFound):
        find("GET", "/v1/runs/x/y")
