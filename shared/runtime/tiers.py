"""Reminders and tiers of an open gate: what time alone changes of who may decide, and who is to be written to for it.

They are timers, not states: one conditional write from ``open`` reminds a tier or begins the next one. Who must be
written to stands on the gate until they have been, so whoever comes next finishes what a process that died has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from shared.ledger.record import replace
from shared.runtime.journal import Change, Note
from shared.runtime.votes import same_person, voted
from shared.settings import GATE_SECONDS

if TYPE_CHECKING:
    from shared.ledger.records import Gate
    from shared.runtime.journal import Snapshot

Tier = dict[str, Any]
"""One tier: ``after_ms`` how long from the gate's opening it begins, its ``roles``, and their ``people``."""
Why = Literal["asked", "reminder", "escalation"]
"""Why somebody is written to."""
DELIVERY = GATE_SECONDS * 1000
"""Milliseconds that one delivery of a gate can last: its function ends then."""
CLAIM = DELIVERY + 5_000
"""How long (ms) one process alone writes the letters of a gate; by then it has ended."""
PATIENCE = 900_000
"""Milliseconds after which letters that nobody could send are tried again."""


def begun(gate: Gate, now: int) -> Gate:
    """Return the gate as it opens at ``now`` (ms): its first tier may decide, and nobody has been reminded."""
    first = gate.tiers[0] if gate.tiers else None
    own = {"roles": tuple(first["roles"]), "recipients": tuple(first["people"])} if first else {}
    return replace(gate, opened=now, tier=1, since=now, reminded=None, to_ask=(), to_remind=(), mailing_until=0, **own)


def following(gate: Gate) -> Tier | None:
    """Return the next tier of an open gate; None = there is no further one."""
    return gate.tiers[gate.tier] if gate.status == "open" and gate.tier < len(gate.tiers) else None


def begins(gate: Gate) -> int | None:
    """Return when (ms) the next tier begins; None = it does not, or not before the gate expires."""
    tier = following(gate)
    return _before_end(gate, gate.opened + int(tier["after_ms"])) if tier else None


def next_tier(gate: Gate) -> tuple[int, tuple[str, ...]] | None:
    """Return when (ms) an open gate's next tier begins, and which roles it adds; None = it has none."""
    tier, start = following(gate), begins(gate)
    return (start, tuple(tier["roles"])) if tier and start is not None else None


def due(gate: Gate) -> int | None:
    """Return when (ms) the next reminder or tier of an open gate is due; None = nothing more comes before its end."""
    if gate.status != "open":
        return None
    reminds = gate.remind_after is not None and gate.reminded is None
    reminder = _before_end(gate, (gate.since or gate.opened) + (gate.remind_after or 0)) if reminds else None
    return min((moment for moment in (reminder, begins(gate)) if moment is not None), default=None)


def _before_end(gate: Gate, moment: int) -> int | None:
    return moment if moment < gate.expires else None


def advance(seen: Snapshot, path: str, now: int) -> Change[str]:
    """Decide what time has made of a gate: ``escalated``, ``reminded``, or nothing ("").

    A tier that is over is not reminded any more. Tiers that are due together begin together.
    """
    gate = seen.gate(path)
    if gate is None or gate.status != "open" or seen.head.ended or seen.head.unwinding or now >= gate.expires:
        return Change("")
    moment = due(gate)
    if moment is None or now < moment:
        return Change("")
    notes: list[Note] = []
    while (start := begins(gate)) is not None and start <= now:
        gate, note = _escalated(gate, now)
        notes.append(note)
    if notes:
        return Change("escalated", (gate,), tuple(notes))
    gate, note = _reminded(gate, now)
    return Change("reminded", (gate,), (note,))


def _escalated(gate: Gate, now: int) -> tuple[Gate, Note]:
    tier = gate.tiers[gate.tier]
    roles = tuple(dict.fromkeys((*gate.roles, *tier["roles"])))
    new = tuple(one for one in tier["people"] if one not in gate.recipients)
    following_ = replace(
        gate,
        tier=gate.tier + 1,
        since=now,
        reminded=None,
        roles=roles,
        recipients=(*gate.recipients, *new),
        to_ask=() if gate.silent else (*gate.to_ask, *new),
    )
    data = {"tier": following_.tier, "added": list(tier["roles"]), "roles": list(roles), "to": list(new)}
    return following_, Note("gate_escalated", gate.path, None, data)


def _reminded(gate: Gate, now: int) -> tuple[Gate, Note]:
    still = tuple(one for one in gate.recipients if not voted(gate, one))
    late = () if gate.silent else tuple(one for one in still if one not in gate.to_ask)
    data = {"tier": gate.tier, "roles": list(gate.roles), "to": list(still)}
    return replace(gate, reminded=now, to_remind=late), Note("gate_reminded", gate.path, None, data)


# --- letters ----------------------------------------------------------------------------------------------------------


def asked_anew(gate: Gate, by: str | None = None) -> Gate:
    """Return the gate with everybody who may decide it to be written to, but for ``by``: it asks for something else."""
    others = tuple(one for one in gate.recipients if not same_person(one, by))
    return replace(gate, to_ask=() if gate.silent else others, to_remind=())


def untold(gate: Gate) -> tuple[str, ...]:
    """Return the addresses that are still to be written to about an open gate, each once."""
    if gate.status != "open":
        return ()
    return tuple(dict.fromkeys((*gate.to_ask, *(one for one in gate.to_remind if not voted(gate, one)))))


def claimed(gate: Gate, now: int) -> Gate | None:
    """Return the gate with its letters claimed by one process; None = another one writes them, or there are none."""
    return replace(gate, mailing_until=now + CLAIM) if untold(gate) and gate.mailing_until <= now else None


def told(gate: Gate, address: str, *, asked: bool = True) -> Gate:
    """Return the gate with nothing more to write to ``address``; ``asked`` = the letter has gone out."""
    ask, remind = (tuple(one for one in some if one != address) for some in (gate.to_ask, gate.to_remind))
    mailed = (*gate.mailed, address) if asked and address not in gate.mailed else gate.mailed
    gate = replace(gate, to_ask=ask, to_remind=remind, mailed=mailed)
    return gate if untold(gate) else replace(gate, mailing_until=0)


def is_forgotten(gate: Gate, now: int) -> bool:
    """Tell whether letters wait that nobody writes: whose process has died, or that nobody could send for a while."""
    return bool(untold(gate)) and (gate.mailing_until == 0 or now >= gate.mailing_until + PATIENCE)


def why(gate: Gate, address: str) -> Why:
    """Return why somebody is written to about a gate, as it stands before that."""
    if address in gate.to_ask:
        first = gate.tiers[0]["people"] if gate.tiers else ()
        return "escalation" if gate.tier > 1 and address not in (*first, *gate.mailed) else "asked"
    return "reminder" if address in gate.to_remind else "asked"
