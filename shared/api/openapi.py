"""The OpenAPI 3.1 document, made from the table of routes and what is said here about each operation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.api.routes import ROUTES, Route
from shared.api.schemas import SCHEMAS
from shared.triggers.occurrences import SIGNED_HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "1.0.0"


@dataclass(frozen=True, slots=True)
class About:
    """What the document says of an operation: its answers by status, its body, its query and header parameters.

    ``signed`` = it needs no token but a signature; its headers are required then, and so is its body.
    """

    summary: str
    answers: Mapping[int, str]
    body: str | None = None
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    signed: bool = False


def _whole(low: int, high: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "default": default}


OPERATIONS: dict[str, About] = {
    "health": About("Tell whether the API answers", {200: "Health"}),
    "openapi": About("This document", {200: "Document"}),
    "listWorkflows": About("Published workflows", {200: "Workflows"}),
    "getWorkflow": About("A workflow's newest version", {200: "Workflow"}),
    "getWorkflowVersion": About("One version of a workflow", {200: "Workflow"}),
    "getEstimates": About("What one attempt of each step is expected to cost, from history", {200: "Estimates"}),
    "startRun": About(
        "Start a run; with a key that was used for the same request, return that run",
        {201: "Started", 200: "Started"},
        body="StartRun",
        headers={"Idempotency-Key": "Repeating a request with the same key starts nothing twice."},
    ),
    "receiveWebhook": About(
        "Start a run by a webhook of the workflow's file; repeated with the same webhook-id, return that run",
        {201: "Started", 200: "Started"},
        body="Anything",
        headers={
            "webhook-id": "The sender's id of what has happened: printable ASCII without blanks and `.`.",
            "webhook-timestamp": "Seconds since 1970; at most five minutes away.",
            "webhook-signature": "`v1,` and the signature as Standard Webhooks says; several with blanks between.",
        },
        signed=True,
    ),
    "listRuns": About(
        "Runs, newest first",
        {200: "Runs"},
        query={
            "workflow": {"type": "string"},
            "state": SCHEMAS["RunSummary"]["properties"]["state"],
            "limit": _whole(1, 100, 20),
            "before": {"type": "string", "description": "A run's id: only older ones. Pass `next` to go on."},
        },
    ),
    "getRun": About("A run with its steps and gates, as of one moment", {200: "Run"}),
    "listEvents": About(
        "The run's log in order; pass `next` as `after` to go on",
        {200: "Events"},
        query={"after": _whole(0, 10**9, 0), "limit": _whole(1, 1000, 200)},
    ),
    "listSteps": About("The run's steps in the definition's order", {200: "Steps"}),
    "sendEvent": About(
        "Send the run an event that a wait step waits for, or will wait for: it is kept until then",
        {202: "Delivered"},
        body="SendEvent",
        headers={"Idempotency-Key": "Repeating a request with the same key delivers nothing twice."},
    ),
    "cancelRun": About("End the run early and undo what can be undone", {202: "Accepted"}, body="CancelRun"),
    "resumeRun": About(
        "Say how a paused step goes on, or let an ended run go on",
        {202: "Accepted"},
        body="Resume",
        headers={"Idempotency-Key": "Repeating a request with the same key resumes nothing twice."},
    ),
    "rebuildRun": About(
        "Recompute the run's records from its log and tell where they differ; write what the log says only if asked "
        "to. What is `lost` cannot be written: the log holds no values",
        {200: "Rebuilt"},
        body="Rebuild",
    ),
    "listBreakers": About("Services whose circuit breaker is not closed: attempts wait for them", {200: "Breakers"}),
    "sweep": About(
        "Mend what no machine goes on with; pass `next` as `after` until it is null", {200: "Swept"}, body="Sweep"
    ),
    "listDeadLetters": About(
        "Steps that have finally failed and were not redriven, newest first",
        {200: "DeadLetters"},
        query={"workflow": {"type": "string"}, "limit": _whole(1, 100, 50)},
    ),
    "dismissDeadLetters": About(
        "Take dead letters off the list that somebody has seen to: all of a run, or the one of a step",
        {200: "Dismissed"},
        body="Dismiss",
    ),
    "listApprovals": About(
        "What waits for a decision, newest first", {200: "Approvals"}, query={"limit": _whole(1, 100, 50)}
    ),
    "getApproval": About("One request for a decision", {200: "Approval"}),
    "decideApproval": About(
        "Approve, approve with changes, or reject exactly what `digest` names", {200: "Approval"}, body="Decide"
    ),
}


def document() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Signalbox", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": "..", "description": "Where this document was read, without /v1/openapi.json"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "responses": {"Problem": _content("What went wrong", "Problem", "application/problem+json")},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "sbx_<tenant>_<secret>"}},
        },
    }


_DESCRIPTION = (
    "Orchestrates workflows of model calls, tool calls and human decisions. Errors are RFC 9457 problem documents. "
    "HEAD is answered wherever GET is. Money is a decimal text in USD; times are ISO 8601 in UTC."
)


def _operation(route: Route) -> dict[str, Any]:
    about = OPERATIONS[route.id]
    answers: dict[str, Any] = {str(status): _content(about.summary, name) for status, name in about.answers.items()}
    operation: dict[str, Any] = {
        "operationId": route.id,
        "summary": about.summary,
        "description": _needs(route, about),
        "security": [{"token": []}] if route.role else [],
        "parameters": _parameters(route, about),
        "responses": {**answers, "default": {"$ref": "#/components/responses/Problem"}},
    }
    if about.body:
        schema = {"schema": {"$ref": f"#/components/schemas/{about.body}"}}
        needed = about.signed or bool(SCHEMAS[about.body].get("required"))
        operation["requestBody"] = {"required": needed, "content": {"application/json": schema}}
    return operation


def _needs(route: Route, about: About) -> str:
    if about.signed:
        return "Needs no token: the request is signed. 401 does not tell whether the webhook exists."
    return f"Needs the role `{route.role}`." if route.role else "Needs no token."


def _content(description: str, name: str, kind: str = "application/json") -> dict[str, Any]:
    schema = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    return {"description": description, "content": {kind: schema}}


def _header(name: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": SIGNED_HEADERS.get(name, 200)}


def _parameters(route: Route, about: About) -> list[dict[str, Any]]:
    named: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    named += [{"name": name, "in": "query", "schema": dict(schema)} for name, schema in about.query.items()]
    named += [
        {"name": name, "in": "header", "required": about.signed, "description": text, "schema": _header(name)}
        for name, text in about.headers.items()
    ]
    return named
