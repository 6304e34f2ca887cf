"""The mail that asks one person for a decision: what is asked, what will run with which arguments, until when."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.approvals.links import Link, sign
from shared.approvals.show import RISKS, counted, exact, groups, moment, one_line, templates
from shared.errors import PermanentFailure
from shared.ports import Message
from shared.runtime.tiers import why

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Gate, Run
    from shared.runtime.tiers import Why
    from shared.settings import Person

LINK_LIFE = 30 * 24 * 3600 * 1000
"""How long (ms) after its gate's deadline a link still opens, to show what was decided."""
_ADDRESS = re.compile(r"[^\s@<>,;\"]+@[^\s@<>,;\"]+", re.ASCII)
_HEADERS = {"Auto-Submitted": "auto-generated"}
_LONGEST = 4000
_HEADLINES: dict[Why, str] = {
    "asked": "Decision needed",
    "reminder": "Reminder, decision still needed",
    "escalation": "Escalated to you, decision needed",
}


@dataclass(frozen=True, slots=True)
class LetterWriter:
    """Writes letters. ``public_url`` is where the page answers, without a slash at its end; ``link_key`` signs."""

    public_url: str
    link_key: bytes

    def __call__(self, gate: Gate, run: Run, person: Person, shown: Mapping[str, Any]) -> Message:
        """Return the mail for ``person``. Raises PermanentFailure when their address cannot be one."""
        if _ADDRESS.fullmatch(person.email) is None:
            raise PermanentFailure(f"{person.email!r} is no mail address. Correct it among the approvers.")
        reason = why(gate, person.email)
        facts = {
            **self._facts(gate, run, person, shown),
            "why": reason,
            "headline": _HEADLINES[reason],
            "opened": moment(gate.opened),
        }
        return Message(
            to=person.email,
            subject=one_line(f"{_HEADLINES[reason]}: {gate.subject}", 160),
            text=templates().get_template("letter.txt").render(facts),
            html=templates().get_template("letter.html").render(facts),
            headers=_HEADERS,
        )

    def link(self, gate: Gate, run: Run, person: Person) -> str:
        """Return the person's own address of the page."""
        link = Link(run.tenant, run.id, gate.path, gate.id, person.email, gate.expires + LINK_LIFE)
        return f"{self.public_url.rstrip('/')}/approve/{sign(link, self.link_key)}"

    def _facts(self, gate: Gate, run: Run, person: Person, shown: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "subject": one_line(gate.subject),
            "name": one_line(person.name),
            "workflow": run.workflow,
            "run": run.id,
            "initiator": one_line(run.initiator),
            "approves": gate.approves,
            "tool": gate.tool,
            "risk": RISKS.get(gate.risk or "", ""),
            "arguments": _arguments(gate),
            "digest": gate.digest,
            "quorum": gate.quorum,
            "count": counted(gate),
            "changed": bool(gate.changes),
            "may_edit": gate.edit is not None,
            "shown": [{**group, "rows": _cut(group["rows"])} for group in groups(shown)],
            "deadline": moment(gate.expires),
            "link": self.link(gate, run, person),
        }


def _arguments(gate: Gate) -> str:
    """Return the exact arguments; where they are too long for a letter, where to read them."""
    if gate.arguments is None:
        return ""
    text = exact(json.loads(gate.arguments.text)) if gate.arguments.text else ""
    return text if 0 < len(text) <= _LONGEST else "The arguments are long: the page shows them exactly."


def _cut(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return rows as short as a letter can carry them."""
    more = "... (the page shows all of it)"
    return [(name, text if len(text) <= _LONGEST else f"{text[:_LONGEST]} {more}") for name, text in found]
