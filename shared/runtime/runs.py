"""A run's beginning: an idempotent request becomes one run and one execution."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.errors import Conflict, InvalidRequest, StoreConflict
from shared.ids import ulid
from shared.ledger.records import Event, Head, Request, Run, request_partition, revive, run_partition
from shared.ports import Key, Write
from shared.runtime.calls import fits
from shared.runtime.ending import execution_input, execution_name
from shared.runtime.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Step
    from shared.manifest import Limits
    from shared.ports import Store
    from shared.runtime.host import Host, Published
    from shared.runtime.journal import Snapshot

REQUEST_LIFE = 30 * 24 * 3600 * 1000
"""How long (ms) a start request is remembered by its idempotency key."""
_TRIES = 5
INPUT_LIMIT = 5 * 1024 * 1024
"""Largest input of a run, in bytes of canonical JSON."""


@dataclass(frozen=True, slots=True)
class StartRequest:
    """Who asks for a run of what; ``key`` makes repeated requests one. ``version`` None = the latest."""

    tenant: str
    initiator: str
    trigger: str
    input: Mapping[str, Any]
    key: str | None = None
    version: int | None = None


def start_run(host: Host, published: Published, request: StartRequest) -> tuple[str, bool]:
    """Create the run and start its execution. Returns the run's id and whether it is new.

    A repeated request with the same key finishes what the first began. Raises InvalidRequest when the input does not
    fit the workflow's schema, Conflict when the key was used for something else.
    """
    wrong = fits(request.input, published.manifest.input)
    if wrong:
        raise InvalidRequest(f"The input does not fit the input schema of {published.workflow} at {wrong}")
    stored = values.store(request.input, host.blobs, request.tenant)
    if stored.size > INPUT_LIMIT:
        raise InvalidRequest(
            f"The input has {stored.size} bytes; the limit is {INPUT_LIMIT}. Pass large data by reference."
        )
    run_id, new = _create(host, published, request, stored)
    execute(host, Journal(host.store, host.clock, request.tenant, run_id).read(["RUN"]))
    return run_id, new


def _create(host: Host, published: Published, request: StartRequest, stored: values.Value) -> tuple[str, bool]:
    now = host.clock.now()
    run_id = ulid(now)
    asked = values.digest({"workflow": published.workflow, "version": request.version, "input": stored.digest})
    writes = NewRun(run_id, published, request, stored, now, published.manifest.budget).writes()
    if request.key is None:
        with suppress(StoreConflict):  # only a lost answer's own write can stand under a new id
            host.store.commit(writes)
        return run_id, True
    marker = Request(key=request.key, run=run_id, digest=asked)
    place = Key(request_partition(request.tenant, request.key), marker.sk)
    item = {**marker.to_item(), "expires": (now + REQUEST_LIFE) // 1000}
    try:
        host.store.commit([Write(place, item, None), *writes])
    except StoreConflict:
        return _same(host, place, asked), False
    return run_id, True


def _same(host: Host, place: Key, asked: str) -> str:
    item = host.store.read([place]).get(place)
    known = revive(item) if item else None
    if not isinstance(known, Request):
        raise StoreConflict("The run could not be created; try again.")
    if known.digest != asked:
        raise Conflict(
            f"Idempotency-Key {known.key} was used for another workflow or input. Use a new key.",
            code="idempotency_mismatch",
        )
    return known.run


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run about to be created; ``now`` in ms, ``parent``, ``part`` and ``context`` as in its record.

    ``records`` are those of steps that it begins with.
    """

    id: str
    published: Published
    request: StartRequest
    input: values.Value
    now: int
    limits: Limits
    parent: str | None = None
    part: str | None = None
    context: values.Value | None = None
    records: tuple[Step, ...] = ()

    def writes(self) -> list[Write]:
        """Return the writes that create it: its head, its facts and its first event."""
        run, head = self._run(), new_head(self.limits)
        data = {"workflow": run.workflow, "version": run.version, "initiator": run.initiator, "trigger": run.trigger}
        event = Event(seq=1, at=self.now, type="run_started", data=data)
        pk, records = run_partition(run.tenant, run.id), (head, listed(run, head), event, *self.records)
        return [Write(Key(pk, record.sk), record.to_item(), None) for record in records]

    def _run(self) -> Run:
        return Run(
            id=self.id,
            tenant=self.request.tenant,
            workflow=self.published.workflow,
            version=self.published.version,
            hash=self.published.hash,
            machine=self.published.machine,
            initiator=self.request.initiator,
            trigger=self.request.trigger,
            created=self.now,
            input=self.input,
            limit_usd=self.limits.usd,
            limit_tokens=self.limits.tokens,
            limit_steps=self.limits.steps,
            limit_active=_milliseconds(self.limits.active_time),
            parent=self.parent,
            part=self.part,
            context=self.context,
        )


def new_head(limits: Limits) -> Head:
    """Return the head of a run that has just been created, with everything left."""
    return Head(
        seq=1,
        left_usd=limits.usd,
        left_tokens=limits.tokens,
        left_steps=limits.steps,
        active_left=_milliseconds(limits.active_time),
    )


def listed(run: Run, head: Head) -> Run:
    """Return the run as lists find it when its head is ``head``."""
    return replace(
        run,
        state=head.state,
        projected=head.rev,
        ended=head.ended_at,
        tenant_workflow=f"TENANT#{run.tenant}#WORKFLOW#{run.workflow}",
        tenant_state=f"TENANT#{run.tenant}#STATE#{head.state}",
    )


def bring_up(store: Store, pk: str, head: Head) -> bool:
    """Bring the list view of the run in partition ``pk`` up to its head. Returns whether anything changed.

    Raises StoreConflict when others keep writing.
    """
    for _ in range(_TRIES):
        with suppress(StoreConflict):
            return _bring_up(store, Key(pk, "RUN"), head)
    raise StoreConflict(f"The list view of {pk} kept changing.")


def _bring_up(store: Store, key: Key, head: Head) -> bool:
    known = store.read([key]).get(key)
    if known is None:
        return False
    run = Run.from_item(known)
    if run.projected >= head.rev:
        return False
    store.commit([Write(key, {**known, **listed(run, head).to_item()}, run.rev)])
    return True


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def execute(host: Host, seen: Snapshot) -> None:
    """Start the run's execution; starting it again is harmless."""
    host.engine.start(seen.run.machine, execution_name(seen), execution_input(seen))
