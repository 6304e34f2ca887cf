"""Kinds of run made idempotent by Powertools' decorator, as its documentation has it, under the crash matrix's faults.

Every effect is an idempotent function of its own, keyed by run and path, and so is a handler that another one calls.
The outermost is delivered again until it answers. Records in progress expire with the function that wrote them, those
of what is done outlive every delivery, and each function has a store of its own on the one table: shared by functions
that call each other, a store would write the outer record under the inner one's name.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyItemAlreadyExistsError,
    IdempotencyItemNotFoundError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer
from machine import Killed

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord

FAULTS = ("fails", "answer lost", "killed before", "killed after", "own write", "delivered twice")
"""What strikes at one call. ``own write`` (the client library repeats it) only at the table: effects do without."""
LATE = "delivered late"
"""Strikes the whole run: it is delivered once more after its end."""
DELIVERIES = 6
LATER = 1000.0
"""Seconds between two deliveries: the process of the first has surely ended."""
KEPT = 14 * 86_400
"""Seconds for which records of what is done are kept: as long as a queue keeps what it delivers."""

Tree: TypeAlias = "tuple[str | Tree, ...]"
"""What a handler does, in order: ``read``, ``model``, ``make`` an effect, be ``refused`` for good; in brackets, what a
handler does that it calls.
"""


def count(tree: Tree, what: str) -> int:
    """Return how often a tree does this."""
    return sum(node == what if isinstance(node, str) else count(node, what) for node in tree)


class Lost(Exception):
    """The connection broke; whether the call arrived is not known."""


class Refused(Exception):
    """The far side refuses for good: what was made is undone."""


class Harm(NamedTuple):
    """What is wrong after one scenario, or what it took.

    An effect was made twice; a request to a model was, and so paid twice; an effect or a result is missing, or one is
    left behind, and nobody is told; a person had to say what became of a call.
    """

    duplicated: bool
    paid_twice: bool
    unsaid: bool
    asked: bool = False


@dataclass
class Outside:
    """The far side and the model. ``keys``: of what is made with the same key twice there is one."""

    keys: bool
    made: list[str] = field(default_factory=list)
    undone: set[int] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def make(self, key: str) -> int:
        """Make an effect and return its number."""
        if not (self.keys and key in self.made):
            self.made.append(key)
        return self.find(key)

    def find(self, key: str) -> int:
        """Return the number of the newest effect made with the key; -1 = there is none."""
        return max((number for number, known in enumerate(self.made) if known == key), default=-1)

    def harm(self, end: str) -> Harm:
        """Judge a run that has ended like this; "" = it never has."""
        stand = {key for number, key in enumerate(self.made) if number not in self.undone}
        duplicated = len(self.made) > len(set(self.made))
        told = set(self.made) if end == "completed" else set[str]()
        unsaid = not end or (stand != told and not duplicated)
        return Harm(duplicated, len(self.asked) > len(set(self.asked)), unsaid)


@dataclass
class Struck:
    """Numbers the calls of a run and lets a fault strike at one of them, once."""

    at: int = -1
    fault: str = ""
    now: float = field(default_factory=time.time)
    calls: list[str] = field(default_factory=list)
    again: Callable[[], Any] = lambda: None

    def around(self, name: str, work: Callable[[], Any]) -> Any:
        """Do ``work``, the call of this name, with the fault if it strikes here."""
        self.calls.append(name)
        kind = self.fault if len(self.calls) - 1 == self.at else ""
        self._before(kind)
        result = work()
        if kind == "killed after":
            raise Killed
        if kind == "answer lost":
            raise Lost
        return work() if kind == "own write" else result

    def _before(self, kind: str) -> None:
        if kind == "fails":
            raise Lost
        if kind == "killed before":
            raise Killed
        if kind == "delivered twice":
            self.again()


class Records(BasePersistenceLayer):
    """The decorator's records, in memory, under the conditions of its DynamoDB layer."""

    def __init__(self, struck: Struck, items: dict[str, DataRecord]) -> None:
        self.struck, self.items = struck, items
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
        self.struck.around("delete", lambda: self.items.pop(data_record.idempotency_key, None))


