"""The endpoint of webhooks: signed instead of authenticated, and silent about what exists.

Silent with one exception: while Secrets Manager does not answer, or has not been allowed to, a webhook that exists gets
503, so that its sender tries again, and one that does not 401. Names of workflows and triggers are no secrets; whoever
knows them still starts nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from shared.api import inputs
from shared.api.runs import answered, started
from shared.api.web import TooLarge
from shared.errors import NotFound, PermanentFailure, Unverified

if TYPE_CHECKING:
    from shared.api.host import ApiHost, Call
    from shared.api.web import Response
    from shared.manifest import Trigger
    from shared.runtime.host import Published
    from shared.runtime.runs import StartRequest

LIMIT = 1024 * 1024
"""Largest body of a webhook, in bytes."""


def receive(host: ApiHost, call: Call) -> Response:
    """Start the run of a webhook: 201, or 200 when the same one has started it already."""
    from shared.triggers.occurrences import of_webhook  # noqa: PLC0415 - other calls need none of it
    from shared.triggers.signatures import check_form, verify  # noqa: PLC0415 - as above
    from shared.triggers.starting import once  # noqa: PLC0415 - as above

    request = call.request
    if len(request.body) > LIMIT:
        raise TooLarge(f"The body of a webhook has at most {LIMIT} bytes. Send where the data is instead.")
    id_ = check_form(request.headers)
    published, trigger = _hook(host, call)
    verify(request.body, request.headers, _secrets(host, trigger))
    body = inputs.parsed(request.body)
    occurrence = of_webhook(published.workflow, trigger.id, id_, body, request.headers)

    def start(request: StartRequest) -> tuple[str, bool]:
        return answered(host.start(asdict(request) | {"workflow": published.workflow}))

    return started(*once(host, published, occurrence, start))


def _hook(host: ApiHost, call: Call) -> tuple[Published, Trigger]:
    """Return the webhook that the path names. Raises Unverified: who has not signed is not told what there is."""
    try:
        published = host.definitions.published(inputs.workflow_name(call.names["workflow"]))
    except NotFound:
        raise Unverified from None
    trigger = published.manifest.trigger(call.names["trigger"])
    if trigger is None or trigger.kind != "webhook":
        raise Unverified
    return published, trigger


def _secrets(host: ApiHost, trigger: Trigger) -> str:
    """Return the newest value of the secret. Raises Unverified when there is none, TransientFailure."""
    from shared.triggers.signatures import LOG  # noqa: PLC0415 - as above

    name = str(trigger.spec["secret"])
    try:
        return host.secrets.newest(trigger.tenant, name)
    except PermanentFailure as failure:
        LOG.error("a webhook cannot be verified: %s", failure)
        raise Unverified from None
