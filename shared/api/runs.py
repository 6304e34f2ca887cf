"""Endpoints of runs: start, list, look, cancel, resume."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast, get_args

from shared.api import inputs
from shared.api.listing import list_runs
from shared.api.problems import Relayed
from shared.api.reading import facts, read_run
from shared.api.web import json_response
from shared.errors import InvalidRequest, NotFound
from shared.ids import ulid
from shared.ledger.records import BudgetMode, RunState
from shared.runtime import views
from shared.runtime.task import run_task
from shared.runtime.words import Resumption
from shared.tenants.tokens import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.host import ApiHost, Call
    from shared.api.web import Response
    from shared.runtime.journal import Snapshot
    from shared.runtime.raising import Raise
    from shared.runtime.task import Task

ACTIONS = get_args(Resumption)
EVENTS_LIMIT = 1000
LIST_LIMIT = 100


def start(host: ApiHost, call: Call) -> Response:
    """Start a run: 201, or 200 for a repeated request."""
    name = inputs.workflow_name(call.names["name"])
    body = inputs.json_object(call.request, ("input", "version", "budget_mode"))
    given = body.get("input", {})
    if not isinstance(given, dict):
        raise InvalidRequest("Field input must be an object that fits the workflow's input.", code="invalid_field")
    payload = {
        "tenant": call.tenant,
        "initiator": call.by,
        "trigger": "api",
        "workflow": name,
        "version": inputs.whole_field(body, "version", low=1),
        "input": cast("dict[str, Any]", given),
        "key": inputs.idempotency_key(call.request),
    }
    if "budget_mode" in body:
        payload["budget_mode"] = inputs.choice_field(body, "budget_mode", get_args(BudgetMode))
        if payload["budget_mode"] == "audit":  # its limits, and those of its tenant, refuse nothing
            require(call.principal, "admin")
    return started(*answered(host.start(payload)))


def answered(answer: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the run that ``start`` has named, and whether it is new. Raises Relayed for its refusal."""
    _relay(answer)
    return str(answer["run"]), bool(answer["new"])


def started(run: str, new: bool) -> Response:  # noqa: FBT001 - as ``answered`` gives them
    """Answer with a run."""
    # Relative to /v1/workflows/<name>/runs and /v1/hooks/<name>/<trigger>, so that it holds under a path prefix too.
    headers = {"location": f"../../runs/{run}"}
    return json_response(201 if new else 200, {"run": run, "new": new}, headers)


def _relay(answer: Mapping[str, Any]) -> None:
    problem = answer.get("problem")
    if problem:
        raise Relayed(int(problem["status"]), str(problem["code"]), str(problem["detail"]))


def index(host: ApiHost, call: Call) -> Response:
    """List the tenant's runs, newest first."""
    given = inputs.query(call.request, ("workflow", "state", "limit", "before"))
    state, workflow = given.get("state"), given.get("workflow")
    if state is not None and state not in get_args(RunState):
        raise InvalidRequest(
            f"Parameter state must be one of: {', '.join(get_args(RunState))}.", code="invalid_parameter"
        )
    workflow = None if workflow is None else inputs.workflow_query(workflow)
    limit = inputs.whole_query(given, "limit", default=20, low=1, high=LIST_LIMIT)
    before = inputs.run_id(given["before"]) if "before" in given else None
    runs, more = list_runs(host.store, call.tenant, workflow, state, limit, before)
    following = runs[-1].id if more and runs else None
    return json_response(200, {"runs": [views.summary(run) for run in runs], "next": following})


def show(host: ApiHost, call: Call) -> Response:
    """Show one run with its steps and gates."""
    return json_response(200, views.run_view(read_run(host, call.journal(host, _run(call)))))


def steps(host: ApiHost, call: Call) -> Response:
    """Show one run's steps."""
    seen = read_run(host, call.journal(host, _run(call)))
    return json_response(200, {"steps": views.steps_view(seen)})


def events(host: ApiHost, call: Call) -> Response:
    """Show the run's log after ``after``; ``next`` continues it, also when nothing has happened yet."""
    given = inputs.query(call.request, ("after", "limit"))
    after = inputs.whole_query(given, "after", default=0, low=0, high=10**9)
    limit = inputs.whole_query(given, "limit", default=200, low=1, high=EVENTS_LIMIT)
    journal = call.journal(host, _run(call))
    seen, _ = facts(journal)
    found = journal.events(after=after, limit=limit)
    last = found[-1].seq if found else after
    data = {"events": [views.event_view(event) for event in found], "next": last, "state": seen.head.state}
    return json_response(200, data)


def send_event(host: ApiHost, call: Call) -> Response:
    """Deliver an event to the run: it completes the wait that it is for, or is kept for it."""
    from shared.runtime.waits import Arrival, deliver  # noqa: PLC0415 - most calls only read

    body = inputs.json_object(call.request, ("name", "data"))
    name = inputs.text_field(body, "name", limit=100)
    seen, run = facts(call.journal(host, _run(call)))
    event = inputs.idempotency_key(call.request) or ulid(host.clock.now())
    task = run_task(run, seen.head.epoch)
    used = deliver(host, task, Arrival(event, name, body.get("data")))
    return json_response(202, {"run": run.id, "event": event, "used": used})


