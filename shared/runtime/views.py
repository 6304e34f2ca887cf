"""What people and programs see of a run: pure functions from records to JSON.

Money is a decimal string in USD, exact to the nano-USD; times are ISO 8601 in UTC with milliseconds; durations are
milliseconds. ``spent`` is the sum over the steps, and always equals limits - left - reserved.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from shared import values
from shared.budget.rules import NANO, active_left
from shared.ledger.records import UNDOING, Amount, Step
from shared.runtime import tiers
from shared.runtime.votes import votes_of
from shared.runtime.words import possible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shared.budget.history import Estimate
    from shared.budget.shards import Account
    from shared.ledger.records import Dead, Event, Gate, Head, Run, RunState
    from shared.manifest import Manifest
    from shared.runtime.journal import Snapshot
    from shared.values import Value

View = dict[str, Any]

OMITTED = object()
"""What a loader returns for a value that does not fit into the answer or cannot be read any more."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A run as it was read: all its records but the events, its definition, how stored values are loaded.

    ``now`` and ``ended`` in milliseconds; ``ended`` is the time of the terminal event, None while there is none.
    ``audit`` are the events that say what an audited run would have been refused.
    """

    snapshot: Snapshot
    manifest: Manifest
    load: Callable[[Value], Any]
    now: int
    ended: int | None = None
    audit: tuple[Event, ...] = ()


def usd(nano: int | None) -> str | None:
    """Return nano-USD as a decimal string of USD, exact, with at least two digits after the point."""
    if nano is None:
        return None
    whole, rest = divmod(abs(nano), NANO)
    digits = f"{rest:09d}".rstrip("0").ljust(2, "0")
    return f"{'-' if nano < 0 else ''}{whole}.{digits}"


def iso(milliseconds: int | None) -> str | None:
    """Return a time (ms since the epoch) as ISO 8601 with milliseconds and Z; None and 0 = it has not happened."""
    if not milliseconds:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def amount(value: Amount) -> View:
    """Return an amount: USD, tokens, steps."""
    return {"usd": usd(value.usd), "tokens": value.tokens, "steps": value.steps}


def spent(steps: Iterable[Step]) -> Amount:
    """Return what all steps have spent together."""
    return sum((step.spent for step in steps), Amount())


def reserved(steps: Iterable[Step]) -> Amount:
    """Return what the open steps hold, and the envelopes of child runs."""
    return sum((step.hold for step in steps), Amount())


def limits(run: Run) -> View:
    """Return the run's limits; None = unlimited. ``active_time`` in milliseconds."""
    return {
        "usd": usd(run.limit_usd),
        "tokens": run.limit_tokens,
        "steps": run.limit_steps,
        "active_time": run.limit_active,
    }


def left(head: Head, now: int) -> View:
    """Return what is left of the limits; None = unlimited. ``active_time`` in milliseconds."""
    return {
        "usd": usd(head.left_usd),
        "tokens": head.left_tokens,
        "steps": head.left_steps,
        "active_time": active_left(head, now),
    }


def tenant_budget_view(account: Account) -> View:
    """Return a tenant's budget: of every limit what was spent, what runs hold, what is left. ``active_time`` in ms."""
    known = account.set
    columns = {"limits": known.limits, "spent": account.spent, "held": account.held, "left": account.left}
    shown = {
        column: {name: _in_unit(name, amounts[name]) for name in known.limits} for column, amounts in columns.items()
    }
    return {"tenant": account.tenant, "monthly": known.monthly, "month": known.month or None, **shown}


def estimate_view(one: Estimate) -> View:
    """Return what one attempt of a step is expected to use, and from how many attempts that is known."""
    amounts = {"usd": usd(one.usd), "usd_p90": usd(one.p90), "tokens": one.tokens}
    return {"path": one.path, "model": one.model or None, **amounts, "attempts": one.attempts}


def _in_unit(dimension: str, number: int) -> Any:
    return usd(number) if dimension == "usd" else number


