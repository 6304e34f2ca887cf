"""What a run takes from its tenant's budget and gives back, as writes that belong into the run's own transaction.

A run takes all that it may use when it is created, so no step of it ever asks its tenant. Its end, in the transaction
of its terminal event, gives back what it has not used. Child runs and parts take nothing here: what they may use is
carved out of their parent's head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shared.budget import rules, shards
from shared.errors import Conflict, StoreConflict, TenantBudgetExceeded, TransientFailure
from shared.ports import Key, Write

if TYPE_CHECKING:
    from shared.budget.rules import Refusal
    from shared.budget.shards import Account, Amounts
    from shared.ledger.records import Head, Run
    from shared.ports import Store

_TRIES = 10


@dataclass(frozen=True, slots=True)
class Taken:
    """The run with what it has drawn noted on it, the writes that draw it, and what an audit would have refused."""

    run: Run
    writes: tuple[Write, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def read(store: Store, tenant: str) -> Account:
    """Return the tenant's budget; where none was set, one without limits."""
    return shards.account(tenant, store.read(shards.keys(tenant)))


def look(store: Store, tenant: str, now: int) -> Account:
    """Return the tenant's budget as it is ``now`` (ms), whether or not a run has begun in this month."""
    return shards.renewed(read(store, tenant), _month(now))


def take(store: Store, run: Run, head: Head, now: int) -> Taken:
    """Draw what a run has left of its limits, at its beginning or when an ended run goes on. ``now`` in ms.

    Raises TenantBudgetExceeded when it does not fit, Conflict when the run sets no limit where its tenant has one. A
    child, and a run that has not given back yet, draw nothing.
    """
    if run.parent or run.drawn:
        return Taken(run)
    known = read(store, run.tenant)
    limits, left = _limits(run), _left(head, now)
    open_ended = [name for name in known.set.limits if name not in limits]
    audit = run.budget_mode == "audit"
    if open_ended and not audit:
        raise Conflict(_no_limit(run, open_ended), code="run_limit_missing")
    drawn = tuple(name for name in known.set.limits if name in limits)
    wanted = {name: left[name] for name in drawn}
    writes, refusals = _draw(known, run, wanted, {name: limits[name] for name in drawn}, now)
    return Taken(replace(run, drawn=drawn), writes, refusals)


def take_more(store: Store, run: Run, more: Amounts, now: int) -> tuple[Write, ...]:
    """Return the writes that draw ``more`` for a run whose limits are raised. Raises TenantBudgetExceeded."""
    wanted = {name: more[name] for name in run.drawn if more.get(name)}
    return _draw(read(store, run.tenant), run, wanted, wanted, now)[0] if wanted else ()


def give_back(store: Store, run: Run, head: Head) -> tuple[tuple[Run, ...], tuple[Write, ...]]:
    """Return the run and the write by which an ended run gives back what it has not used; nothing if it drew nothing.

    The run is written too, so that a raise of its limits that comes meanwhile is never overlooked.
    """
    if not run.drawn:
        return (), ()
    number = shards.home(run.id)
    known = read(store, run.tenant).shards[number]
    limits, left = _limits(run), _left(head, head.last_close)
    unused, holding = ({name: amounts[name] for name in run.drawn} for amounts in (left, limits))
    shard = shards.give(known, unused, holding)
    write = Write(Key(shards.partition(run.tenant), shard.sk), shard.to_item(), known.rev or None)
    return (replace(run, drawn=()),), (write,)


def set_limits(store: Store, tenant: str, limits: Amounts, *, monthly: bool, now: int) -> Account:
    """Set a tenant's limits: what was spent and is held counts on. Returns the account.

    Raises TransientFailure when runs keep starting and ending under it.
    """
    for _ in range(_TRIES):
        before = read(store, tenant)
        known = shards.renewed(before, _month(now))
        fresh = replace(known.set, limits=limits, monthly=monthly, month=_month(now))
        after = shards.dealt(known, fresh, known.spent)
        try:
            store.commit(after.writes(before))
        except StoreConflict:
            continue
        return read(store, tenant)
    raise TransientFailure(f"The budget of {tenant} kept changing. Set it again.")


def _draw(
    known: Account, run: Run, wanted: Amounts, holding: Amounts, now: int
) -> tuple[tuple[Write, ...], tuple[Refusal, ...]]:
    account = shards.renewed(known, _month(now))
    refusals = shards.lacking(account, wanted)
    if refusals and run.budget_mode != "audit":
        raise TenantBudgetExceeded(_exceeded(account, run, refusals[0]))
    if not wanted:
        return (), ()
    return shards.take(account, wanted, holding, shards.home(run.id)).writes(known), refusals


def _month(now: int) -> str:
    return f"{datetime.fromtimestamp(now / 1000, UTC):%Y-%m}"


def _limits(run: Run) -> Amounts:
    limits = zip(shards.DIMENSIONS, (run.limit_usd, run.limit_tokens, run.limit_steps, run.limit_active), strict=True)
    return {name: limit for name, limit in limits if limit is not None}


def _left(head: Head, now: int) -> Amounts:
    left = (head.left_usd, head.left_tokens, head.left_steps, rules.active_left(head, now))
    return {name: amount for name, amount in zip(shards.DIMENSIONS, left, strict=True) if amount is not None}


def _exceeded(account: Account, run: Run, refusal: Refusal) -> str:
    told = {name: rules.shown(refusal.dimension, value) for name, value in _figures(account, refusal).items()}
    return (
        f"Tenant {run.tenant} has {told['left']} left of its {refusal.dimension} budget of {told['limit']}, and this "
        f"run of {run.workflow} takes {told['wanted']}. Wait for others to end (running ones hold {told['held']} and "
        "give back what they do not use), lower the workflow's `budget`, or have the tenant's budget raised."
    )


def _figures(account: Account, refusal: Refusal) -> dict[str, int]:
    name = refusal.dimension
    figures = {"left": refusal.left, "wanted": refusal.wanted}
    return figures | {"limit": account.set.limits[name], "held": account.held[name]}


def _no_limit(run: Run, open_ended: list[str]) -> str:
    names = ", ".join(open_ended)
    return (
        f"Tenant {run.tenant} has a budget of {names}, and {run.workflow} version {run.version} sets no such limit, so "
        f"a run of it could use all of it. Give the workflow a `budget` with {names}."
    )
