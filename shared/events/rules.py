"""Which entries of a run's log are announced, and as what. Pure. An announcement carries no data of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.ports import Announcement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from shared.ledger.records import Gate, Run
    from shared.ports import Item

PAUSED = "Run Paused"
"""Detail-type: a step of a run waits until a person says how it goes on."""
ASKED = "Approval Requested"
"""Detail-type: a gate is open. ``again`` says that it was before: its step's call did not happen, a person has changed
what is to be approved, it was reminded of, or its next ``tier`` may decide it too."""
_TOLD = ("reason", "level", "dimension")


REFUSED = "Trigger Refused"
"""Detail-type: something has happened that can never start a run. It is kept as a dead letter."""


def announcement(item: Item) -> Announcement | None:
    """Return what is announced of an event's item, as it stands in the table; None = nothing.

    ``reason`` says why the run is paused; for ``budget_exceeded``, ``level`` and ``dimension`` say which limit.
    """
    data: Mapping[str, Any] = item.get("data", {})
    if not str(item["sk"]).startswith("EVENT#") or item["type"] not in ANNOUNCED:
        return None
    _, tenant, _, run = str(item["pk"]).split("#", 3)
    where = {"tenant": tenant, "run": run, "path": item.get("path"), "seq": item["seq"], "at": item["at"]}
    if item["type"] in PAUSING:
        told = {"reason": "unknown_outcome", **{name: data[name] for name in _TOLD if name in data}}
        return Announcement(PAUSED, f"run/{tenant}/{run}", {**where, **told})
    again = item["type"] in _AGAIN or "dispatch" in data
    tier = {"tier": data["tier"]} if "tier" in data else {}
    return Announcement(ASKED, f"run/{tenant}/{run}", {**where, "roles": data["roles"], "again": again, **tier})


PAUSING = ("step_paused", "step_unknown")
"""Events after which a person has to say how a step goes on."""
_AGAIN = ("gate_edited", "gate_reminded", "gate_escalated")
ANNOUNCED = (*PAUSING, "gate_opened", *_AGAIN)


def owed(run: Run, gate: Gate, seq: int, now: int) -> Announcement:
    """Return what is announced of an open gate whose letters nobody writes: what its event has announced is lost.

    ``seq`` is the number of the run's last event, ``now`` in milliseconds.
    """
    where = {"tenant": run.tenant, "run": run.id, "path": gate.path, "seq": seq, "at": now}
    told = {"roles": list(gate.roles), "again": True, "tier": gate.tier}
    return Announcement(ASKED, f"run/{run.tenant}/{run.id}", {**where, **told})
