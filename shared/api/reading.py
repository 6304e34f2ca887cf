"""Reading a run for an answer: consistently, and only as much of its values as one response can carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared import values
from shared.errors import NotFound, StepFailure
from shared.runtime.views import OMITTED, Seen

if TYPE_CHECKING:
    from shared.ledger.records import Event, Run
    from shared.ports import Blobs
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal, Snapshot
    from shared.values import Value

VALUES_LIMIT = 4 * 1024 * 1024
"""Most bytes of stored values in one response; Lambda carries 6 MB."""
_TRIES = 4


class Sparing:
    """Loads stored values until a response would become too large; the rest is named by digest and size."""

    def __init__(self, blobs: Blobs, limit: int = VALUES_LIMIT) -> None:
        self._blobs = blobs
        self._left = limit

    def __call__(self, value: Value) -> Any:
        """Return the value, or OMITTED when it does not fit or its blob is gone."""
        if value.size > self._left:
            return OMITTED
        self._left -= value.size
        try:
            return values.load(value, self._blobs)
        except StepFailure:
            return OMITTED


def read_run(host: Host, journal: Journal) -> Seen:
    """Read a run with its steps and gates as of one moment. Raises NotFound."""
    snapshot = _consistent(journal)
    run = snapshot.run
    manifest = host.definitions.manifest(run.workflow, run.version)
    audit = tuple(filter(_audits, journal.events())) if run.budget_mode == "audit" else ()
    return Seen(snapshot, manifest, Sparing(host.blobs), host.clock.now(), _ended(journal, snapshot), audit)


def _audits(event: Event) -> bool:
    return event.type == "budget_would_refuse" or "would_refuse" in event.data


def _consistent(journal: Journal) -> Snapshot:
    """Return all records between two reads of an unchanged head: every change of money or state goes through it."""
    for _ in range(_TRIES):
        seen = journal.read_all()
        if journal.read([]).head.rev == seen.head.rev:
            return seen
    return journal.read_all()


def _ended(journal: Journal, snapshot: Snapshot) -> int | None:
    head = snapshot.head
    if not head.ended:
        return None
    last = journal.events(after=head.seq - 1, limit=1)
    return snapshot.run.ended or (last[0].at if last else None)


def facts(journal: Journal) -> tuple[Snapshot, Run]:
    """Return the run's head and facts. Raises NotFound."""
    seen = journal.read(["RUN"])
    if "RUN" not in seen.records:
        raise NotFound("There is no such run.")
    return seen, seen.run
