"""Telling people about an open gate: who is asked, the mails, each sent once, and the time that they have then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from shared import values
from shared.errors import PermanentFailure, StepFailure, StepTimeout, TransientFailure
from shared.runtime.host import NO_SECRETS, Host
from shared.runtime.journal import Change, Journal, Note, Snapshot
from shared.runtime.votes import same_person

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Gate, Run
    from shared.manifest import StepPlan
    from shared.ports import Mail, Message, Secrets
    from shared.settings import Person


class Letters(Protocol):
    """Writes the mail that asks one person for a decision."""

    def __call__(self, gate: Gate, run: Run, person: Person, shown: Mapping[str, Any]) -> Message:
        """Return the mail, with the person's own signed link."""
        ...


@dataclass(frozen=True, slots=True)
class GateHost(Host):
    """The ports of the function that opens gates. ``approvers`` maps a role to its people."""

    mail: Mail
    letters: Letters
    approvers: Mapping[str, tuple[Person, ...]]
    secrets: Secrets = NO_SECRETS


def recipients(host: GateHost, plan: StepPlan, excluded: str | None) -> tuple[str, ...]:
    """Return the addresses of those who are asked. Raises PermanentFailure when they are too few to decide."""
    people = {person.email for role in plan.spec["approvers"] for person in host.approvers.get(role, ())}
    people = {email for email in people if not same_person(email, excluded)}
    roles, quorum = ", ".join(plan.spec["approvers"]), plan.spec.get("quorum", 1)
    if not people:
        raise PermanentFailure(f"Nobody may decide gate {plan.id}: {roles} has no people. Add them to the approvers.")
    # A host that lists nobody lets anybody decide.
    if len(people) < quorum and len(host.approvers):
        few = f"{len(people)} {'person' if len(people) == 1 else 'people'}"
        raise PermanentFailure(
            f"Gate {plan.id} needs {quorum} approvals, and {roles} has {few} who may decide. Add more to the approvers."
        )
    return tuple(sorted(people))


def announce(host: GateHost, journal: Journal, gate: Gate) -> None:
    """Mail everybody who was not mailed yet, each recorded, so that a repeated delivery mails nobody twice.

    Raises StepTimeout when the gate has expired, TransientFailure when nobody could be reached.
    """
    if host.clock.now() >= gate.expires:
        raise StepTimeout(f"Gate {gate.path} expired before it was decided.")
    seen = journal.read(["RUN", gate.sk])
    people = {person.email: person for group in host.approvers.values() for person in group}
    failures: list[str] = []
    for address in gate.recipients:
        if address not in gate.mailed and address in people:
            failures += _mail(host, journal, seen, gate, people[address])
    if failures and len(failures) == len(gate.recipients):
        raise TransientFailure(f"Nobody could be told about gate {gate.path}: {failures[0]}")


def ask_again(host: GateHost, told: Mapping[str, Any]) -> None:
    """Write to the approvers of a gate that was opened once more, or changed: no machine delivers these.

    ``told`` is what was announced of it: tenant, run and path. Repeated, it mails nobody twice; a gate that is not open
    any more is left alone. Raises TransientFailure when nobody could be reached.
    """
    journal = Journal(host.store, host.clock, str(told["tenant"]), str(told["run"]))
    seen = journal.read([f"GATE#{told['path']}"])
    gate = seen.gate(str(told["path"]))
    undelivered = gate and gate.status == "open" and (gate.changes or not gate.token)
    if gate and undelivered and not (seen.head.unwinding or seen.head.ended):
        announce(host, journal, gate)


LONGEST_DELIVERY = 60_000
"""Milliseconds that one delivery of a gate can last."""


def give_time(host: GateHost, journal: Journal, gate: Gate, plan: StepPlan) -> None:
    """Let the time to decide run from now, when people could only be told long after the gate had opened.

    The engine's own time-out of the token began with this delivery, and nothing else ends the gate.
    """
    ends = host.clock.now() + int(plan.timeout * 1000)

    def decide(seen: Snapshot) -> Change[None]:
        known = seen.gate(gate.path)
        if known is None or known.status != "open" or known.expires >= ends - LONGEST_DELIVERY:
            return Change(None)
        return Change(None, (replace(known, expires=ends),))

    if gate.expires < ends - LONGEST_DELIVERY:
        journal.transact(journal.read([gate.sk]), decide)


def _mail(host: GateHost, journal: Journal, seen: Snapshot, gate: Gate, person: Person) -> list[str]:
    note = Note("gate_mailed", gate.path, None, {"to": person.email})
    failures: list[str] = []
    try:
        host.mail.send(host.letters(gate, seen.run, person, values.load(gate.show, host.blobs) or {}))
    except StepFailure as failure:
        failures = [str(failure)]
        note = Note("gate_mail_failed", gate.path, None, {"to": person.email, "error": str(failure)[:300]})

    def decide(again: Snapshot) -> Change[None]:
        known = again.gate(gate.path)
        if known is None or again.head.ended or person.email in known.mailed:
            return Change(None)
        return Change(None, () if failures else (replace(known, mailed=(*known.mailed, person.email)),), (note,))

    journal.transact(journal.read([gate.sk]), decide)
    return failures
