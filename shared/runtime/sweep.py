"""The sweeper: goes round all open runs of all tenants, a bounded number a call, and mends what nobody else would.

Runs are found by the index of states, newest first. A round goes through every tenant's open states, and then through
the runs of the last day that have ended since the round before, whose counters it checks. Where a call stops, the next
one goes on; two at once do the same work twice, which is harmless.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from shared.errors import StoreConflict
from shared.ports import Key, Write
from shared.runtime.host import Host
from shared.runtime.mending import Finding, mend
from shared.tenants.register import tenants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.ports import Events, Item, Store
    from shared.publishing.pruning import VersionedMachines

OPEN = ("pending", "running", "waiting_for_human", "paused")
STATES = (*OPEN, "stopped", "completed", "failed", "cancelled", "timed_out")
"""Where a round looks, in this order. Stopped runs are open too, but only for what they still need: their version."""
PAGE = 25
"""Runs that are read from the index at once."""
DAY = 24 * 3600 * 1000
"""How far back (ms) a round looks at runs that have ended."""
PATIENCE = 15_000
"""How long (ms) one call goes on for somebody who waits for it."""
PLACE = Key("SWEEP", "PLACE")
"""Where the scheduled sweeper remembers its round."""


@dataclass(frozen=True, slots=True)
class SweepHost(Host):
    """The ports of the sweeper.

    ``tenants`` is the tenants table and ``catalogue`` the definitions table; ``machines`` forgets versions;
    ``unwind_machine`` is that machine's ARN; ``events`` is where letters are announced that nobody writes.
    """

    tenants: Store
    catalogue: Store
    machines: VersionedMachines
    unwind_machine: str
    events: Events


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sweep stands: the tenant, the number of the state, and the time (ms) before which runs were created."""

    tenant: str
    state: int = 0
    before: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far one call goes: so many runs, and until when (ms). ``since`` (ms) is when the round before began."""

    until: int
    runs: int = 500
    since: int = 0


@dataclass(frozen=True, slots=True)
class Swept:
    """What one call did. ``place`` is where the next goes on; None = the round is complete.

    ``named`` are the versions that runs still need, like ``invoice#3``.
    """

    looked: int = 0
    findings: tuple[Finding, ...] = ()
    named: frozenset[str] = field(default_factory=frozenset[str])
    place: Place | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what a caller is told."""
        return {
            "looked": self.looked,
            "findings": [finding.to_json() for finding in self.findings],
            "next": f"{self.place.state}.{self.place.before}" if self.place else None,
        }


def sweep(host: SweepHost, names: Sequence[str], place: Place | None, bounds: Bounds) -> Swept:
    """Mend the runs of these tenants from ``place`` on (None = from the beginning), within the bounds.

    Never raises because of one run: what went wrong with it is among the findings.
    """
    done = Swept(place=place or next((Place(name) for name in sorted(names)), None))
    while done.place and done.looked < bounds.runs and host.clock.now() < bounds.until:
        done = _page(host, sorted(names), done.place, done, bounds)
    return done


def _page(host: SweepHost, names: Sequence[str], place: Place, done: Swept, bounds: Bounds) -> Swept:
    state = STATES[place.state]
    items = host.store.index("by_state", f"TENANT#{place.tenant}#STATE#{state}", limit=PAGE, before=place.before)
    findings = [finding for item in items if _due(item, state, bounds, host) for finding in _mended(host, item)]
    needs = state in {*OPEN, "stopped"}
    last = state not in {*OPEN, "stopped"} and any(item["created"] < host.clock.now() - DAY for item in items)
    return Swept(
        done.looked + len(items),
        (*done.findings, *findings),
        done.named | {f"{item['workflow']}#{item['version']}" for item in items if needs},
        _following(names, place, [] if last else items),
    )


def _due(item: Item, state: str, bounds: Bounds, host: SweepHost) -> bool:
    """Tell whether a run is visited: every open one; of the others, those that have ended since the last round."""
    ended = int(item.get("ended") or 0)
    return state in OPEN or ended >= max(bounds.since, host.clock.now() - DAY)


def _mended(host: SweepHost, item: Item) -> list[Finding]:
    tenant, run = str(item["tenant"]), str(item["id"])
    try:
        return mend(host, tenant, run, host.unwind_machine, host.events)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs must not wait for this one
        return [Finding(tenant, run, "unreadable", "left", f"{type(error).__name__}: {error}"[:300])]


def _following(names: Sequence[str], place: Place, items: Sequence[Item]) -> Place | None:
    """Return where to go on after ``items``: further back, else in the next state, else with the next tenant."""
    if len(items) == PAGE:
        first, last = items[0]["created"], items[-1]["created"]
        # The last millisecond again: more runs than fitted may share it.
        return replace(place, before=str(last if first == last else last + 1))
    if place.state + 1 < len(STATES):
        return Place(place.tenant, place.state + 1)
    return next((Place(name) for name in names if name > place.tenant), None)


@dataclass(frozen=True, slots=True)
class Round:
    """A round of the scheduled sweeper, as far as it has come.

    ``began`` (ms) is when it began, ``since`` when the one before did, ``pruned`` when versions were looked at last.
    ``named`` are the versions that the runs seen so far need.
    """

    place: Place | None = None
    began: int = 0
    since: int = 0
    pruned: int = 0
    named: frozenset[str] = field(default_factory=frozenset[str])

    @classmethod
    def of(cls, item: Item) -> Round:
        """Rebuild it from its item; an empty one is the beginning."""
        place, names = item.get("place"), ("began", "since", "pruned")
        numbers = {name: int(item.get(name, 0)) for name in names}
        return cls(place=Place(**place) if place else None, named=frozenset(item.get("named", ())), **numbers)

    def to_item(self) -> Item:
        """Return its item."""
        return {**asdict(self), "named": sorted(self.named)}

    def next(self, now: int) -> Round:
        """Return the round to go on with: this one, or a new one once it is complete."""
        return self if self.place else Round(None, now, self.began, self.pruned)


def go_on(host: SweepHost, until: int) -> Swept:
    """Go on with the round that the call before has left, until ``until`` (ms). ``place`` None = it is complete."""
    item, now = host.store.read([PLACE]).get(PLACE, {}), host.clock.now()
    going = Round.of(item).next(now)
    done = sweep(host, tenants(host.tenants), going.place, Bounds(until, since=going.since))
    going = replace(going, place=done.place, named=going.named | done.named)
    if going.place is None and now - going.pruned >= DAY:
        going = replace(going, pruned=now)
        done = replace(done, findings=(*done.findings, *_prune(host, going.named, now)))
    with suppress(StoreConflict):  # another sweeper has gone on meanwhile; it knows where it stands
        host.store.commit([Write(PLACE, going.to_item(), item.get("rev"))])
    return done


def _prune(host: SweepHost, named: frozenset[str], now: int) -> list[Finding]:
    from shared.publishing.pruning import prune  # noqa: PLC0415 - once a day

    return prune(host.catalogue, host.machines, named, now)


def of_tenant(host: SweepHost, asked: Mapping[str, Any], now: int) -> Swept:
    """Sweep the runs of ``asked["tenant"]`` for somebody who waits, from where ``asked["after"]`` says; ``now`` in ms.

    ``after`` is what the call before returned as ``next``.
    """
    tenant, (state, _, before) = str(asked["tenant"]), str(asked.get("after") or "0.").partition(".")
    return sweep(host, [tenant], Place(tenant, int(state), before), Bounds(now + PATIENCE, runs=100))
