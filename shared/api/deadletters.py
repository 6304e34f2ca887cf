"""Endpoints of dead letters: which steps have finally failed and were not redriven, and that one is seen to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import inputs
from shared.api.listing import dead, topmost
from shared.api.reading import facts
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
    tops = topmost(host.store, call.tenant, {run for run, _ in letters})
    found = [views.dead_view(run, letter, *tops.get(run, (run, "stopped"))) for run, letter in letters]
    return json_response(200, {"dead_letters": found})


def dismiss(host: ApiHost, call: Call) -> Response:
    """Take a run's dead letters off the list, or the one of a step: somebody has seen to it."""
    from shared.runtime.deadletters import dismissed  # noqa: PLC0415 - most calls only read

    body = inputs.json_object(call.request, ("path",))
    path = inputs.text_field(body, "path", limit=300) if "path" in body else None
    journal = call.journal(host, inputs.run_id(call.names["id"]))
    facts(journal)
    paths = dismissed(host.store, journal.pk, path, call.by, host.clock.now())
    return json_response(200, {"run": call.names["id"], "dismissed": paths})
