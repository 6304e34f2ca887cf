"""What the attempts of a workflow's steps have really used: one roll-up a tenant, workflow, step and model.

Estimates for planning come from it; reservations never do, they stay the worst case. A run is counted when it has
ended, from its log, in the transaction that notes on the run how far that log has been counted: so once, however often
the stream delivers. What an attempt used that was never learned (``attempt_lost``) is no experience and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.errors import StoreConflict
from shared.frozen import frozen_record
from shared.ledger.record import Record, replace
from shared.ledger.records import Event, Run
from shared.ports import Key, Write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.manifest import Body, Manifest, StepPlan
    from shared.ports import Store

UNKNOWN_REQUEST = 100_000_000
"""Nano-USD that a model request is taken for where there is no history of it (USD 0.10)."""
_CLOSING = frozenset({"step_completed", "step_failed"})
_AT_ONCE = 80
"""Roll-ups in one transaction, which takes 100 items."""
_TRIES = 5


@frozen_record
class Usage(Record):
    """What ``count`` attempts have used: sums in nano-USD and tokens, the most that one has used.

    ``spread`` counts attempts by the number of bits of their nano-USD, which is enough to tell a percentile roughly.
    """

    path: str
    model: str
    count: int = 0
    usd: int = 0
    tokens: int = 0
    most: int = 0
    spread: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def sk(self) -> str:
        """The sort key inside the workflow's history."""
        return f"USED#{self.path}#{self.model}"

    def plus(self, usd: int, tokens: int) -> Usage:
        """Return the roll-up with one more attempt."""
        bits = str(usd.bit_length())
        return replace(
            self,
            count=self.count + 1,
            usd=self.usd + usd,
            tokens=self.tokens + tokens,
            most=max(self.most, usd),
            spread={**self.spread, bits: self.spread.get(bits, 0) + 1},
        )

    @property
    def p90(self) -> int:
        """An upper bound of what nine of ten attempts have used (nano-USD), at most twice as high as it need be."""
        below = 0
        for bits in sorted(map(int, self.spread)):
            below += self.spread[str(bits)]
            if below * 10 >= self.count * 9:
                return min(self.most, (1 << bits) - 1)
        return self.most


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one attempt of a step is expected to use (nano-USD, tokens); ``attempts`` 0 = there is no history of it."""

    path: str
    model: str
    usd: int
    p90: int
    tokens: int | None
    attempts: int


def partition(tenant: str, workflow: str) -> str:
    """Return the partition key of a workflow's history."""
    return f"TENANT#{tenant}#HISTORY#{workflow}"


def read(store: Store, tenant: str, workflow: str) -> tuple[Usage, ...]:
    """Return all roll-ups of a workflow."""
    return tuple(Usage.from_item(item) for item in store.query(partition(tenant, workflow), "USED#"))


def count(store: Store, pk: str) -> None:
    """Add what an ended run's attempts have used; those that were added before are not added again.

    ``pk`` is the run's partition. Raises StoreConflict when others keep writing; the stream then delivers again.
    """
    tries = 0
    while True:
        try:
            if not _count_some(store, pk):
                return
        except StoreConflict:
            tries += 1
            if tries == _TRIES:
                raise


def _count_some(store: Store, pk: str) -> bool:
    """Count as many events as one transaction holds. Returns whether there were any."""
    place = Key(pk, "RUN")
    item = store.read([place]).get(place)
    run = Run.from_item(item) if item else None
    if item is None or run is None:
        return False
    new = store.query(pk, "EVENT#", after=f"EVENT#{run.counted:010d}")
    used, last = _used(map(Event.from_item, new))
    if not used:
        return False
    home = partition(run.tenant, run.workflow)
    known = store.read([Key(home, sk) for sk in used])
    rollups = [_added(known.get(Key(home, sk), {}), attempts) for sk, attempts in used.items()]
    writes = [Write(Key(home, each.sk), each.to_item(), each.rev or None) for each in rollups]
    store.commit([*writes, Write(place, replace(run, counted=last).onto(item), run.rev)])
    return True


def _used(events: Iterable[Event]) -> tuple[dict[str, list[Usage]], int]:
    """Return what attempts have used by roll-up, of as many events as one transaction holds, and the last one's seq."""
    used, last = dict[str, list[Usage]](), 0
    for event in events:
        one = _attempt(event)
        if one is None:
            continue
        if len(used) == _AT_ONCE and one.sk not in used:
            break
        used.setdefault(one.sk, []).append(one)
        last = event.seq
    return used, last


def _attempt(event: Event) -> Usage | None:
    spent: dict[str, Any] = event.data.get("used") or {}
    if event.type not in _CLOSING or not (spent.get("usd") or spent.get("tokens")):
        return None
    fresh = Usage(path=plain(event.path or ""), model=str(event.data.get("model") or ""))
    return fresh.plus(int(spent["usd"]), int(spent["tokens"]))


def _added(item: Mapping[str, object], attempts: list[Usage]) -> Usage:
    total = Usage.from_item(dict(item)) if item else replace(attempts[0], count=0, usd=0, tokens=0, most=0, spread={})
    for one in attempts:
        total = total.plus(one.usd, one.tokens)
    return total


def plain(path: str) -> str:
    """Return the path of a step in the definition: without the numbers of items and iterations."""
    return "/".join(part.partition("[")[0] for part in path.split("/"))


def estimates(manifest: Manifest, history: Iterable[Usage]) -> tuple[Estimate, ...]:
    """Return what one attempt of every step that costs something is expected to use, in all bodies too."""
    known: dict[str, list[Usage]] = {}
    for each in history:
        known.setdefault(each.path, []).append(each)
    found = (_estimate(path, plan, known.get(path, [])) for path, plan in _walk(manifest, ""))
    return tuple(each for each in found if each)


def _walk(graph: Manifest | Body, prefix: str) -> Iterable[tuple[str, StepPlan]]:
    for name, plan in graph.steps.items():
        yield f"{prefix}{name}", plan
        if plan.turns:
            yield f"{prefix}{name}/turn", plan.turns.turn
        if plan.body:
            yield from _walk(plan.body, f"{prefix}{name}/")


def _estimate(path: str, plan: StepPlan, known: list[Usage]) -> Estimate | None:
    models = [str(model) for model in plan.spec.get("model") or ()] or [""]
    asks = plan.type in {"agent", "turn"} or (plan.type == "router" and plan.spec.get("strategy") == "llm")
    # What its first model has used; of others, only where that one was never asked.
    best = max(known, key=lambda each: (each.model == models[0], each.count), default=None)
    if best:
        return Estimate(path, best.model, best.usd // best.count, best.p90, best.tokens // best.count, best.count)
    cost = UNKNOWN_REQUEST if asks else int(plan.spec.get("cost") or 0)
    return Estimate(path, models[0], cost, cost, None if asks else 0, 0) if cost else None