class Context:
    """What the decorator asks of Lambda's context."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 60_000


class Handler:
    """A handler that does what a tree says. ``looks``: an effect is looked for before it is made, by hand."""

    def __init__(self, tree: Tree, struck: Struck, outside: Outside, *, looks: bool) -> None:
        self.tree, self.struck, self.outside, self.looks = tree, struck, outside, looks
        self.items: dict[str, DataRecord] = {}
        self.call, self.sub, self.undo = (self._idempotent(one) for one in (self._call, self._sub, self._undo))

    def _idempotent(self, work: Callable[[Any], Any]) -> Callable[..., Any]:
        config = IdempotencyConfig(expires_after_seconds=KEPT, lambda_context=Context())  # pyright: ignore[reportArgumentType] - all that it asks
        store = Records(self.struck, self.items)

        def function(order: Any) -> Any:
            return work(order)

        function.__qualname__ = work.__name__  # its records' prefix
        return idempotent_function(function, data_keyword_argument="order", persistence_store=store, config=config)

    def deliver(self) -> str:
        """Return how the run has ended."""
        try:
            self._walk(self.tree, "run")
        except Refused:
            return "failed"
        return "completed"

    def _walk(self, tree: Tree, path: str) -> list[int]:
        made: list[int] = []
        try:
            for number, node in enumerate(tree):
                work = self.call if isinstance(node, str) else self.sub
                made += work(order={"path": f"{path}/{number}", "what": node})["made"]
        except Refused:
            for effect in reversed(made):
                self.undo(order={"path": f"{path}/undo", "what": effect})
            raise
        return made

    def _sub(self, order: Any) -> dict[str, list[int]]:
        return {"made": self._walk(order["what"], order["path"])}

    def _call(self, order: Any) -> dict[str, list[int]]:
        path, what = order["path"], order["what"]
        found = self.struck.around("look", lambda: self.outside.find(path)) if what == "make" and self.looks else -1
        return {"made": [found] if found >= 0 else self.struck.around("effect", lambda: self._effect(what, path))}

    def _effect(self, what: str, path: str) -> list[int]:
        if what == "refused":
            raise Refused
        if what == "model":
            self.outside.asked.append(path)
        return [self.outside.make(path)] if what == "make" else []

    def _undo(self, order: Any) -> None:
        self.struck.around("effect", lambda: self.outside.undone.add(order["what"]))


def theirs(tree: Tree, *, keys: bool = False, looks: bool = False) -> list[Harm]:
    """Play a tree with every fault at every call of a calm run, and delivered once more after its end."""
    calm = Struck()
    assert _played(tree, calm, Outside(keys), looks=looks) == Harm(duplicated=False, paid_twice=False, unsaid=False)
    repeated = {"put", "update", "delete"}
    faults = [
        Struck(number, fault)
        for number, call in enumerate(calm.calls)
        for fault in FAULTS
        if fault != "own write" or call in repeated
    ]
    return [_played(tree, struck, Outside(keys), looks=looks) for struck in [*faults, Struck(fault=LATE)]]


def _played(tree: Tree, struck: Struck, outside: Outside, *, looks: bool) -> Harm:
    handler = Handler(tree, struck, outside, looks=looks)
    struck.again = lambda: _quietly(handler)
    end = ""
    for _ in range(DELIVERIES):
        end = end or _quietly(handler)
        struck.now += LATER
    if struck.fault == LATE:
        _quietly(handler)
    return outside.harm(end)


def _quietly(handler: Handler) -> str:
    try:
        return handler.deliver()
    except (Killed, Exception):  # noqa: BLE001 - whatever it is, it is delivered again
        return ""
