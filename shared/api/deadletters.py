"""Endpoint of dead letters: which steps have finally failed and were not redriven."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import inputs
from shared.api.listing import dead
from shared.api.web import json_response
from shared.runtime import views

if TYPE_CHECKING:
    from shared.api.host import ApiHost, Call
    from shared.api.web import Response

_MOST = 100


def index(host: ApiHost, call: Call) -> Response:
    """List the tenant's dead letters, newest first."""
    given = inputs.query(call.request, ("workflow", "limit"))
    workflow = given.get("workflow")
    limit = inputs.whole_query(given, "limit", default=50, low=1, high=_MOST)
    workflow = None if workflow is None else inputs.workflow_query(workflow)
    letters = dead(host.store, call.tenant, workflow, limit)
    return json_response(200, {"dead_letters": [views.dead_view(run, letter) for run, letter in letters]})
