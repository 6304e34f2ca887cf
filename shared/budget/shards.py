"""A tenant's budget in shards: what its runs may use together. Pure: every rule takes an account and returns the next.

One partition a tenant: ``LIMITS`` (what an admin has set) and ``SHARD#0`` to ``SHARD#7``, which divide what is left, so
that runs that start together seldom write to the same item. A run that its own shard is too small for takes the rest
from the others, in the same transaction. In every dimension limit = left + held by runs + spent, over all shards;
what a run holds is its whole limit, of which it may have used a part. Amounts map a dimension to nano-USD, tokens,
steps or milliseconds of active time; a dimension that is missing has no limit.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.budget.rules import Refusal
from shared.frozen import frozen_record
from shared.ledger.record import Record, replace
from shared.ports import Key, Write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.ports import Item

Amounts = dict[str, int]

DIMENSIONS = ("usd", "tokens", "steps", "active_time")
SHARDS = 8


@frozen_record
class TenantLimits(Record):
    """What an admin has set. With ``monthly``, what was spent counts for the ``month`` (2026-11) only."""

    limits: Amounts = field(default_factory=Amounts)
    monthly: bool = False
    month: str = ""

    @property
    def sk(self) -> str:
        """The sort key inside the budget's partition."""
        return "LIMITS"


@frozen_record
class Shard(Record):
    """One part of what is left, and of what runs hold."""

    number: int
    left: Amounts = field(default_factory=Amounts)
    held: Amounts = field(default_factory=Amounts)

    @property
    def sk(self) -> str:
        """The sort key inside the budget's partition."""
        return f"SHARD#{self.number}"


@dataclass(frozen=True, slots=True)
class Account:
    """A tenant's budget as it was read."""

    tenant: str
    set: TenantLimits
    shards: tuple[Shard, ...]

    @property
    def left(self) -> Amounts:
        """What runs may still take."""
        return {name: sum(shard.left.get(name, 0) for shard in self.shards) for name in self.set.limits}

    @property
    def held(self) -> Amounts:
        """What runs hold that have not ended."""
        return {name: sum(shard.held.get(name, 0) for shard in self.shards) for name in DIMENSIONS}

    @property
    def spent(self) -> Amounts:
        """What ended runs have used."""
        left, held = self.left, self.held
        return {name: limit - left[name] - held[name] for name, limit in self.set.limits.items()}

    def put(self, *shards: Shard) -> Account:
        """Return the account with these shards instead of its own."""
        fresh = {shard.number: shard for shard in shards}
        return Account(self.tenant, self.set, tuple(fresh.get(each.number, each) for each in self.shards))

    def writes(self, before: Account) -> tuple[Write, ...]:
        """Return the writes that lead from ``before``, which was read, to this."""
        pairs = zip((self.set, *self.shards), (before.set, *before.shards), strict=True)
        pk = partition(self.tenant)
        changed = [after for after, known in pairs if after != known or not known.rev]
        return tuple(Write(Key(pk, each.sk), each.to_item(), each.rev or None) for each in changed)


def partition(tenant: str) -> str:
    """Return the partition key of a tenant's budget."""
    return f"TENANT#{tenant}#BUDGET"


def keys(tenant: str) -> list[Key]:
    """Return the keys of everything that an account consists of."""
    return [Key(partition(tenant), sk) for sk in ("LIMITS", *(Shard(number=n).sk for n in range(SHARDS)))]


def account(tenant: str, items: Mapping[Key, Item]) -> Account:
    """Return the account that these items are; one without any sets no limit."""
    found = [items.get(key, {}) for key in keys(tenant)]
    shards = (Shard.from_item({"number": number, **item}) for number, item in enumerate(found[1:]))
    return Account(tenant, TenantLimits.from_item(found[0]), tuple(shards))


def home(run: str) -> int:
    """Return the number of the shard that a run takes from first and gives back to."""
    return zlib.crc32(run.encode()) % SHARDS


def dealt(known: Account, limits: TenantLimits, spent: Amounts) -> Account:
    """Return the account with these limits, of which so much is spent: what is left is dealt out anew."""
    held = known.held
    left = {name: limit - spent.get(name, 0) - held[name] for name, limit in limits.limits.items()}
    shards = (replace(shard, left=_part(left, shard.number)) for shard in known.shards)
    return Account(known.tenant, limits, tuple(shards))


def _part(whole: Amounts, number: int) -> Amounts:
    return {name: amount // SHARDS + (amount % SHARDS if number == 0 else 0) for name, amount in whole.items()}


def renewed(known: Account, month: str) -> Account:
    """Return the account as it is in ``month``: a monthly one forgets what was spent in another month."""
    if not known.set.monthly or known.set.month == month:
        return known
    return dealt(known, replace(known.set, month=month), {})


def lacking(known: Account, wanted: Amounts) -> tuple[Refusal, ...]:
    """Return every dimension in which ``wanted`` does not fit what is left."""
    left = known.left
    short = ((name, amount, left[name]) for name, amount in wanted.items() if name in left and left[name] < amount)
    return tuple(Refusal(name, amount, available, "tenant") for name, amount, available in short)


def take(known: Account, wanted: Amounts, holding: Amounts, first: int) -> Account:
    """Take ``wanted`` out of what is left, from shard ``first`` and then from the others, and hold ``holding``.

    What no shard has is taken from the first all the same: who asks has looked at ``lacking``.
    """
    rest, shards = wanted, list[Shard]()
    for shard in (*known.shards[first:], *known.shards[:first]):
        part = {name: min(max(shard.left.get(name, 0), 0), amount) for name, amount in rest.items()}
        rest = _sum(rest, part, -1)
        shards.append(replace(shard, left=_sum(shard.left, part, -1)))
    mine = shards[0]
    return known.put(*shards, replace(mine, left=_sum(mine.left, rest, -1), held=_add(mine.held, holding)))


def give(shard: Shard, unused: Amounts, holding: Amounts) -> Shard:
    """Return ``unused`` to what is left, and hold ``holding`` no more."""
    released = {name: -amount for name, amount in holding.items()}
    return replace(shard, left=_sum(shard.left, unused, 1), held=_add(shard.held, released))


def _sum(known: Amounts, more: Amounts, sign: int) -> Amounts:
    return {name: amount + sign * more.get(name, 0) for name, amount in known.items()}


def _add(known: Amounts, more: Amounts) -> Amounts:
    return {name: known.get(name, 0) + more.get(name, 0) for name in _names((known, more))}


def _names(amounts: Iterable[Amounts]) -> list[str]:
    return [name for name in DIMENSIONS if any(name in each for each in amounts)]