def run_view(seen: Seen) -> View:
    """Return everything about a run but its events."""
    head, run, steps = seen.snapshot.head, seen.snapshot.run, seen.snapshot.steps()
    remaining = active_left(head, seen.now)
    used = None if run.limit_active is None or remaining is None else run.limit_active - remaining
    return {
        **summary(run),
        "state": head.state,
        "unwinding": None if head.ended else head.unwinding,
        "reason": _reason(head, steps),
        "ended_at": iso(seen.ended),
        "hash": run.hash,
        "epoch": head.epoch,
        "seq": head.seq,
        "limits": limits(run),
        "budget_mode": run.budget_mode,
        "would_refuse": [view for event in seen.audit for view in would_refuse(event)],
        "spent": {**amount(spent(steps)), "active_time": used},
        "reserved": amount(reserved(steps)),
        "left": left(head, seen.now),
        **_value("input", run.input, seen.load),
        "steps": steps_view(seen),
        "gates": [approval_view(gate, run, seen.load) for gate in _by_time(seen.snapshot.gates())],
    }


def summary(run: Run) -> View:
    """Return a run as lists show it; its state follows the run's own within moments."""
    return {
        "id": run.id,
        "workflow": run.workflow,
        "version": run.version,
        "tenant": run.tenant,
        "state": run.state,
        "initiator": run.initiator,
        "trigger": run.trigger,
        "trigger_id": run.trigger_id or None,
        "occurrence": run.occurrence or None,
        "parent": run.parent,
        "part": run.part,
        "created_at": iso(run.created),
        "ended_at": iso(run.ended),
    }


def _reason(head: Head, steps: Iterable[Step]) -> str | None:
    """Return why the run is paused, by the first step that waits for a person; else why it ends or ended early."""
    if head.state != "paused":
        return head.reason
    stuck = (step for step in steps if step.status in {"paused", "unknown"} and not step.settled)
    return next((step.reason for step in sorted(stuck, key=lambda step: step.path)), head.reason)


def _by_time(gates: Iterable[Gate]) -> list[Gate]:
    return sorted(gates, key=lambda gate: (gate.opened, gate.path))


def steps_view(seen: Seen) -> list[View]:
    """Return all steps in the definition's order; those to which nothing has happened yet are ``blocked``."""
    records = [step for step in seen.snapshot.steps() if not _is_of_before(step)]
    known = {step.path for step in records}
    rank = {name: number for number, name in enumerate(seen.manifest.order)}
    views = [(_place(step, rank), step_view(step, seen)) for step in records]
    views += [((rank[name], 0, name), _blocked(name, seen)) for name in rank if name not in known]
    return [view for _, view in sorted(views, key=lambda pair: pair[0])]


def _is_of_before(step: Step) -> bool:
    """Tell whether a record says something of an earlier epoch only: what was undone then, an item that failed."""
    return step.status == "ready" and (step.path.endswith(UNDOING) or step.type == "item")


def _place(step: Step, rank: Mapping[str, int]) -> tuple[int, int, str]:
    return rank.get(step.path.split("/", 1)[0], len(rank)), step.started or 0, step.path


def step_view(step: Step, seen: Seen) -> View:
    """Return one step instance."""
    failure = step.failure
    return {
        "path": step.path,
        "step": step.step,
        "type": step.type,
        "status": step.status,
        "attempt": step.attempt,
        "retries": step.retries,
        "model": step.model,
        "tool": step.tool or (step.call.tool if step.call else None),
        "route": step.route,
        "cost": amount(step.spent),
        "reserved": amount(step.hold) if step.open else None,
        "started_at": iso(step.started),
        "ended_at": iso(step.ended),
        "duration_ms": _duration(step, seen.now),
        "error": {"class": failure.error_class, "message": failure.message} if failure else None,
        "reason": step.reason,
        "short": _short(step),
        "actions": list(possible(seen.snapshot, step)),
        "given_up": step.given_up if step.settled else None,
        "by": step.by,
        "child": step.child,
        **_value("output", step.output, seen.load),
    }


def _short(step: Step) -> View | None:
    """Return which limit a step waits for, and how much it asked of it."""
    failure = step.failure
    if step.reason != "budget_exceeded" or failure is None or not failure.dimension:
        return None
    needed = _in_unit(failure.dimension, failure.wanted)
    return {"level": failure.level, "dimension": failure.dimension, "needed": needed}


def _duration(step: Step, now: int) -> int | None:
    """Return how long the step took, or has been taking while it has not ended."""
    return None if step.started is None else (step.ended or now) - step.started


