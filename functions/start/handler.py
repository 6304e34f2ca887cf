"""Creates a run from a request and starts its machine. Called by the API and by triggers, never from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.errors import RequestRefused
from shared.observability import logger
from shared.runtime.runs import StartRequest, start_run

if TYPE_CHECKING:
    from collections.abc import Mapping


_MORE = ("key", "version", "budget_mode", "trigger_id", "occurrence")


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Start a run. Returns ``{"run", "new"}``, or ``{"problem"}`` with status, code and detail."""
    host = bootstrap.start_host()
    try:
        published = host.definitions.published(event["workflow"], event.get("version"))
        asked = {name: event[name] for name in ("tenant", "initiator", "trigger", "input")}
        asked |= {name: event[name] for name in _MORE if event.get(name)}
        run, new = start_run(host, published, StartRequest(**asked))
    except RequestRefused as refused:
        return {"problem": {"status": refused.status, "code": refused.problem, "detail": refused.detail}}
    logger.info("run started", extra={"run_id": run, "new": new, "workflow": event["workflow"]})
    return {"run": run, "new": new}
