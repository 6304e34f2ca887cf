"""From an occurrence to its run: one, however often it is delivered, and by the newest version of its workflow."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from shared.definition.names import TENANT_NAME
from shared.errors import NotFound, PermanentFailure, RequestRefused, TenantBudgetExceeded, UnfitInput
from shared.events.rules import REFUSED
from shared.ids import sha256
from shared.ports import Announcement
from shared.runtime.host import Host
from shared.runtime.outputs import fits
from shared.runtime.runs import StartRequest, start_run, started_by
from shared.tenants.register import is_known
from shared.triggers.occurrences import GROUP, queued
from shared.values import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.manifest import Trigger
    from shared.ports import DeadLetters, Events, Store
    from shared.runtime.host import Published
    from shared.triggers.occurrences import Occurrence

OWN = "default"
"""The tenant that every deployment has."""
LOG = logging.getLogger("signalbox")


@dataclass(frozen=True, slots=True)
class TriggerHost(Host):
    """The ports of the function that schedules, events and queues call. ``tenants`` is the tenants table.

    ``environment`` is the deployment's name, with which the queues' names begin.
    """

    environment: str
    tenants: Store
    dead_letters: DeadLetters
    events: Events


def asked(published: Published, occurrence: Occurrence) -> StartRequest:
    """Return the run that an occurrence asks for. Pure.

    Raises NotFound when the version has no such trigger, UnfitInput when what the trigger makes of the occurrence does
    not fit the workflow's input.
    """
    trigger = trigger_of(published, occurrence)
    try:
        data, wrong = _made(published, trigger, occurrence)
    except PermanentFailure as failure:
        raise UnfitInput(f"The input of trigger {trigger.id} cannot be made: {failure}") from failure
    except RecursionError:
        raise UnfitInput(f"What has happened is nested too deeply for trigger {trigger.id}.") from None
    if wrong or not isinstance(data, dict):
        told = wrong or "$: it is no object"
        raise UnfitInput(f"What trigger {trigger.id} gives does not fit the input of {published.workflow} at {told}")
    return StartRequest(
        tenant=_tenant(trigger, occurrence),
        initiator=f"{trigger.kind}:{trigger.id}",
        trigger=trigger.kind,
        input=cast("dict[str, Any]", data),
        key=key(occurrence),
        version=published.version,
        trigger_id=trigger.id,
        occurrence=occurrence.id,
    )


def _made(published: Published, trigger: Trigger, occurrence: Occurrence) -> tuple[Any, str | None]:
    """Return the input of the run, and what keeps it from fitting. Raises RecursionError where it cannot be kept."""
    from shared.definition.expressions import render  # noqa: PLC0415 - CEL takes its time, and most calls are others

    data = render(trigger.input, occurrence.names())
    digest(data)
    return data, fits(data, published.manifest.input)


def trigger_of(published: Published, occurrence: Occurrence) -> Trigger:
    """Return the trigger that an occurrence names. Raises NotFound."""
    trigger = published.manifest.trigger(occurrence.trigger)
    if trigger is None or trigger.kind != occurrence.kind:
        what = f"{published.workflow} has no {occurrence.kind} trigger {occurrence.trigger} in its newest version."
        raise NotFound(what, code="unknown_trigger")
    return trigger


def key(occurrence: Occurrence) -> str:
    """Return the key that makes all deliveries one run. It has blanks, so that no caller of the API can send it."""
    return f"trigger {occurrence.workflow} {occurrence.trigger} {sha256(occurrence.id.encode())}"


def _tenant(trigger: Trigger, occurrence: Occurrence) -> str:
    if not trigger.spec.get("tenant_by_group"):
        return trigger.tenant
    group = str(occurrence.seen["attributes"].get(GROUP, ""))
    if TENANT_NAME.fullmatch(group) is None:
        raise UnfitInput(f"The message names no tenant: {GROUP} is {group[:60]!r}.")
    return group


def take(host: TriggerHost, occurrence: Occurrence, delivered: Mapping[str, Any]) -> str | None:
    """Start the run of an occurrence; None = it can never start one, and is kept as a dead letter, with the reason.

    What may pass is raised, so that the occurrence is ``delivered`` again.
    """
    where = {"workflow": occurrence.workflow, "trigger": occurrence.trigger, "occurrence": occurrence.id}
    try:
        run, new = fire(host, occurrence)
    except TenantBudgetExceeded:
        raise  # it is raised, or begins anew with the month
    except RequestRefused as refused:
        LOG.warning("trigger refused", extra={**where, "code": refused.problem})  # its detail may quote data
        # First the letter: what it cannot hold comes again, and is announced by nobody until it is kept.
        host.dead_letters.put(delivered, {**where, "reason": f"{refused.problem}: {refused.detail}"})
        told = {**where, "kind": occurrence.kind, "code": refused.problem}
        resource = f"trigger/{occurrence.workflow}/{occurrence.trigger}"
        host.events.announce([Announcement(REFUSED, resource, told)])
        return None
    LOG.info("run started", extra={**where, "run_id": run, "new": new})
    return run


def take_messages(host: TriggerHost, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Take each message; return the ids of those that are to be delivered again."""
    failed: list[str] = []
    for record in records:
        try:
            take(host, queued(host.environment, record), record)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other messages must not wait for this one
            LOG.warning("not started", extra={"message_id": record["messageId"], "error": type(error).__name__})
            failed.append(str(record["messageId"]))
    return failed


def fire(host: TriggerHost, occurrence: Occurrence) -> tuple[str, bool]:
    """Start the run of an occurrence. Returns its id, and whether it is new.

    Raises RequestRefused as ``asked`` and ``start_run`` do, and NotFound when the workflow or its tenant is gone.
    """
    published = host.definitions.published(occurrence.workflow)

    def start(request: StartRequest) -> tuple[str, bool]:
        if request.tenant != OWN and not is_known(host.tenants, request.tenant):  # nobody could see its runs
            raise NotFound(f"There is no tenant {request.tenant}.", code="unknown_tenant")
        return start_run(host, published, request)

    return once(host, published, occurrence, start)


def once(
    host: Host,
    published: Published,
    occurrence: Occurrence,
    start: Callable[[StartRequest], tuple[str, bool]],
) -> tuple[str, bool]:
    """Start the run of an occurrence by ``start``. Returns its id, and whether it is new.

    What is refused now may have started one before. Raises RequestRefused as ``asked`` and ``start`` do.
    """
    try:
        return start(asked(published, occurrence))
    except RequestRefused:
        known = _earlier(host, published, occurrence)
        if known is None:
            raise
        return known, False


def _earlier(host: Host, published: Published, occurrence: Occurrence) -> str | None:
    """Return the run that an earlier delivery has started, perhaps by a version that made something else of it.

    It is looked for where it is kept, with the trigger's tenant: once that has changed, it is not found.
    """
    trigger = published.manifest.trigger(occurrence.trigger)
    if trigger is None or trigger.spec.get("tenant_by_group"):
        return None
    return started_by(host.store, trigger.tenant, key(occurrence))