def cancel(host: ApiHost, call: Call) -> Response:
    """Ask the run to end as cancelled: nothing opens any more, what was done is undone. Repeating it is harmless."""
    from shared.runtime.ending import request  # noqa: PLC0415 - most calls only read

    body = inputs.json_object(call.request, ("reason",))
    reason = inputs.text_field(body, "reason", limit=300, default="")
    journal = call.journal(host, _run(call))
    facts(journal)
    why = f"cancelled by {call.by}" + (f": {reason}" if reason else "")
    return _accepted(call, request(host, journal, "cancelled", why, host.unwind_machine))


def resume(host: ApiHost, call: Call) -> Response:
    """Carry out a person's word on a paused step; without a step, begin a run anew that has ended early."""
    body = inputs.json_object(call.request, ("step", "action", "result", "raise", "version"))
    return _resume_step(host, call, body) if "step" in body else _resume_run(host, call, body)


def _resume_run(host: ApiHost, call: Call, body: Mapping[str, Any]) -> Response:
    from shared.runtime.resuming import Resume, resume_run  # noqa: PLC0415 - most calls only read

    wrong = sorted(set(body) - {"version", "raise"})
    if wrong:
        told = "name it in the field step. A run that has ended has none: it is resumed without this field."
        raise InvalidRequest(f"Field {wrong[0]} is about a paused step: {told}")
    journal = call.journal(host, _run(call))
    _, run = facts(journal)
    pin = None
    if "version" in body:
        wanted = None if body["version"] == "latest" else inputs.whole_field(body, "version", low=1)
        pin = host.definitions.published(run.workflow, wanted)
    asked = Resume(call.by, pin, _raise(body), inputs.idempotency_key(call.request))
    return _accepted(call, resume_run(host, journal, asked))


def _resume_step(host: ApiHost, call: Call, body: Mapping[str, Any]) -> Response:
    from shared.runtime.parking import Order, resume_step  # noqa: PLC0415 - most calls only read

    if "version" in body:
        raise InvalidRequest("Field version is about a run that has ended: leave the step out.")
    path = inputs.text_field(body, "step", limit=300)
    action = cast("Any", inputs.choice_field(body, "action", ACTIONS))
    if action == "accept" and "result" not in body:
        raise InvalidRequest("Action accept needs the field result: what the step is taken to have returned.")
    task = _task(host, call, path)
    key = inputs.idempotency_key(call.request)
    order = Order(action=action, by=call.by, result=body.get("result"), more=_raise(body), key=key)
    return _accepted(call, resume_step(host, task, order, host.unwind_machine))


def rebuild(host: ApiHost, call: Call) -> Response:
    """Recompute the run's records from its log and tell where they differ; with ``repair``, write what the log says."""
    from shared.runtime.rebuild import rebuild as recompute  # noqa: PLC0415 - rarely asked for

    body = inputs.json_object(call.request, ("repair",))
    repair = body.get("repair", False)
    if not isinstance(repair, bool):
        raise InvalidRequest("Field repair must be true or false.", code="invalid_field")
    journal = call.journal(host, _run(call))
    facts(journal)
    found = [asdict(one) for one in recompute(journal, repair=repair).differences]
    return json_response(
        200, {"run": _run(call), "differences": found, "repaired": repair and not all(one["lost"] for one in found)}
    )


def _task(host: ApiHost, call: Call, path: str) -> Task:
    """Return the step as a task of the runtime. Raises NotFound for a step that the run has not reached."""
    journal = call.journal(host, _run(call))
    seen, run = facts(journal)
    if journal.read([f"STEP#{path}"]).step(path) is None:
        raise NotFound(f"The run has no step {path!r} yet.", code="unknown_step")
    return run_task(run, seen.head.epoch, path)


def _raise(body: Mapping[str, Any]) -> Raise | None:
    from shared.runtime.raising import Raise  # noqa: PLC0415 - as above

    more = body.get("raise")
    if more is None:
        return None
    if not isinstance(more, dict):
        raise InvalidRequest('Field raise must be an object such as {"usd": "0.10", "tokens": 1000, "steps": 1}.')
    given = cast("dict[str, Any]", more)
    if not given or set(given) - {"usd", *_COUNTED}:
        raise InvalidRequest(
            "Field raise takes one or more of usd, tokens, steps and active_time (ms).", code="invalid_field"
        )
    counted = {name: inputs.whole_field(given, name, low=0, default=0) or 0 for name in _COUNTED}
    usd = inputs.usd_field(given, "usd")
    if not usd and not any(counted.values()):
        raise InvalidRequest("Field raise adds nothing: give one of its amounts more than 0.", code="invalid_field")
    return Raise(usd, **counted)


_COUNTED = ("tokens", "steps", "active_time")


def _accepted(call: Call, seen: Snapshot) -> Response:
    head = seen.head
    unwinding = None if head.ended else head.unwinding
    return json_response(202, {"run": _run(call), "state": head.state, "unwinding": unwinding, "seq": head.seq})


def _run(call: Call) -> str:
    return inputs.run_id(call.names["id"])
