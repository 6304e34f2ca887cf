"""A run's beginning: an idempotent request becomes one run and one execution."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.budget.tenant import Taken, take
from shared.errors import Conflict, InvalidRequest, StoreConflict, TenantBudgetExceeded, TransientFailure
from shared.ids import ulid
from shared.ledger.records import Event, Head, Request, Run, request_partition, revive, run_partition
from shared.ports import Key, Write
from shared.redaction import redacted
from shared.runtime.ending import execution_input, execution_name
from shared.runtime.journal import ATTEMPTS, FIRST_PAUSE, LONGEST_PAUSE, Journal
from shared.runtime.outputs import fits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import BudgetMode, Step
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
    """Who asks for a run of what; ``key`` makes repeated requests one. ``version`` None = the latest.

    ``budget_mode`` "audit" = limits refuse nothing; what they would have refused is recorded. ``trigger_id`` and
    ``occurrence`` as in the run's record.
    """

    tenant: str
    initiator: str
    trigger: str
    input: Mapping[str, Any]
    key: str | None = None
    version: int | None = None
    budget_mode: BudgetMode = "enforce"
    trigger_id: str = ""
    occurrence: str = ""


def start_run(host: Host, published: Published, request: StartRequest) -> tuple[str, bool]:
    """Create the run and start its execution. Returns the run's id and whether it is new.

    A repeated request with the same key finishes what the first began. Raises InvalidRequest when the input does not
    fit the workflow's schema, Conflict when the key was used for something else, TenantBudgetExceeded when the tenant
    has less left than the run may use.
    """
    wrong = fits(request.input, published.manifest.input)
    if wrong:
        raise InvalidRequest(f"The input does not fit the input schema of {published.workflow} at {wrong}")
    stored = values.store(redacted(request.input, published.manifest.input), host.blobs, request.tenant)
    if stored.size > INPUT_LIMIT:
        raise InvalidRequest(
            f"The input has {stored.size} bytes; the limit is {INPUT_LIMIT}. Pass large data by reference."
        )
    run_id, new = _create(host, published, request, stored)
    execute(host, Journal(host.store, host.clock, request.tenant, run_id).read(["RUN"]))
    return run_id, new


def _create(host: Host, published: Published, request: StartRequest, stored: values.Value) -> tuple[str, bool]:
    """Create the run, with its envelope and the memory of its key, in one transaction; again where others interfere."""
    now = host.clock.now()
    new = NewRun(ulid(now), published, request, stored, now, published.manifest.budget)
    marker = _marker(new)
    for attempt in range(ATTEMPTS):
        try:
            host.store.commit([*marker, *new.writes(host.store)])
        except (StoreConflict, TenantBudgetExceeded) as error:
            known = _known(host, new, marker)
            if known:
                return known, known == new.id
            if isinstance(error, TenantBudgetExceeded):
                raise
            host.clock.sleep(host.clock.jitter(min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)))
        else:
            return new.id, True
    raise TransientFailure("The run could not be created: its tenant's budget kept changing. Try again.")


def _marker(new: NewRun) -> list[Write]:
    """Return the write by which the request's key is remembered, if it has one."""
    asked, key = new.request, new.request.key
    if key is None:
        return []
    what = {"workflow": new.published.workflow, "version": asked.version, "input": values.digest(asked.input)}
    if asked.occurrence:  # the same one, also when another version makes another input of it
        what = {"workflow": new.published.workflow, "occurrence": asked.occurrence}
    what |= {"budget_mode": asked.budget_mode} if asked.budget_mode != "enforce" else {}
    marker = Request(key=key, run=new.id, digest=values.digest(what))
    item = {**marker.to_item(), "ttl": (new.now + REQUEST_LIFE) // 1000}
    return [Write(Key(request_partition(asked.tenant, key), marker.sk), item, None)]


def started_by(store: Store, tenant: str, key: str) -> str | None:
    """Return the run that a request with this key has made, if one has."""
    marker = Key(request_partition(tenant, key), "REQUEST")
    item = store.read([marker]).get(marker)
    return Request.from_item(item).run if item else None


def _known(host: Host, new: NewRun, marker: list[Write]) -> str | None:
    """Return the run that the same request has made already: an earlier one, or this one whose answer was lost."""
    if not marker:
        own = Key(run_partition(new.request.tenant, new.id), "HEAD")
        return new.id if own in host.store.read([own]) else None
    item = host.store.read([marker[0].key]).get(marker[0].key)
    known = revive(item) if item else None
    if not isinstance(known, Request):
        return None
    if known.digest != marker[0].item["digest"]:
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

    def writes(self, store: Store | None = None) -> list[Write]:
        """Return the writes that create it: its head, its facts, its first event, and what draws its envelope.

        ``store`` holds the tenant's budget; a child's envelope comes out of its parent's. Raises TenantBudgetExceeded.
        """
        head = new_head(self.limits)
        taken = take(store, self._run(), head, self.now) if store else Taken(self._run())
        run, refused = taken.run, [refusal.data() for refusal in taken.refusals]
        data = {"workflow": run.workflow, "version": run.version, "initiator": run.initiator, "trigger": run.trigger}
        data |= {"would_refuse": refused} if refused else {}
        data |= {"trigger_id": run.trigger_id, "occurrence": run.occurrence} if run.trigger_id else {}
        event = Event(seq=1, at=self.now, type="run_started", data=data)
        pk, records = run_partition(run.tenant, run.id), (head, listed(run, head), event, *self.records)
        return [*(Write(Key(pk, record.sk), record.to_item(), None) for record in records), *taken.writes]

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
            budget_mode=self.request.budget_mode,
            trigger_id=self.request.trigger_id,
            occurrence=self.request.occurrence,
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
    store.commit([Write(key, listed(run, head).onto(known), run.rev)])
    return True


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def execute(host: Host, seen: Snapshot) -> None:
    """Start the run's execution; starting it again is harmless."""
    host.engine.start(seen.run.machine, execution_name(seen), execution_input(seen))
