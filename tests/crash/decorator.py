"""The same faults on one step with an effect: made idempotent by Powertools' decorator, and by our protocol.

The far side is a bank without keys: every call that arrives is one more transfer. The store of the decorator's records
keeps its own rules (a record in progress expires with the function that wrote it), in memory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyItemAlreadyExistsError,
    IdempotencyItemNotFoundError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer
from faults import Tap
from machine import Killed
from matrix import singles
from routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord

FAULTS = ("fails", "answer lost", "killed before", "killed after", "own write", "delivered twice", "delivered late")
CALLS = ("put", "effect", "update")
DELIVERIES = 6
LATER = 1000.0
"""Seconds between two deliveries: the process of the first has surely ended."""


class Lost(Exception):
    """The connection broke; whether the call arrived is not known."""


@dataclass
class Struck:
    """One fault at one of the three calls, once; ``transfers`` counts what the bank has done."""

    call: str
    fault: str
    now: float = field(default_factory=time.time)
    transfers: int = 0
    used: bool = False
    again: Callable[[], Any] = lambda: None

    def around(self, name: str, work: Callable[[], Any]) -> Any:
        """Do ``work``, the call of this name, with the fault if it strikes here."""
        strikes = name == self.call and not self.used
        self.used = self.used or strikes
        kind = self.fault if strikes else ""
        if kind == "fails":
            raise Lost
        if kind == "killed before":
            raise Killed
        if kind == "delivered twice":
            self.again()
        result = work()
        if kind == "killed after":
            raise Killed
        if kind == "answer lost":
            raise Lost
        if kind == "own write":  # the client library repeats the call
            return work()
        return result

    def pay(self) -> dict[str, int]:
        """Transfer the money."""
        self.transfers += 1
        return {"transfer": self.transfers}


class Records(BasePersistenceLayer):
    """The decorator's records, in memory, under the conditions of its DynamoDB layer."""

    def __init__(self, struck: Struck) -> None:
        self.struck, self.items = struck, dict[str, Any]()
        super().__init__()

    def _get_record(self, idempotency_key: str) -> DataRecord:
        if idempotency_key not in self.items:
            raise IdempotencyItemNotFoundError
        return self.items[idempotency_key]

    def _put_record(self, data_record: DataRecord) -> None:
        self.struck.around("put", lambda: self._put(data_record))

    def _put(self, record: DataRecord) -> None:
        known = self.items.get(record.idempotency_key)
        until = known.in_progress_expiry_timestamp if known else None
        expired = known and known.status == "INPROGRESS" and until is not None and until < self.struck.now * 1000
        if known and not expired:
            raise IdempotencyItemAlreadyExistsError(old_data_record=known)
        self.items[record.idempotency_key] = record

    def _update_record(self, data_record: DataRecord) -> None:
        self.struck.around("update", lambda: self.items.update({data_record.idempotency_key: data_record}))

    def _delete_record(self, data_record: DataRecord) -> None:
        self.items.pop(data_record.idempotency_key, None)


class Context:
    """What the decorator asks of Lambda's context."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 60_000


def _decorated(struck: Struck) -> Callable[[], Any]:
    config = IdempotencyConfig(lambda_context=Context())  # pyright: ignore[reportArgumentType] - all that it asks

    @idempotent_function(data_keyword_argument="order", persistence_store=Records(struck), config=config)
    def step(order: dict[str, int]) -> Any:
        return struck.around("effect", struck.pay)

    return lambda: step(order={"sum": 5})


def theirs() -> dict[str, int]:
    """Deliver the decorated step until it answers, with every fault at every call."""
    found = [_delivered(Struck(call, fault)) for call in CALLS for fault in FAULTS]
    return _counted([(struck.transfers > 1, not answered) for struck, answered in found])


def _delivered(struck: Struck) -> tuple[Struck, bool]:
    step = _decorated(struck)
    struck.again = lambda: _quietly(step)
    answered = False
    for _ in range(DELIVERIES):
        answered = answered or _quietly(step)
        struck.now += LATER
    if struck.fault == "delivered late":
        _quietly(step)
    return struck, answered


def _quietly(step: Callable[[], Any]) -> bool:
    try:
        step()
    except (Killed, Exception):  # noqa: BLE001 - whatever it is, it is delivered again
        return False
    return True


def ours() -> dict[str, int]:
    """Play a run with one irreversible call to the same bank, with every fault at every call."""
    found: list[tuple[bool, bool]] = []
    for fault in singles("pay"):
        play, bank = ROUTES["pay"].make(Tap(*fault))
        world = play.to_the_end()
        said = not world.run or (world.head.ended is not None and (world.head.ended == "completed") >= bool(bank.live))
        found.append((bank.live > 1, not said and fault.kind != "cancel"))
    return _counted(found)


def _counted(found: list[tuple[bool, bool]]) -> dict[str, int]:
    duplicated, unsaid = (sum(column) for column in zip(*found, strict=True))
    return {"scenarios": len(found), "duplicated": duplicated, "unsaid": unsaid}
