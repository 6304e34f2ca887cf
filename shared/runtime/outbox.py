"""What was committed and must be sent: read from the table's stream, so that it is sent even if its writer died.

Writers commit first and send then. Where no machine would repeat the sending (a request to start, cancel, decide or
resume, whose caller may be gone), the stream does: every record here is sent at least once, and twice is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.ledger.records import Gate, Head, Park, revive
from shared.runtime.deadletters import redriven
from shared.runtime.ending import start_unwinding, wake
from shared.runtime.gates import answer
from shared.runtime.journal import Journal
from shared.runtime.runs import execute
from shared.runtime.visits import act

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.runtime.host import Host


def send(host: Host, item: Mapping[str, Any], unwind_machine: str) -> None:
    """Send what ``item``, a record as it was written, asks for: an execution's start or a token's answer."""
    record = revive(dict(item))
    if isinstance(record, Head):
        _start(host, str(item["pk"]), unwind_machine)
    elif isinstance(record, Gate | Park):
        deliver(host, record)


def deliver(host: Host, record: Gate | Park) -> bool:
    """Send what was decided about a gate, or answered to a park. Returns whether anybody still waited for it."""
    if isinstance(record, Gate):
        return answer(host, record)
    if not (record.token and record.answer):
        return False
    done = {"status": record.answer, "route": ""}
    return host.engine.succeed(record.token, done if record.kind == "event" else act(record.answer))


def _start(host: Host, pk: str, unwind_machine: str) -> None:
    """Start what the head, as it is now, says must run: the unwinding, or an execution that has done nothing yet."""
    journal = Journal.at(host.store, host.clock, pk)
    seen = journal.read(["RUN"])
    if seen.head.ended:
        return
    if seen.head.unwinding:
        start_unwinding(host, seen, unwind_machine)
        wake(host, journal)
    elif seen.head.seq == seen.head.began:
        if seen.head.epoch > 1:
            redriven(host.store, pk)
        execute(host, seen)
