"""Circuit breakers: one a tenant and service, shared by all its runs.

After ``FAILURES`` failures within ``WINDOW`` the breaker opens: attempts are not dispatched and not charged, they wait.
After ``REST`` one attempt goes through as a probe (half open): an answer closes the breaker, its failure opens it
anew. A closed breaker is read at most every few seconds a process, and written only when something failed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from shared.errors import ServiceHeld, StoreConflict
from shared.ports import Key, Write

if TYPE_CHECKING:
    from shared.errors import StepFailure
    from shared.ports import Clock, Item, Store
    from shared.runtime.protocol import Ask

FAILURES = 5
"""So many failures open a breaker,"""
WINDOW = 60_000
"""within so many milliseconds;"""
REST = 30_000
"""and for so many (ms) nothing is dispatched before one attempt tries."""
FRESH = 5_000
"""How long (ms) a process trusts what it has read."""
COUNTED = frozenset({"transient", "timeout", "rate_limit"})
"""Classes of failures by which a service shows that it is degraded."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """How a service does. ``failures`` and ``opened_at`` in ms; ``probe_until`` (ms) is when its probe is over."""

    service: str
    failures: tuple[int, ...] = ()
    opened_at: int | None = None
    probe_until: int = 0
    rev: int = 0

    @classmethod
    def of(cls, item: Item) -> Breaker:
        """Rebuild it from its item."""
        failures = tuple(int(each) for each in item["failures"])
        return cls(item["service"], failures, item.get("opened_at"), item["probe_until"], item["rev"])

    def to_item(self) -> Item:
        """Return its item."""
        item: dict[str, Any] = {
            "service": self.service,
            "failures": list(self.failures),
            "probe_until": self.probe_until,
        }
        return item | ({} if self.opened_at is None else {"opened_at": self.opened_at})

    def state(self, now: int) -> Literal["closed", "open", "half_open"]:
        """Return its state."""
        if self.opened_at is None:
            return "closed"
        return "open" if now < self.opened_at + REST else "half_open"

    def wait(self, now: int) -> int:
        """Return the milliseconds that an attempt has to wait; 0 = it may go on, as the probe if this is half open."""
        if self.opened_at is None:
            return 0
        return max(0, self.opened_at + REST - now, min(self.probe_until - now, REST))

    def failed(self, now: int) -> Breaker:
        """Return it after a failure."""
        recent = (*(at for at in self.failures if at > now - WINDOW), now)
        if self.opened_at is not None or len(recent) >= FAILURES:
            return replace(self, failures=(), opened_at=now, probe_until=0)
        return replace(self, failures=recent)


class Breakers:
    """The breakers of all tenants behind their rules, with what this process has read lately."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: dict[Key, tuple[int, Breaker]] = {}

    def check(self, ask: Ask) -> None:
        """Let the attempt go on, or raise ServiceHeld. What undoes or stands in for a step never waits here."""
        if ask.path != ask.task.path:
            return
        key, now = _key(ask), ask.now
        breaker = self._lately(key, now)
        wait = breaker.wait(now)
        if not wait and breaker.opened_at is not None:
            probe = replace(breaker, probe_until=now + int(ask.plan.timeout * 1000))
            wait = 0 if self._write(key, probe) else REST
        if wait:
            raise ServiceHeld(f"{breaker.service} is degraded; its circuit breaker is open.", retry_after=wait / 1000)

    def note(self, ask: Ask, failure: StepFailure | None) -> None:
        """Note how an attempt ended. A breaker that others keep writing is theirs to keep."""
        key, now = _key(ask), self._clock.now()
        if failure is not None and failure.error_class in COUNTED:
            for _ in range(3):
                if self._write(key, self._read(key).failed(now)):
                    return
        # A service that refuses what it is asked has answered: it is back, whoever's request was the probe.
        elif self._known.get(key, (0, _CLOSED))[1].probe_until > 0:
            known = self._read(key)
            self._write(key, Breaker(known.service, rev=known.rev))

    def _lately(self, key: Key, now: int) -> Breaker:
        read, known = self._known.get(key, (0, _CLOSED))
        return known if now - read < FRESH and known.opened_at is None else self._read(key)

    def _read(self, key: Key) -> Breaker:
        item = self._store.read([key]).get(key)
        breaker = Breaker.of(item) if item else Breaker(key.sk.removeprefix(_SERVICE))
        self._known[key] = (self._clock.now(), breaker)
        return breaker

    def _write(self, key: Key, breaker: Breaker) -> bool:
        with suppress(StoreConflict):
            self._store.commit([Write(key, breaker.to_item(), breaker.rev or None)])
            self._known[key] = (self._clock.now(), replace(breaker, rev=breaker.rev + 1))
            return True
        return False


_CLOSED = Breaker("")
_SERVICE = "SERVICE#"


def tripped(store: Store, tenant: str, now: int) -> list[Breaker]:
    """Return the tenant's breakers that are not closed; ``now`` in ms."""
    found = [Breaker.of(item) for item in store.query(_partition(tenant), _SERVICE)]
    return [breaker for breaker in found if breaker.state(now) != "closed"]


def _partition(tenant: str) -> str:
    return f"TENANT#{tenant}#BREAKERS"


def _key(ask: Ask) -> Key:
    return Key(_partition(ask.task.tenant), f"{_SERVICE}{service_of(ask)}")


def service_of(ask: Ask) -> str:
    """Return the service that an attempt depends on: the provider of its model, or its tool."""
    if ask.call:
        return ask.service or f"tool:{ask.call.tool}"
    from shared.models.prices import prices  # noqa: PLC0415 - only where a model is called

    price = prices().get(ask.model or "")
    return f"model:{price.provider if price else ask.model}"
