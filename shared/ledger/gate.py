"""The record of a gate: one request for a person's decision, beside the others (``shared.ledger.records``)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from shared.frozen import frozen_record
from shared.ledger.record import Record
from shared.values import Value


@frozen_record
class Gate(Record):
    """One request for a person's decision, bound by ``digest`` to what will run, and to one ``dispatch`` of it.

    ``edit`` is the schema of changes that people may make. The last ``changes`` were made to the arguments whose digest
    is ``edited``; ``arguments`` and ``digest`` are of what they came to. ``votes`` are the approvals of these
    arguments so far, as ``{by, at, note}``; ``quorum`` of them approve the gate.
    ``tiers`` are who may decide from when on (``shared.runtime.tiers``), without them ``roles`` alone; ``tier`` is the
    number of the one that began last, at ``since`` (ms); ``roles`` and ``recipients`` are of all that have begun. Each
    tier is reminded once, ``remind_after`` (ms) after it began: ``reminded`` says when. ``to_ask`` and ``to_remind``
    are still to be written to; one process does, until ``mailing_until`` (ms). ``silent`` = nobody is written to.
    People have ``timeout`` (ms) to decide, from when they are asked.
    """

    NESTED: ClassVar[dict[str, type]] = {"arguments": Value, "show": Value, "edit": Value, "changes": Value}

    id: str
    path: str
    step: str
    status: Literal["open", "approved", "rejected", "expired", "cancelled"] = "open"
    token: str = ""
    entry: str = ""
    approves: str | None = None
    tool: str | None = None
    risk: str | None = None
    arguments: Value | None = None
    digest: str = ""
    dispatch: int = 1
    subject: str = ""
    show: Value | None = None
    roles: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
    mailed: tuple[str, ...] = ()
    excluded: str | None = None
    opened: int = 0
    expires: int = 0
    timeout: int = 0
    decided: int | None = None
    by: str | None = None
    note: str = ""
    edit: Value | None = None
    edited: str = ""
    changes: Value | None = None
    quorum: int = 1
    votes: tuple[dict[str, Any], ...] = ()
    tiers: tuple[dict[str, Any], ...] = ()
    tier: int = 1
    since: int = 0
    remind_after: int | None = None
    reminded: int | None = None
    to_ask: tuple[str, ...] = ()
    to_remind: tuple[str, ...] = ()
    mailing_until: int = 0
    silent: bool = False
    tenant_pending: str | None = None

    @property
    def sk(self) -> str:
        """The sort key inside the run's partition."""
        return f"GATE#{self.path}"
