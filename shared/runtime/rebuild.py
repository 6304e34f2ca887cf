"""A run's records recomputed from its log and compared: HEAD, STEP and the list view in RUN are projections of it.

Recomputed are, of a step, ``attempt open hold spent`` and its ``status`` where that is final or waits for a person; of
the head, ``seq open paused waiting slots``, what is left of the limits, and how the run unwinds and has ended; of the
run, its state in lists. Limits, gates, outputs and active time are facts that the log does not hold.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

from shared.errors import Conflict
from shared.ledger.record import replace
from shared.runtime.audit import counted, differences
from shared.runtime.fold import FINAL, ToldStep, fold
from shared.runtime.journal import Change
from shared.runtime.protocol import PARKED
from shared.runtime.runs import listed
from shared.runtime.unwinding import BATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.ledger.record import Record
    from shared.ledger.records import Event, Head, Step
    from shared.runtime.fold import Told
    from shared.runtime.journal import Journal, Snapshot


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a record that is not what the log says; ``known`` and ``told`` are the two values."""

    record: str
    field: str
    known: Any
    told: Any


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was compared: the differences, and the records as the log says they are."""

    differences: tuple[Difference, ...]
    records: tuple[Record, ...]


def compare(seen: Snapshot, events: Sequence[Event]) -> Rebuilt:
    """Recompute a run's records from its whole log; ``seen`` holds all of them, as of the log's end."""
    told = fold(events)
    steps = [_step(step, told.steps.get(step.path, ToldStep())) for step in seen.steps()]
    head = _head(seen.with_({step.sk: step for step in steps}), told)
    projected = replace(seen.run, projected=0)
    run = replace(listed(projected, head), projected=seen.run.projected)
    now: dict[str, Record] = {**seen.records, **{step.sk: step for step in seen.steps()}}
    pairs = [(known, right) for right in (*steps, head, run) if (known := now[right.sk]) != right]
    found = [
        Difference(right.sk, name, *map(plain, pair))
        for known, right in pairs
        for name, pair in differences(known, right).items()
    ]
    missing = [
        Difference(f"STEP#{path}", "record", None, one.status or "begun")
        for path, one in told.steps.items()
        if seen.step(path) is None
    ]
    return Rebuilt((*found, *missing), tuple(right for _, right in pairs))


def plain(value: Any) -> Any:
    """Return a field's value as JSON."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _step(step: Step, told: ToldStep) -> Step:
    # A part begins with its map's record, which nobody attempted there.
    attempt = told.attempt or step.attempt
    right = replace(step, attempt=attempt, open=told.open, hold=told.hold, spent=told.spent)
    if told.status in FINAL and told.status != step.status:
        return replace(right, status=told.status, settled=told.given_up or told.status not in PARKED)
    return right


def _head(seen: Snapshot, told: Told) -> Head:
    head = counted(seen)
    return replace(
        head, seq=told.seq, unwinding=told.unwinding, reason=told.reason, ended=told.ended, ended_at=told.ended_at
    )


def rebuild(journal: Journal, *, repair: bool = False) -> Rebuilt:
    """Compare a run's records with its log; with ``repair``, write what the log says. Raises Conflict, NotFound.

    What the log does not hold is never invented: a step without record is told, not made.
    """
    seen = journal.read_all()
    found = compare(seen, journal.events())
    if journal.read([]).head.rev != seen.head.rev:
        raise Conflict("The run goes on while it is looked at. Repeat this when it rests.", code="run_moves")
    records = found.records if repair else ()
    # The head last: until then, the differences can be found again.
    rest = [record for record in records if record.sk != "HEAD"]
    for start in range(0, len(rest), BATCH):
        seen = _write(journal, seen, rest[start : start + BATCH])
    _write(journal, seen, [record for record in records if record.sk == "HEAD"])
    return found


def _write(journal: Journal, seen: Snapshot, records: Sequence[Record]) -> Snapshot:
    return journal.transact(seen, lambda again: _written(again, seen, records))[1]


def _written(again: Snapshot, seen: Snapshot, records: Sequence[Record]) -> Change[None]:
    """Write these records unless any of them, or the head, is another by now. Raises Conflict."""
    moved = [one.sk for one in (*records, seen.head) if again.records[one.sk].rev != seen.records[one.sk].rev]
    if moved:
        raise Conflict("The run goes on while it is repaired. Repeat this when it rests.", code="run_moves")
    return Change(None, tuple(records))
