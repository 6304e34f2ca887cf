"""Sweeps: by the schedule the runs of all tenants, going on where it stopped; for an admin those of one tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions import bootstrap
from shared.observability import logger
from shared.runtime.sweep import go_on, of_tenant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.runtime.task import LambdaContext

MARGIN = 15_000
"""Milliseconds kept for the last page."""


@logger.inject_lambda_context(clear_state=True)
def handle(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Sweep as far as time allows. ``event`` with ``tenant`` comes from the API, anything else from the schedule."""
    host = bootstrap.sweep_host()
    now = host.clock.now()
    until = now + context.get_remaining_time_in_millis() - MARGIN
    done = of_tenant(host, event, now) if "tenant" in event else go_on(host, until)
    for finding in done.findings:
        logger.info("found", extra={"finding": finding.to_json()})
    logger.info("swept", extra={"looked": done.looked, "found": len(done.findings)})
    return done.to_json()
