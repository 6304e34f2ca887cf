"""Endpoints about the API itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api import inputs
from shared.api.web import json_response
from shared.errors import InvalidRequest
from shared.runtime.breaker import tripped
from shared.runtime.views import iso

if TYPE_CHECKING:
    from shared.api.host import ApiHost, Call
    from shared.api.web import Response


def health(_host: ApiHost, _call: Call) -> Response:
    """Say that the API answers."""
    return json_response(200, {"status": "ok"})


def openapi(_host: ApiHost, _call: Call) -> Response:
    """Return the OpenAPI document."""
    from shared.api.openapi import document  # noqa: PLC0415 - rarely asked for, and it needs the table of routes

    return json_response(200, document())


def sweep(host: ApiHost, call: Call) -> Response:
    """Compare the tenant's open runs with what there is of them outside, and mend what nobody else would."""
    body = inputs.json_object(call.request, ("after",))
    after = inputs.text_field(body, "after", limit=30, default="")
    if after and re.fullmatch(r"[0-8]\.[0-9]{0,15}", after, re.ASCII) is None:
        raise InvalidRequest("Field after must be what the call before returned as next.", code="invalid_field")
    return json_response(200, dict(host.sweep({"tenant": call.tenant, "after": after})))


def breakers(host: ApiHost, call: Call) -> Response:
    """List the services that are degraded: those whose circuit breaker is not closed."""
    now = host.clock.now()
    found = [
        {"service": one.service, "state": one.state(now), "opened_at": iso(one.opened_at)}
        for one in tripped(host.store, call.tenant, now)
    ]
    return json_response(200, {"breakers": found})
