"""Bad input to every route of the deployed API: a problem document, never a stack trace."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.e2e
RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
SIGNED = ("/v1/hooks/{workflow}/{trigger}",)
HOSTILE = ("..%2f..%2fetc", "%00", "a" * 300, "'%22%3E%3Cscript%3E", "%F0%9F%92%A3", "..;/", "{id}")


def routes(deployed):
    document = deployed.api("GET", "/v1/openapi.json").json
    assert document["openapi"].startswith("3.1")
    return [
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if method != "parameters"
    ]


def filled(path, value):
    import re  # noqa: PLC0415

    return re.sub(r"\{\w+\}", value, path)


def is_problem(answer, *statuses):
    assert answer.status in statuses, (answer.status, answer.text)
    assert answer.headers["content-type"].startswith("application/problem+json"), answer.headers
    problem = answer.json
    assert {"type", "title", "status", "detail", "code"} <= set(problem)
    assert problem["status"] == answer.status
    assert "Traceback" not in answer.text
    assert 'File "' not in answer.text


def test_every_route_answers_bad_input_with_a_problem(deployed):
    for method, path in routes(deployed):
        for hostile in HOSTILE:
            if "{" in path:
                answer = deployed.api(method, filled(path, hostile), {} if method == "POST" else None)
                is_problem(answer, *((401,) if path in SIGNED else ()), 400, 404, 405, 422)
        if path in SIGNED:
            continue  # whatever is in it, it is not signed: test_triggers.py
        if method == "POST":
            for body in (b"{", b"[]", b'"text"', b"\xff\xfe", b'{"a":' * 2000, json.dumps({"x": "y"}).encode()):
                is_problem(deployed.api(method, filled(path, RUN), body), 400, 404, 413, 422)
            form = deployed.api(method, filled(path, RUN), b"a=b", content_type="text/plain")
            is_problem(form, 400, 404, 415)


def test_every_route_wants_a_token(deployed):
    for method, path in routes(deployed):
        if path in {"/v1/health", "/v1/openapi.json"} or path.startswith("/approve"):
            continue
        for value in ("", "Bearer", "Bearer nonsense", "Basic YTpi", f"Bearer {deployed.token}x"):
            answer = deployed.api(method, filled(path, RUN), {} if method == "POST" else None, authorization=value)
            is_problem(answer, 401)


def test_wrong_methods_and_unknown_paths_are_problems_too(deployed):
    is_problem(deployed.api("GET", "/v1/nothing"), 404)
    is_problem(deployed.api("GET", "/"), 404)
    answer = deployed.api("DELETE", "/v1/runs")
    is_problem(answer, 405)
    assert "GET" in answer.headers["allow"]
    assert deployed.api("HEAD", "/v1/runs").status == 200


def test_unknown_things_do_not_exist(deployed):
    is_problem(deployed.api("GET", f"/v1/runs/{RUN}"), 404)
    is_problem(deployed.api("POST", "/v1/workflows/nothing/runs", {"input": {}}), 404)
    is_problem(deployed.api("POST", "/v1/workflows/invoice/runs", {"input": {"dokument": 1}}), 400, 422)
    is_problem(deployed.api("GET", "/v1/runs?limit=many"), 400, 422)


def test_links_that_are_not_ours_lead_nowhere(deployed):
    for token in ("x", "a.b", "x" * 3000, "%2e%2e"):
        answer = deployed.api("GET", f"/approve/{token}")
        assert answer.status in {400, 404, 414}
        assert "Traceback" not in answer.text
        assert answer.headers["content-type"].startswith("text/html")
