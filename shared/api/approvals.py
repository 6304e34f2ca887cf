"""Endpoints of approvals: what waits for a decision, exactly what it would let run, and deciding it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api import inputs
from shared.api.listing import pending
from shared.api.reading import Sparing
from shared.api.web import json_response
from shared.errors import Forbidden, InvalidRequest, NotFound
from shared.ledger.records import Gate, Run
from shared.ports import Key
from shared.runtime import views

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.host import ApiHost, Call
    from shared.api.web import Response
    from shared.runtime.gates import Decision

DECISIONS: dict[str, Decision] = {"approve": "approved", "edit": "approved", "reject": "rejected"}
_MOST = 100


def index(host: ApiHost, call: Call) -> Response:
    """List what waits for a decision, newest first."""
    given = inputs.query(call.request, ("limit",))
    limit = inputs.whole_query(given, "limit", default=50, low=1, high=_MOST)
    load = Sparing(host.blobs)
    open_ones = pending(host.store, call.tenant, limit)
    return json_response(200, {"approvals": [views.approval_view(gate, run, load) for run, gate in open_ones]})


def show(host: ApiHost, call: Call) -> Response:
    """Show one request for a decision, decided or not."""
    run, gate = _find(host, call)
    return json_response(200, views.approval_view(gate, run, Sparing(host.blobs)))


def decide(host: ApiHost, call: Call) -> Response:
    """Approve, with changes or without, or reject exactly what ``digest`` names. Repeating one's own is harmless."""
    from shared.runtime.gates import Word, decide_gate  # noqa: PLC0415 - most calls only read

    body = inputs.json_object(call.request, ("decision", "note", "digest", "changes"))
    decision = inputs.choice_field(body, "decision", tuple(DECISIONS))
    changes = _changes(body, decision)
    note = inputs.text_field(body, "note", limit=inputs.NOTE_LIMIT, default="")
    if "digest" not in body:
        raise InvalidRequest("Field digest is needed: the digest of what you were shown, empty where it has none.")
    digest = inputs.text_field(body, "digest", limit=64)
    run, gate = _find(host, call)
    if not call.principal.may_decide(gate.roles):
        raise Forbidden(f"This decision is asked of {', '.join(gate.roles)}; this token may not decide for them.")
    word = Word(DECISIONS[decision], call.by, note, digest, gate.id, changes)
    decided = decide_gate(host, call.journal(host, run.id), gate.path, word)
    return json_response(200, views.approval_view(decided, run, Sparing(host.blobs)))


def _changes(body: Mapping[str, Any], decision: str) -> Mapping[str, Any] | None:
    """Return what an edit changes. Raises InvalidRequest when it says nothing of that, or another decision does."""
    if decision != "edit":
        if "changes" in body:
            raise InvalidRequest("Field changes goes with the decision `edit` only.", code="invalid_field")
        return None
    return inputs.object_field(body, "changes")


def _find(host: ApiHost, call: Call) -> tuple[Run, Gate]:
    """Return an approval by its id. Raises InvalidRequest or NotFound."""
    run_id, gate_id = inputs.approval_ref(call.names["id"])
    partition = call.partition(run_id)
    gates = (Gate.from_item(item) for item in host.store.query(partition, "GATE#"))
    gate = next((gate for gate in gates if gate.id == gate_id), None)
    item = host.store.read([Key(partition, "RUN")]).get(Key(partition, "RUN"))
    if gate is None or item is None:
        raise NotFound("There is no such approval.")
    return Run.from_item(item), gate
