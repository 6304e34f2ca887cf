"""One run's records as a unit of change: read a snapshot, decide purely, commit as one transaction, or read again.

A decision is a pure function of a snapshot. It must recognise its own earlier success (by attempt id, fence or state),
because after a lost answer it is asked again with the records that it already wrote.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from shared.errors import Conflict, NotFound, StoreConflict, TransientFailure
from shared.frozen import frozen
from shared.ledger.record import Record, replace
from shared.ledger.records import Event, Gate, Head, Kept, Park, Run, Step, revive, run_partition
from shared.ports import Key, Write
from shared.redaction import redacted
from shared.runtime.epochs import gate_now, step_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shared.ports import Clock, Store

T = TypeVar("T")

_EVENTS = "EVENT$"
"""Above every event's key and below those of records: ``$`` follows ``#``, and the kinds come later in the alphabet.

Dead letters come before: nothing is ever decided by them."""
ATTEMPTS = 40
"""How often one decision is tried against competing writers before it is given up as transient."""
FIRST_PAUSE, LONGEST_PAUSE = 0.010, 0.160
"""Full jitter between tries, in seconds (explored for 50 writers at once)."""


class Note(NamedTuple):
    """An event to append; its number and time are given when it is committed."""

    type: str
    path: str | None = None
    attempt: int | None = None
    data: Mapping[str, Any] = MappingProxyType({})


@frozen
class Snapshot:
    """Records of one run, by sort key, as they were read together.

    ``asked`` are the sort keys that were read: those without a record are known to have had none. ``whole`` = every
    record of the run was read, events aside.
    """

    records: Mapping[str, Record]
    asked: frozenset[str] = frozenset()
    whole: bool = False

    @property
    def head(self) -> Head:
        """The run's head. Raises NotFound when there is no such run."""
        head = self.records.get("HEAD")
        if not isinstance(head, Head):
            raise NotFound("There is no such run.")
        return head

    @property
    def run(self) -> Run:
        """The run's facts. Raises NotFound when there is no such run."""
        run = self.records.get("RUN")
        if not isinstance(run, Run):
            raise NotFound("There is no such run.")
        return run

    @property
    def epoch(self) -> int:
        """The run's epoch; records of an earlier one are read as ``shared.runtime.epochs`` says."""
        head = self.records.get("HEAD")
        return head.epoch if isinstance(head, Head) else 1

    def step(self, path: str) -> Step | None:
        """The record of a step instance, if anything has happened to it."""
        record = self.records.get(f"STEP#{path}")
        return step_now(record, self.epoch) if isinstance(record, Step) else None

    def gate(self, path: str) -> Gate | None:
        """The record of a gate, if it was reached."""
        record = self.records.get(f"GATE#{path}")
        return gate_now(record, self.epoch) if isinstance(record, Gate) else None

    def park(self, path: str) -> Park | None:
        """The record of a registered token."""
        record = self.records.get(f"PARK#{path}")
        return record if isinstance(record, Park) else None

    def steps(self) -> list[Step]:
        """All step records of the snapshot."""
        epoch = self.epoch
        return [step_now(record, epoch) for record in self.records.values() if isinstance(record, Step)]

    def gates(self) -> list[Gate]:
        """All gate records of the snapshot."""
        epoch = self.epoch
        found = (gate_now(record, epoch) for record in self.records.values() if isinstance(record, Gate))
        return [gate for gate in found if gate]

    def parks(self) -> list[Park]:
        """All registered tokens of the snapshot."""
        return [record for record in self.records.values() if isinstance(record, Park)]

    def kept(self) -> list[Kept]:
        """All kept events of the snapshot, in the order of their arrival."""
        return sorted((one for one in self.records.values() if isinstance(one, Kept)), key=lambda kept: kept.at)

    def with_(self, records: Mapping[str, Record]) -> Snapshot:
        """Return the snapshot with ``records``, by sort key, put in."""
        return Snapshot({**self.records, **records}, self.asked, self.whole)


@frozen
class Change(Generic[T]):
    """What a decision wants: the result for its caller, the records to put, and the events to append.

    ``elsewhere`` are writes to other runs' partitions in the same transaction.
    """

    result: T
    records: tuple[Record, ...] = ()
    notes: tuple[Note, ...] = ()
    elsewhere: tuple[Write, ...] = ()


