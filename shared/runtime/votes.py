"""Who has approved what a gate is bound to, each person once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared import values
from shared.ledger.record import replace

if TYPE_CHECKING:
    from shared.ledger.records import Gate
    from shared.runtime.edits import Edit

Vote = dict[str, Any]
"""One approval: ``by`` whom, ``at`` what time (ms), and their ``note``."""
EXPIRY = "expiry"
"""Who has decided a gate that nobody has decided in time."""


def same_person(one: str | None, other: str | None) -> bool:
    """Tell whether two addresses are one person's: nobody counts twice for writing theirs in capitals."""
    return one is not None and other is not None and one.casefold() == other.casefold()


def voted(gate: Gate, person: str) -> bool:
    """Tell whether a person has approved what the gate is bound to now."""
    return any(same_person(vote["by"], person) for vote in gate.votes)


def votes_of(gate: Gate) -> tuple[Vote, ...]:
    """Return who has approved what the gate is bound to. Gates of before there was a quorum only say who decided."""
    alone = gate.status == "approved" and not gate.votes and gate.by != EXPIRY
    return ({"by": gate.by, "at": gate.decided, "note": gate.note},) if alone else gate.votes


def with_vote(gate: Gate, by: str, note: str, now: int) -> Gate:
    """Return the gate with one more approval; it is approved when these are enough."""
    gate = replace(gate, votes=(*gate.votes, {"by": by, "at": now, "note": note}))
    if len(gate.votes) < gate.quorum:
        return gate
    return replace(gate, status="approved", decided=now, by=by, note=note, tenant_pending=None)


def edited(gate: Gate, edit: Edit) -> Gate:
    """Return the gate bound to the changed arguments, which nobody has approved yet."""
    new = {"arguments": edit.arguments, "digest": edit.arguments.digest}
    return replace(gate, **new, edited=edit.of, changes=edit.stored, votes=())


def notes_of(gate: Gate) -> str:
    """Return what those who decided have noted, as later steps read it."""
    said = [vote["note"] for vote in gate.votes if vote["note"]] if gate.status == "approved" else []
    return "\n".join(said) if len(said) > 1 else gate.note or "".join(said)


def is_same_edit(gate: Gate, digest: str | None, changes: object) -> bool:
    """Tell whether the gate's arguments are what these changes to the arguments of that digest have made of them."""
    return gate.changes is not None and digest == gate.edited and gate.changes.digest == values.digest(changes)
