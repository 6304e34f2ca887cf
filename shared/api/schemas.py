"""JSON Schemas of what the API takes and gives, as OpenAPI components."""

from __future__ import annotations

from typing import Any, get_args

from shared.ledger.records import BudgetMode, RunState, StepStatus
from shared.runtime.mending import What
from shared.runtime.words import Resumption

Schema = dict[str, Any]


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None, **more: Any) -> Schema:
    properties = {**required, **(optional or {})}
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_ANY: Schema = {"description": "Any JSON value."}
_JSON: Schema = {"type": "object"}
_USD: Schema = {"type": "string", "pattern": r"^-?[0-9]+\.[0-9]{2,9}$", "description": "USD, exact."}
_TIME: Schema = {"type": "string", "format": "date-time", "description": "UTC, with milliseconds."}
_RUN_ID: Schema = {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$", "description": "A ULID."}
_STATE: Schema = {"enum": list(get_args(RunState))}
_OMITTED = _object({"digest": _TEXT, "size": _WHOLE}, description="A value too large for this answer.")
_AMOUNT = {"usd": _USD, "tokens": _WHOLE, "steps": _WHOLE}
_LIMITS = {
    "usd": _or_null(_USD),
    "tokens": _or_null(_WHOLE),
    "steps": _or_null(_WHOLE),
    "active_time": _or_null({"type": "integer", "description": "Milliseconds."}),
}

_SUMMARY = {
    "id": _RUN_ID,
    "workflow": _TEXT,
    "version": _WHOLE,
    "tenant": _TEXT,
    "state": _STATE,
    "initiator": _TEXT,
    "trigger": {"type": "string", "description": "api, cli, sub_workflow, webhook, schedule, event or queue."},
    "trigger_id": {"type": ["string", "null"], "description": "The trigger of the workflow's file, if one did."},
    "occurrence": {"type": ["string", "null"], "description": "The id of what happened, or the scheduled time."},
    "parent": {"type": ["string", "null"], "description": "`<run>|<path>` of the step whose child run this is."},
    "part": {
        "type": ["string", "null"],
        "description": "The map or loop, or the range of one, that this run stands for.",
    },
    "created_at": _TIME,
    "ended_at": _or_null(_TIME),
}

_RUN = {
    **_SUMMARY,
    "unwinding": _or_null(_TEXT),
    "reason": _or_null(_TEXT),
    "hash": _TEXT,
    "epoch": _WHOLE,
    "seq": _WHOLE,
    "limits": _ref("Limits"),
    "budget_mode": {"enum": list(get_args(BudgetMode))},
    "would_refuse": _list(_ref("WouldRefuse")),
    "spent": _object({**_AMOUNT, "active_time": _or_null(_WHOLE)}),
    "reserved": _ref("Amount"),
    "left": _ref("Limits"),
    "input": _ANY,
    "steps": _list(_ref("Step")),
    "gates": _list(_ref("Approval")),
}

_STEP = {
    "path": _TEXT,
    "step": _TEXT,
    "type": _TEXT,
    "status": {"enum": ["blocked", *get_args(StepStatus)]},
    "attempt": _WHOLE,
    "retries": _WHOLE,
    "model": _or_null(_TEXT),
    "tool": _or_null(_TEXT),
    "route": _or_null(_TEXT),
    "cost": _ref("Amount"),
    "reserved": _or_null(_ref("Amount")),
    "started_at": _or_null(_TIME),
    "ended_at": _or_null(_TIME),
    "duration_ms": _or_null(_WHOLE),
    "error": _or_null(_object({"class": _TEXT, "message": _TEXT})),
    "reason": _or_null(_TEXT),
    "short": _or_null(
        _object(
            {"level": _TEXT, "dimension": {"enum": list(_LIMITS)}, "needed": _ANY},
            description="The limit that does not let it go on, and what it asked of it: USD, or whole units.",
        )
    ),
    "actions": {**_list({"enum": list(get_args(Resumption))}), "description": "What a person may say of it now."},
    "given_up": {"type": ["string", "null"], "description": "Who gave up finding out what became of its call."},
    "by": _or_null(_TEXT),
    "child": {"type": ["string", "null"], "description": "The run of a sub-workflow, or of a part."},
    "output": _ANY,
}

_TOLD = {"done": _TEXT, "about": _TEXT}

_DEAD = {
    "run": _RUN_ID,
    "path": _TEXT,
    "workflow": _TEXT,
    "error": _object({"class": _TEXT, "message": _TEXT}),
    "attempts": _WHOLE,
    "on_error": {"enum": ["continue", "fail"]},
    "failed_at": _TIME,
    "key": {"type": ["string", "null"], "description": "The idempotency key of its call."},
    "top": {**_RUN_ID, "description": "The run that would be resumed: itself, or the topmost one above it."},
    "state": {**_STATE, "description": "How that one stands. One that has completed went on without the step."},
}

_APPROVAL = {
    "id": {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}[.][0-9a-f]{16}$"},
    "run": _RUN_ID,
    "path": _TEXT,
    "workflow": _TEXT,
    "subject": _TEXT,
    "status": {"enum": ["open", "approved", "rejected", "expired", "cancelled"]},
    "approves": _or_null(_TEXT),
    "tool": _or_null(_TEXT),
    "risk": _or_null(_TEXT),
    "arguments": _ANY,
    "digest": {"type": "string", "description": "Send it back with the decision."},
    "show": _ANY,
    "roles": {**_list(_TEXT), "description": "Who may decide now: the roles of all tiers that have begun."},
    "tier": {"type": "integer", "minimum": 1, "description": "The tier that began last; of one decided, its last one."},
    "next_tier": _or_null(_object({"at": _TIME, "roles": _list(_TEXT)})),
    "reminded_at": {**_or_null(_TIME), "description": "When this tier was reminded."},
    "quorum": {"type": "integer", "minimum": 1, "description": "How many different people must approve the digest."},
    "approved_by": _list(_object({"by": _TEXT, "at": _TIME, "note": _TEXT})),
    "edit": _or_null({"type": "object", "description": "JSON Schema of the changes that may be made."}),
    "edited": {"type": ["string", "null"], "description": "The digest of what was asked before the last changes."},
    "changes": _or_null({"type": "object", "description": "The last changes (RFC 7396), which `arguments` hold."}),
    "opened_at": _or_null(_TIME),
    "expires_at": _or_null(_TIME),
    "decided_at": _or_null(_TIME),
    "by": _or_null(_TEXT),
    "note": _TEXT,
}

_WORKFLOW = {
    "workflow": _TEXT,
    "version": _WHOLE,
    "latest": _WHOLE,
    "hash": _TEXT,
    "description": _TEXT,
    "published_at": _or_null(_TIME),
    "input": {"type": "object", "description": "JSON Schema of a run's input."},
    "budget": _ref("Limits"),
    "max_parallel": _WHOLE,
    "steps": _list(
        _object(
            {
                "id": _TEXT,
                "type": _TEXT,
                "needs": _list(_TEXT),
                "risk": _TEXT,
                "timeout_ms": _WHOLE,
                "approves": _or_null(_TEXT),
            }
        )
    ),
    "triggers": _list(
        _object(
            {
                "id": _TEXT,
                "kind": {"enum": ["webhook", "schedule", "event", "queue"]},
                "tenant": _TEXT,
                "active": {"type": "boolean", "description": "false: the local cloud has no schedules."},
                "path": {"type": ["string", "null"], "description": "Where a webhook is sent to."},
                "queue": {"type": ["string", "null"], "description": "Name of the SQS queue."},
                "cron": _or_null(_TEXT),
                "timezone": _or_null(_TEXT),
                "pattern": _or_null(_JSON),
            }
        )
    ),
    "definition": _TEXT,
}

_ESTIMATE = {
    "path": _TEXT,
    "model": _or_null(_TEXT),
    "usd": _USD,
    "usd_p90": _USD,
    "tokens": _or_null(_WHOLE),
    "attempts": {"type": "integer", "description": "0 = there is no history."},
}

_EVENT = {
    "seq": _WHOLE,
    "at": _TIME,
    "type": _TEXT,
    "path": _or_null(_TEXT),
    "attempt": _or_null(_WHOLE),
    "data": _JSON,
}

_MORE = {
    "usd": {"type": ["string", "number"]},
    "tokens": _WHOLE,
    "steps": _WHOLE,
    "active_time": {"type": "integer", "description": "Milliseconds."},
}
_MODE: Schema = {"enum": list(get_args(BudgetMode)), "description": "audit = limits refuse nothing, it is recorded."}

SCHEMAS: dict[str, Schema] = {
    "Problem": _object(
        {"type": _TEXT, "title": _TEXT, "status": _WHOLE, "code": _TEXT, "detail": _TEXT, "instance": _TEXT},
        {"correlation_id": _TEXT},
        description="RFC 9457. `code` is stable.",
    ),
    "Amount": _object(_AMOUNT),
    "Limits": _object(_LIMITS, description="null = unlimited."),
    "WouldRefuse": _object(
        {
            "path": _or_null(_TEXT),
            "level": {"enum": ["step", "run", "tenant"]},
            "dimension": _TEXT,
            "needed": _ANY,
            "left": _ANY,
        },
        description="What an audited run would have been refused.",
    ),
    "Health": _object({"status": {"const": "ok"}}),
    "Anything": {"description": "Any JSON value: the trigger's `input` reads it as `trigger.body`."},
    "Document": {"type": "object", "description": "An OpenAPI 3.1 document."},
    "RunSummary": _object(_SUMMARY),
    "Run": _object(_RUN, {"input_omitted": _OMITTED}),
    "Runs": _object({"runs": _list(_ref("RunSummary")), "next": _or_null(_RUN_ID)}),
    "Step": _object(_STEP, {"output_omitted": _OMITTED}),
    "Steps": _object({"steps": _list(_ref("Step"))}),
    "Event": _object(_EVENT),
    "Events": _object({"events": _list(_ref("Event")), "next": _WHOLE, "state": _STATE}),
    "Approval": _object(_APPROVAL, {f"{name}_omitted": _OMITTED for name in ("arguments", "show", "edit", "changes")}),
    "Approvals": _object({"approvals": _list(_ref("Approval"))}),
    "Workflow": _object(_WORKFLOW),
    "Estimates": _object({"workflow": _TEXT, "version": _WHOLE, "estimates": _list(_object(_ESTIMATE))}),
    "Workflows": _object({"workflows": _list(_object({"workflow": _TEXT, "version": _WHOLE, "hash": _TEXT}))}),
    "Started": _object({"run": _RUN_ID, "new": {"type": "boolean"}}),
    "Accepted": _object({"run": _RUN_ID, "state": _STATE, "unwinding": _or_null(_TEXT), "seq": _WHOLE}),
    "StartRun": _object({}, {"input": _JSON, "version": {"type": "integer", "minimum": 1}, "budget_mode": _MODE}),
    "Delivered": _object({"run": _RUN_ID, "event": _TEXT, "used": {"type": "boolean"}}),
    "SendEvent": _object({"name": {"type": "string", "minLength": 1, "maxLength": 100}}, {"data": _ANY}),
    "CancelRun": _object({}, {"reason": {"type": "string", "maxLength": 300}}),
    "Resume": _object(
        {},
        {
            "step": _TEXT,
            "action": {"enum": list(get_args(Resumption))},
            "result": _ANY,
            "raise": _object({}, _MORE),
            "version": {"oneOf": [{"type": "integer", "minimum": 1}, {"const": "latest"}]},
        },
        description="With `step` and `action`: a word on a paused step. Without: a run that ended early goes on. Both "
        "with more of its limits, if `raise` says so.",
    ),
    "Rebuild": _object({}, {"repair": {"type": "boolean", "default": False}}),
    "Rebuilt": _object({"run": _RUN_ID, "differences": _list(_ref("Difference")), "repaired": {"type": "boolean"}}),
    "Difference": _object({"record": _TEXT, "field": _TEXT, "known": _ANY, "told": _ANY, "lost": {"type": "boolean"}}),
    "DeadLetters": _object({"dead_letters": _list(_ref("DeadLetter"))}),
    "DeadLetter": _object(_DEAD),
    "Dismiss": _object({}, {"path": {**_TEXT, "description": "The step; without it, all of the run."}}),
    "Dismissed": _object({"run": _RUN_ID, "dismissed": _list(_TEXT)}),
    "Breakers": _object({"breakers": _list(_ref("Breaker"))}),
    "Breaker": _object({"service": _TEXT, "state": {"enum": ["open", "half_open"]}, "opened_at": _TIME}),
    "Sweep": _object({}, {"after": _TEXT}),
    "Swept": _object({"looked": _WHOLE, "findings": _list(_ref("Finding")), "next": _or_null(_TEXT)}),
    "Finding": _object({"tenant": _TEXT, "run": _TEXT, "what": {"enum": list(get_args(What))}, **_TOLD}),
    "Decide": _object(
        {"decision": {"enum": ["approve", "edit", "reject"]}, "digest": _TEXT},
        {
            "note": {"type": "string", "maxLength": 2000},
            "changes": {"type": "object", "description": "With `edit`: a JSON Merge Patch of the arguments."},
        },
    ),
}