class Journal:
    """The records of one run behind conditional transactions; ``epoch`` = nothing is changed in a later one."""

    def __init__(self, store: Store, clock: Clock, tenant: str, run: str, epoch: int | None = None) -> None:
        self._store = store
        self._clock = clock
        self._epoch = epoch
        self.pk = run_partition(tenant, run)

    @classmethod
    def at(cls, store: Store, clock: Clock, pk: str) -> Journal:
        """Return the journal of the run whose partition is ``pk``."""
        journal = cls(store, clock, "", "")
        journal.pk = pk
        return journal

    def read(self, sks: Iterable[str]) -> Snapshot:
        """Read the named records consistently, always with the head."""
        asked = frozenset({"HEAD", *sks})
        items = self._store.read([Key(self.pk, sk) for sk in asked])
        return Snapshot({key.sk: revive(item) for key, item in items.items()}, asked)

    def read_all(self) -> Snapshot:
        """Read every record of the run except its events and its dead letters.

        The head first: what is newer than it makes a decision about the whole lose its commit, never pass unseen.
        """
        rest = self.read(["RUN"])
        # One query for all kinds: only the events, which sort before them, are many and not wanted.
        items = self._store.query(self.pk, "", after=_EVENTS)
        found = map(revive, (item for item in items if item["sk"] not in rest.asked))
        known = rest.with_({record.sk: record for record in found})
        return Snapshot(known.records, known.asked, whole=True)

    def events(self, *, after: int = 0, limit: int = 0) -> list[Event]:
        """Return the events with ``seq`` above ``after``, in order."""
        items = self._store.query(self.pk, "EVENT#", after=f"EVENT#{after:010d}", limit=limit)
        return [Event.from_item(item) for item in items]

    def transact(self, seen: Snapshot, decide: Callable[[Snapshot], Change[T]]) -> tuple[T, Snapshot]:
        """Commit what ``decide`` wants of ``seen``; on conflict read the same records again and ask again.

        Returns the result and the snapshot after it. Raises TransientFailure when writers compete too long, Conflict
        when the run has been resumed meanwhile: what was decided for one epoch is not written into the next.
        """
        keys: set[str] = set()
        for attempt in range(ATTEMPTS):
            with self._store.alone() if attempt else nullcontext():
                if attempt:
                    seen = self.read_all() if seen.whole else self.read(keys)
                change = _slots_used(seen, decide(seen))
                if not change.records and not change.notes:
                    return change.result, seen
                self._check_epoch(seen)
                try:
                    return change.result, self._commit(seen, change)
                except StoreConflict:
                    keys = self._same(seen, change)
            self._clock.sleep(self._clock.jitter(min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)))
        raise TransientFailure(f"The run's records changed {ATTEMPTS} times under this decision. It is tried again.")

    def _check_epoch(self, seen: Snapshot) -> None:
        if self._epoch is not None and seen.epoch > self._epoch:
            raise Conflict(f"The run is in epoch {seen.epoch}, not {self._epoch} any more.", code="epoch_over")

    def writes(self, seen: Snapshot, change: Change[Any]) -> tuple[Write, ...]:
        """Return what ``change`` wants of ``seen`` as writes, to become part of another run's transaction."""
        records, events = self._numbered(seen, change)
        return (*(self._write(seen, record) for record in (*records.values(), *events)), *change.elsewhere)

    def _same(self, seen: Snapshot, change: Change[T]) -> set[str]:
        return {*seen.asked, *seen.records, *(record.sk for record in change.records)}

    def _commit(self, seen: Snapshot, change: Change[T]) -> Snapshot:
        records, events = self._numbered(seen, change)
        writes = [self._write(seen, record) for record in (*records.values(), *events)]
        self._store.commit([*writes, *change.elsewhere])
        return seen.with_({sk: replace(record, rev=self._rev(seen, sk) + 1) for sk, record in records.items()})

    def _numbered(self, seen: Snapshot, change: Change[T]) -> tuple[dict[str, Record], list[Event]]:
        """Return the records to write, by sort key, and the events: the head counts them and each gets its number."""
        records = {record.sk: record for record in change.records}
        if not change.notes:
            return records, []
        head = records.get("HEAD", seen.records.get("HEAD"))
        if not isinstance(head, Head):
            raise NotFound("There is no such run.")
        records["HEAD"] = replace(head, seq=head.seq + len(change.notes))
        return records, [self._event(head, note, n) for n, note in enumerate(change.notes, 1)]

    def _event(self, head: Head, note: Note, after: int) -> Event:
        data = redacted(dict(note.data))
        # The head and the log give the same end: whoever rebuilds one from the other finds no difference.
        ends = head.ended is not None and note.type == f"run_{head.ended}"
        at = head.ended_at if ends and head.ended_at else self._clock.now()
        return Event(seq=head.seq + after, at=at, type=note.type, path=note.path, attempt=note.attempt, data=data)

    def _write(self, seen: Snapshot, record: Record) -> Write:
        return Write(Key(self.pk, record.sk), record.to_item(), self._rev(seen, record.sk) or None)

    def _rev(self, seen: Snapshot, sk: str) -> int:
        known = seen.records.get(sk)
        return known.rev if known else 0


def _slots_used(seen: Snapshot, change: Change[T]) -> Change[T]:
    """Take back the slots of steps that are written: such a step opens now, or will not open any more."""
    given = [one for one in change.records if isinstance(one, Step) and one.slot and _had_slot(seen, one)]
    if not given:
        return change
    head = next((one for one in change.records if isinstance(one, Head)), seen.head)
    others = [one for one in change.records if not isinstance(one, Head) and one not in given]
    fewer = replace(head, slots=head.slots - len(given))
    records = (fewer, *others, *(replace(one, slot=False) for one in given))
    return Change(change.result, records, change.notes, change.elsewhere)


def _had_slot(seen: Snapshot, step: Step) -> bool:
    known = seen.step(step.path)
    return known is not None and known.slot