def _blocked(name: str, seen: Seen) -> View:
    plan = seen.manifest.steps[name]
    never_ran = Step(path=name, step=name, type=plan.type, status="waiting")
    return {**step_view(never_ran, seen), "status": "blocked"}


def _value(name: str, value: Value | None, load: Callable[[Value], Any]) -> View:
    loaded = None if value is None else load(value)
    if value is not None and loaded is OMITTED:
        return {name: None, f"{name}_omitted": {"digest": value.digest, "size": value.size}}
    return {name: loaded}


def approval_id(run: str, gate: Gate) -> str:
    """Return the name under which an approval is asked for."""
    return f"{run}.{gate.id}"


def approval_view(gate: Gate, run: Run, load: Callable[[Value], Any]) -> View:
    """Return one request for a decision, with exactly what it would let run."""
    return {
        "id": approval_id(run.id, gate),
        "run": run.id,
        "path": gate.path,
        "workflow": run.workflow,
        "subject": gate.subject,
        "status": gate.status,
        "approves": gate.approves,
        "tool": gate.tool,
        "risk": gate.risk,
        **_value("arguments", gate.arguments, load),
        "digest": gate.digest,
        **_value("show", gate.show, load),
        "roles": list(gate.roles),
        "tier": gate.tier,
        "next_tier": _next_tier(gate),
        "reminded_at": iso(gate.reminded),
        "quorum": gate.quorum,
        "approved_by": [{**vote, "at": iso(vote["at"])} for vote in votes_of(gate)],
        **_value("edit", gate.edit, load),
        "edited": gate.edited or None,
        **_value("changes", gate.changes, load),
        "opened_at": iso(gate.opened),
        "expires_at": iso(gate.expires),
        "decided_at": iso(gate.decided),
        "by": gate.by,
        "note": gate.note,
    }


def _next_tier(gate: Gate) -> View | None:
    """Return when an open gate's next tier begins, and which roles it adds."""
    found = tiers.next_tier(gate)
    return {"at": iso(found[0]), "roles": list(found[1])} if found else None


def would_refuse(event: Event) -> list[View]:
    """Return what an event says would have been refused: of a tenant's limits when the run starts, else of a step."""
    found = event.data.get("would_refuse", []) if event.type == "run_started" else [event.data]
    return [{"path": event.path, **_refusal(one)} for one in found]


def _refusal(data: Mapping[str, Any]) -> View:
    dimension = data["dimension"]
    amounts = {name: _in_unit(dimension, data[name]) for name in ("needed", "left")}
    return {"level": data["level"], "dimension": dimension, **amounts}


def dead_view(run: str, letter: Dead, top: str, state: RunState) -> View:
    """Return a dead letter; ``top`` is the run that would be resumed for it, ``state`` how that one stands."""
    return {
        "run": run,
        "path": letter.path,
        "workflow": letter.workflow,
        "error": {"class": letter.error_class, "message": letter.message},
        "attempts": letter.attempts,
        "on_error": letter.on_error,
        "failed_at": iso(letter.opened),
        "key": letter.key,
        "top": top,
        "state": state,
    }


_AMOUNTS, _TIMES = ("used", "hold"), ("expires",)
_REFUSALS = frozenset({"budget_refused", "budget_would_refuse"})


def event_view(event: Event) -> View:
    """Return one entry of the log; amounts and times inside its data are shown like everywhere else."""
    data = {name: _shown(name, value) for name, value in event.data.items()}
    if event.type in _REFUSALS and "needed" in event.data:
        data = _refusal(event.data)
    return {
        "seq": event.seq,
        "at": iso(event.at),
        "type": event.type,
        "path": event.path,
        "attempt": event.attempt,
        "data": data,
    }


def _shown(name: str, value: Any) -> Any:
    if name == "would_refuse":
        return [_refusal(one) for one in value]
    if name == "raised":
        return {dimension: _in_unit(dimension, more) for dimension, more in value.items()}
    if name == "changes":
        return values.parse(value)
    if name in _AMOUNTS and isinstance(value, dict):
        return amount(Amount(**cast("dict[str, int]", value)))
    return iso(value) if name in _TIMES and isinstance(value, int) else value
