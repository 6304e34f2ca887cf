"""Endpoints of workflows: what is published and how to call it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shared.api import inputs
from shared.api.web import json_response
from shared.budget import history
from shared.errors import NotFound
from shared.ledger.keys import LATEST, latest_key, version_key
from shared.manifest import Limits, Manifest
from shared.runtime.views import estimate_view, iso, usd
from shared.triggers.occurrences import queue_name

if TYPE_CHECKING:
    from shared.api.host import ApiHost, Call
    from shared.api.web import Response
    from shared.manifest import Trigger
    from shared.ports import Item, Key


def index(host: ApiHost, _call: Call) -> Response:
    """List the published workflows with their newest version."""
    items = host.catalogue.query(LATEST, "NAME#")
    facts = [{name: item[name] for name in ("workflow", "version", "hash")} for item in items]
    return json_response(200, {"workflows": facts})


def show(host: ApiHost, call: Call) -> Response:
    """Show a workflow's newest version."""
    name = inputs.workflow_name(call.names["name"])
    return json_response(200, _view(_version(host, name, _latest(host, name)), _latest(host, name), host))


def version(host: ApiHost, call: Call) -> Response:
    """Show one version."""
    name = inputs.workflow_name(call.names["name"])
    given = inputs.whole_query({"n": call.names["n"]}, "n", default=1, low=1, high=999_999)
    return json_response(200, _view(_version(host, name, given), _latest(host, name), host))


def estimates(host: ApiHost, call: Call) -> Response:
    """Tell what one attempt of each step of the newest version is expected to cost the tenant, from its own history."""
    name = inputs.workflow_name(call.names["name"])
    newest = host.definitions.published(name)
    found = history.estimates(newest.manifest, history.read(host.store, call.tenant, name))
    shown = [estimate_view(one) for one in found]
    return json_response(200, {"workflow": name, "version": newest.version, "estimates": shown})


def _latest(host: ApiHost, name: str) -> int:
    return int(_item(host, latest_key(name), f"workflow {name}")["version"])


def _version(host: ApiHost, name: str, number: int) -> Item:
    return _item(host, version_key(name, number), f"version {number} of workflow {name}")


def _item(host: ApiHost, key: Key, what: str) -> Item:
    item = host.catalogue.read([key]).get(key)
    if item is None:
        raise NotFound(f"There is no {what}.", code="unknown_workflow")
    return item


def _view(item: Item, latest: int, host: ApiHost) -> dict[str, Any]:
    manifest = Manifest.from_json(json.loads(item["manifest"]))
    return {
        "workflow": manifest.workflow,
        "version": item["version"],
        "latest": latest,
        "hash": manifest.hash,
        "description": manifest.description,
        "published_at": iso(item["published_at"]),
        "input": manifest.input,
        "budget": _limits(manifest.budget),
        "max_parallel": manifest.max_parallel,
        "steps": [_step(manifest, name) for name in manifest.order],
        "triggers": [_trigger(manifest.workflow, one, host) for one in manifest.triggers],
        "definition": item["definition"],
    }


def _trigger(workflow: str, trigger: Trigger, host: ApiHost) -> dict[str, Any]:
    own = {name: trigger.spec.get(name) for name in ("cron", "timezone", "pattern")}
    path = f"/v1/hooks/{workflow}/{trigger.id}" if trigger.kind == "webhook" else None
    queue = queue_name(host.environment, workflow, trigger.id) if trigger.kind == "queue" else None
    active = trigger.kind != "schedule" or host.schedules
    facts = {"id": trigger.id, "kind": trigger.kind, "tenant": trigger.tenant, "active": active}
    return {**facts, "path": path, "queue": queue, **own}


def _limits(budget: Limits) -> dict[str, Any]:
    active = None if budget.active_time is None else int(budget.active_time * 1000)
    return {"usd": usd(budget.usd), "tokens": budget.tokens, "steps": budget.steps, "active_time": active}


def _step(manifest: Manifest, name: str) -> dict[str, Any]:
    plan = manifest.steps[name]
    return {
        "id": plan.id,
        "type": plan.type,
        "needs": [edge.source for edge in plan.needs],
        "risk": plan.risk,
        "timeout_ms": int(plan.timeout * 1000),
        "approves": plan.spec.get("approves"),
    }
