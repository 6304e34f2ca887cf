"""Endpoints about the API itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.web import json_response

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
