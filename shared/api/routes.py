"""Which method and path lead to which endpoint, for whom. The OpenAPI document is made from this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api import approvals, deadletters, hooks, runs, system, workflows

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.api.host import ApiHost, Call
    from shared.api.web import Response
    from shared.tenants.tokens import Role


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. ``path`` holds ``{name}`` for a segment; ``role`` None = no token is needed."""

    method: str
    path: str
    id: str
    endpoint: Callable[[ApiHost, Call], Response]
    role: Role | None = "viewer"

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """Return the named segments if the path matches."""
        pattern = self.path.strip("/").split("/")
        if len(pattern) != len(segments):
            return None
        names: dict[str, str] = {}
        for part, segment in zip(pattern, segments, strict=True):
            if part.startswith("{"):
                names[part[1:-1]] = segment
            elif part != segment:
                return None
        return names


ROUTES = (
    Route("GET", "/v1/health", "health", system.health, None),
    Route("GET", "/v1/openapi.json", "openapi", system.openapi, None),
    Route("GET", "/v1/workflows", "listWorkflows", workflows.index),
    Route("GET", "/v1/workflows/{name}", "getWorkflow", workflows.show),
    Route("GET", "/v1/workflows/{name}/versions/{n}", "getWorkflowVersion", workflows.version),
    Route("GET", "/v1/workflows/{name}/estimates", "getEstimates", workflows.estimates),
    Route("POST", "/v1/workflows/{name}/runs", "startRun", runs.start, "operator"),
    Route("POST", "/v1/hooks/{workflow}/{trigger}", "receiveWebhook", hooks.receive, None),
    Route("GET", "/v1/runs", "listRuns", runs.index),
    Route("GET", "/v1/runs/{id}", "getRun", runs.show),
    Route("GET", "/v1/runs/{id}/events", "listEvents", runs.events),
    Route("GET", "/v1/runs/{id}/steps", "listSteps", runs.steps),
    Route("POST", "/v1/runs/{id}/events", "sendEvent", runs.send_event, "operator"),
    Route("POST", "/v1/runs/{id}/cancel", "cancelRun", runs.cancel, "operator"),
    Route("POST", "/v1/runs/{id}/resume", "resumeRun", runs.resume, "operator"),
    Route("POST", "/v1/runs/{id}/rebuild", "rebuildRun", runs.rebuild, "admin"),
    Route("GET", "/v1/breakers", "listBreakers", system.breakers),
    Route("POST", "/v1/sweep", "sweep", system.sweep, "admin"),
    Route("GET", "/v1/dead-letters", "listDeadLetters", deadletters.index),
    Route("POST", "/v1/runs/{id}/dead-letters/dismiss", "dismissDeadLetters", deadletters.dismiss, "operator"),
    Route("GET", "/v1/approvals", "listApprovals", approvals.index),
    Route("GET", "/v1/approvals/{id}", "getApproval", approvals.show),
    Route("POST", "/v1/approvals/{id}", "decideApproval", approvals.decide, "approver"),
)
