"""A run's records recomputed from its log and compared: they are projections of it.

Recomputed are, of a step, ``attempt open hold spent``, and as far as the log tells them ``status settled retries``, the
key and dispatch of its call, its route, who gave its result, and its output's digest; of a gate, its decision, by whom,
and the digest that it is bound to; of the head, ``seq epoch began open paused waiting slots``, what is left of the
limits, and how the run unwinds and has ended; of the run, its state in lists. Limits, active time, and values
themselves are facts that the log does not hold: of an output, it only knows whether it is still the same.
"""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

from shared.errors import Conflict
from shared.ids import sha256
from shared.ledger.record import replace
from shared.runtime.audit import counted, differences
from shared.runtime.fold import ToldStep, fold
from shared.runtime.journal import Change
from shared.runtime.runs import listed
from shared.runtime.unwinding import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shared.ledger.record import Record
    from shared.ledger.records import Event, Gate, Head, Step
    from shared.runtime.fold import Told, ToldGate
    from shared.runtime.journal import Journal, Snapshot
    from shared.values import Value


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a record that is not what the log says; ``known`` and ``told`` are the two values.

    ``lost`` = the log does not hold what was there: this cannot be repaired.
    """

    record: str
    field: str
    known: Any
    told: Any
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was compared: the differences, and the records as the log says they are."""

    differences: tuple[Difference, ...]
    records: tuple[Record, ...]


def compare(seen: Snapshot, events: Sequence[Event]) -> Rebuilt:
    """Recompute a run's records from its whole log; ``seen`` holds all of them, as of the log's end."""
    told = fold(events)
    steps = [_step(step, told.steps.get(step.path, ToldStep())) for step in seen.steps()]
    gates = [_gate(gate, told.gates.get(gate.path)) for gate in seen.gates()]
    head = _head(seen.with_({record.sk: record for record in (*steps, *gates)}), told)
    projected = replace(seen.run, projected=0)
    run = replace(listed(projected, head), projected=seen.run.projected)
    present = (*seen.steps(), *seen.gates())
    now: dict[str, Record] = {**seen.records, **{record.sk: record for record in present}}
    pairs = [(known, right) for right in (*steps, *gates, head, run) if (known := now[right.sk]) != right]
    found = [
        Difference(right.sk, name, *map(plain, pair))
        for known, right in pairs
        for name, pair in differences(known, right).items()
    ]
    return Rebuilt((*found, *_lost(seen, told)), tuple(right for _, right in pairs))


def _lost(seen: Snapshot, told: Told) -> Iterator[Difference]:
    """Yield what is gone or was replaced, and cannot be made from the log."""
    for path, one in told.steps.items():
        step = seen.step(path)
        if step is None:
            yield Difference(f"STEP#{path}", "record", None, one.status or "begun", lost=True)
            continue
        if one.call and step.call is None:
            yield Difference(step.sk, "call", None, dict(one.call), lost=True)
        if "output" in one.result and (given := _digest(step.output)) != one.result["output"]:
            yield Difference(step.sk, "output", given, one.result["output"], lost=True)
    for path, gate in told.gates.items():
        known = seen.gate(path)
        if known is None:
            yield Difference(f"GATE#{path}", "record", None, gate.status or "opened", lost=True)
        elif gate.digest != ((given := _digest(known.arguments)) or ""):
            yield Difference(known.sk, "arguments", given, gate.digest, lost=True)


def _digest(value: Value | None) -> str | None:
    """Return the digest of what is there now; what lies in a blob is named by the digest of its content."""
    return value and (value.digest if value.text is None else sha256(value.text.encode()))


def plain(value: Any) -> Any:
    """Return a field's value as JSON."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _step(step: Step, told: ToldStep) -> Step:
    # A part begins with its map's record, which nobody attempted there.
    attempt = told.attempt or step.attempt
    right = replace(step, attempt=attempt, open=told.open, hold=told.hold, spent=told.spent)
    right = replace(right, **{name: told.result[name] for name in ("route", "by") if name in told.result})
    if step.call and told.call:
        right = replace(right, call=dataclasses.replace(step.call, **told.call))
    if told.retries is not None:
        right = replace(right, retries=told.retries)
    if told.status is None:
        return right
    settled = step.settled if told.settled is None else told.settled
    return replace(right, status=told.status, settled=settled)


def _gate(gate: Gate, told: ToldGate | None) -> Gate:
    if told is None or told.status is None:
        return gate
    return replace(gate, status=told.status, digest=told.digest, by=told.by)


def _head(seen: Snapshot, told: Told) -> Head:
    named = ("seq", "epoch", "began", "unwinding", "reason", "ended", "ended_at")
    return replace(counted(seen), **{name: getattr(told, name) for name in named})


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
