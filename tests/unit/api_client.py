"""A client of the API that checks every answer against the OpenAPI document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from shared.api import openapi
from shared.api.dispatch import dispatch, find
from shared.api.schemas import SCHEMAS
from shared.api.web import Request

if TYPE_CHECKING:
    from shared.api.web import Response
    from tests.unit.waiting_run import World

JSON = {"content-type": "application/json"}


def ask(world: World, method: str, path: str, body: Any = None, token: str | None = None, **more: Any) -> Response:
    """Send a request as an admin, or with ``token``, and check its answer against the document."""
    url, _, query = path.partition("?")
    headers = {**JSON, **more.pop("headers", {})}
    if token != "":
        headers["authorization"] = f"Bearer {token or world.token('admin')}"
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    pairs = dict(pair.split("=", 1) for pair in query.split("&") if pair)
    answer = dispatch(world.api, Request(method, url, headers, pairs, data, "request-1"))
    check(method, url, answer)
    return answer


def check(method: str, path: str, answer: Response) -> None:
    if answer.status >= 400:
        name = "Problem"
        assert answer.content_type == "application/problem+json"
    else:
        route, _ = find(method, path)
        name = openapi.OPERATIONS[route.id].answers[answer.status]
    if method != "HEAD":
        document = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
        Draft202012Validator(document).validate(json.loads(answer.body))


def problem(answer: Response) -> tuple[int, str]:
    data = json.loads(answer.body)
    assert data["status"] == answer.status
    assert data["type"] == f"urn:signalbox:problem:{data['code']}"
    assert "Traceback" not in answer.body
    return answer.status, data["code"]


def data(answer: Response) -> Any:
    assert answer.status < 400, answer.body
    return json.loads(answer.body)
