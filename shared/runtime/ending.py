"""How a run is asked to end early: the mark on its head, and the machine that sees to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.errors import Conflict
from shared.redaction import redacted_text
from shared.runtime.journal import Change, Note, Snapshot
from shared.runtime.scopes import entry_of, root_scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.ledger.records import Ending, Head
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal


UNWINDING = "/unwinding"
"""Under which the execution that unwinds a run registers its token: no step has such a path."""
REASON_BYTES = 400
"""Longest reason on the head, which stays below 1 KB whatever people write."""


def begin(head: Head, ending: Ending, reason: str) -> tuple[Head, Note]:
    """Mark the head as unwinding towards ``ending``: nothing opens any more, what is open may still close."""
    reason = redacted_text(reason).encode(errors="replace")[:REASON_BYTES].decode(errors="ignore")
    note = Note("run_unwinding", None, None, {"towards": ending, "reason": reason})
    return replace(head, unwinding=ending, reason=reason), note


def request(  # noqa: PLR0913 - each says something else
    host: Host,
    journal: Journal,
    ending: Ending,
    reason: str,
    unwind_machine: str,
    *,
    epoch: int | None = None,
    late: Callable[[], bool] = lambda: False,
) -> Snapshot:
    """Ask the run to end as ``ending`` and see to it that it is unwound.

    Raises Conflict when it has ended already, or is not in ``epoch`` any more, if that is given, or when the request is
    ``late``, which is asked after the run was read.
    """

    def decide(seen: Snapshot) -> Change[None]:
        head = seen.head
        if late():
            raise Conflict("Who asks for the run's end has been overtaken by a later epoch.", code="epoch_over")
        if epoch not in {None, head.epoch}:
            raise Conflict(f"The run is in epoch {head.epoch}, not {epoch} any more.", code="epoch_over")
        if head.ended:
            raise Conflict(f"The run has already ended as {head.ended}.", code="run_ended")
        if head.unwinding:
            return Change(None)
        marked, note = begin(head, ending, reason)
        return Change(None, (marked,), (note,))

    _, after = journal.transact(journal.read(["RUN"]), decide)
    start_unwinding(host, after, unwind_machine)
    return after


def start_unwinding(host: Host, seen: Snapshot, unwind_machine: str, dead: str = "") -> None:
    """Start the unwind machine for this epoch of the run; starting it again is harmless.

    ``dead`` names an execution of it that failed: the next takes another name, since a name is used once.
    """
    name = execution_name(seen)
    name = following(name, dead) if dead else name
    # Compensations are named by their whole paths, also those of a part, whose own graph stands inside others.
    host.engine.start(unwind_machine, name, {**execution_input(seen), "scope": ""})


def wake(host: Host, journal: Journal) -> bool:
    """Let the execution that unwinds a run look again, if it waits for a person's word. Returns whether it did."""
    park = journal.read([f"PARK#{UNWINDING}"]).park(UNWINDING)
    return park is not None and host.engine.succeed(park.token, {})


def execution_name(seen: Snapshot) -> str:
    """Return the name of the run's execution in its epoch, and of the first that unwinds it."""
    return f"{seen.run.id}.{seen.head.epoch}"


def following(first: str, dead: str) -> str:
    """Return the name of the execution that unwinds a run after ``dead``; ``first`` is the name of the first one."""
    generation = dead.removeprefix(first).removeprefix(".")
    return f"{first}.{int(generation or 1) + 1}"


def execution_input(seen: Snapshot) -> dict[str, Any]:
    """Return an execution's input: which run it serves. It has the same size for every run."""
    run, head = seen.run, seen.head
    pin = {"id": run.id, "tenant": run.tenant, "workflow": run.workflow, "version": run.version, "epoch": head.epoch}
    return {"run": pin, "scope": root_scope(run), "routes": {}, "part": entry_of(run)}
