"""Telling people about an open gate: who is asked, the mails, each sent once, and the time that they have then."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from shared import values
from shared.errors import PermanentFailure, StepFailure, StepTimeout, TransientFailure
from shared.runtime.host import NO_SECRETS, Host
from shared.runtime.journal import Change, Journal, Note, Snapshot
from shared.runtime.tiers import DELIVERY, advance, claimed, told, untold, why
from shared.runtime.votes import same_person

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Gate, Run
    from shared.manifest import StepPlan
    from shared.ports import Mail, Message, Secrets
    from shared.runtime.tiers import Tier
    from shared.settings import Person


class Letters(Protocol):
    """Writes the mail that asks one person for a decision."""

    def __call__(self, gate: Gate, run: Run, person: Person, shown: Mapping[str, Any]) -> Message:
        """Return the mail, with the person's own signed link."""
        ...


@dataclass(frozen=True, slots=True)
class GateHost(Host):
    """The ports of the function that opens gates. ``approvers`` maps a role to its people.

    ``ends`` = this host ends gates at the time on their record; else the engine does, by the time-out of their token.
    """

    mail: Mail
    letters: Letters
    approvers: Mapping[str, tuple[Person, ...]]
    secrets: Secrets = NO_SECRETS
    ends: bool = False


def people_of(host: GateHost, plan: StepPlan, excluded: str | None) -> tuple[Tier, ...]:
    """Return who is asked, tier by tier. Raises PermanentFailure when they are too few ever to decide.

    All tiers together must be enough: until the last one has begun, nothing is lost. But each role that a tier adds
    must have people at all, and somebody must be asked when the gate opens.
    """
    given = ({"after": 0.0, "to": plan.spec["approvers"]}, *plan.spec.get("escalate", ()))
    tiers = tuple(_tier(host, each, excluded) for each in given)
    for tier in tiers:
        missing = [role for role in tier["roles"] if tier is not tiers[0] and not host.approvers.get(role, ())]
        if missing:
            roles = ", ".join(missing)
            raise PermanentFailure(f"Gate {plan.id} escalates to {roles}: it has no people. Add them to the approvers.")
    if not tiers[0]["people"]:
        roles = ", ".join(tiers[0]["roles"])
        raise PermanentFailure(f"Nobody may decide gate {plan.id}: {roles} has no people. Add them to the approvers.")
    _check_quorum(host, plan, tiers)
    return tiers


def _tier(host: GateHost, given: Mapping[str, Any], excluded: str | None) -> Tier:
    # Nobody is two people for having an address in two spellings, perhaps in two roles: one of them stands for both.
    spelling = {email.casefold(): email for email in sorted(_people(host))}
    found = {person.email.casefold() for role in given["to"] for person in host.approvers.get(role, ())}
    people = {spelling.get(email, email) for email in found}
    people = sorted(email for email in people if not same_person(email, excluded))
    return {"after_ms": int(given["after"] * 1000), "roles": list(given["to"]), "people": people}


def _check_quorum(host: GateHost, plan: StepPlan, tiers: tuple[Tier, ...]) -> None:
    people = {email for tier in tiers for email in tier["people"]}
    roles, quorum = ", ".join(role for tier in tiers for role in tier["roles"]), plan.spec.get("quorum", 1)
    # A host that lists nobody lets anybody decide.
    if len(people) < quorum and len(host.approvers):
        few = f"{len(people)} {'person' if len(people) == 1 else 'people'}"
        raise PermanentFailure(
            f"Gate {plan.id} needs {quorum} approvals, and {roles} has {few} who may decide. Add more to the approvers."
        )


def mail_approvers(host: GateHost, journal: Journal, gate: Gate) -> None:
    """Mail everybody who was not mailed yet, each recorded, so that a repeated delivery mails nobody twice.

    Whom a later tier or a change asks is left to ``tell``. Raises StepTimeout when the gate has expired,
    TransientFailure when nobody could be reached.
    """
    if host.clock.now() >= gate.expires:
        raise StepTimeout(f"Gate {gate.path} expired before it was decided.")
    if gate.silent:
        return
    seen = journal.read(["RUN", gate.sk])
    people = _people(host)
    known, failures = gate, dict[str, str]()
    for address in gate.recipients:
        # As it is by now: another process may have written to some, and a person may have decided.
        if known and address in people and address not in (*known.mailed, *known.to_ask):
            known, failed = _mail(host, journal, seen.run, known, people[address])
            if failed:
                failures[address] = failed[0]
    if failures and len(failures) == len(set(gate.recipients) - set(gate.to_ask)):
        raise TransientFailure(f"Nobody could be told about gate {gate.path}: {next(iter(failures.values()))}")
    if known and failures:
        now = host.clock.now()
        journal.transact(journal.read([gate.sk]), lambda again: _owed(again, gate.path, tuple(failures), now))


def _owed(seen: Snapshot, path: str, addresses: tuple[str, ...], now: int) -> Change[None]:
    """Leave the letters that could not be sent to whoever comes by later; the others have the gate already."""
    gate = seen.gate(path)
    if gate is None or gate.status != "open":
        return Change(None)
    still = tuple(one for one in addresses if one not in (*gate.mailed, *gate.to_ask))
    return Change(None, (replace(gate, to_ask=(*gate.to_ask, *still), mailing_until=now),) if still else ())


def _people(host: GateHost) -> dict[str, Person]:
    return {person.email: person for group in host.approvers.values() for person in group}


def ask_again(host: GateHost, about: Mapping[str, Any]) -> None:
    """Write to those who are to decide a gate that was reminded, escalated, changed or opened once more.

    No machine delivers these. ``about`` is what was announced of it: tenant, run and path. Raises TransientFailure when
    nobody could be reached.
    """
    tell(host, Journal(host.store, host.clock, str(about["tenant"]), str(about["run"])), str(about["path"]))


def tell(host: GateHost, journal: Journal, path: str) -> None:
    """Write the letters that an open gate still owes, each recorded; repeated, it mails nobody twice.

    One process at a time does: it claims them first. A gate that is not open any more is left alone. Raises
    TransientFailure when nobody could be reached.
    """
    people, tried, failures = _people(host), dict[str, str](), list[str]()
    gate, seen = _claim(host, journal, path, people)
    while gate and (address := next((one for one in untold(gate) if tried.get(one) != gate.digest), None)):
        tried[address] = gate.digest
        if address in people:
            gate, failed = _mail(host, journal, seen.run, gate, people[address])
            failures += failed
    if gate and gate.mailing_until:
        journal.transact(journal.read([gate.sk]), lambda again: _given_back(again, path, host.clock.now()))
    if failures and len(failures) == len(tried):
        raise TransientFailure(f"Nobody could be told about gate {path}: {failures[0]}")


def _claim(host: GateHost, journal: Journal, path: str, people: Mapping[str, Person]) -> tuple[Gate | None, Snapshot]:
    """Claim the letters of a gate, without those to people who are on no list any more; None = nothing is to do."""
    now = host.clock.now()

    def decide(seen: Snapshot) -> Change[Gate | None]:
        gate = seen.gate(path)
        if gate is None or seen.head.unwinding or seen.head.ended or now >= gate.expires:
            return Change(None)
        mine = claimed(gate, now)
        if mine is None:
            return Change(None)
        for address in untold(mine):
            mine = mine if address in people else told(mine, address, asked=False)
        return Change(mine, (mine,))

    return journal.transact(journal.read([f"GATE#{path}", "RUN"]), decide)


def _given_back(seen: Snapshot, path: str, now: int) -> Change[None]:
    """Give the claim back, so that others may write the letters that could not be sent."""
    gate = seen.gate(path)
    if gate is None or gate.mailing_until <= now:
        return Change(None)
    return Change(None, (replace(gate, mailing_until=now if untold(gate) else 0),))


def look(host: GateHost, journal: Journal, path: str) -> Gate | None:
    """Do what time asks for at a gate: remind or escalate, and write the letters. Returns it as it is then."""
    now = host.clock.now()
    journal.transact(journal.read([f"GATE#{path}"]), lambda seen: advance(seen, path, now))
    with suppress(TransientFailure):  # written down; they are tried again with whatever is due next
        tell(host, journal, path)
    return journal.read([f"GATE#{path}"]).gate(path)


def give_time(host: GateHost, journal: Journal, gate: Gate, plan: StepPlan) -> None:
    """Let the time to decide run from now, when people could only be told long after the gate had opened.

    The engine's own time-out of the token began with this delivery, and nothing else ends the gate.
    """
    ends = host.clock.now() + int(plan.timeout * 1000)

    def decide(seen: Snapshot) -> Change[None]:
        known = seen.gate(gate.path)
        if known is None or known.status != "open" or known.expires >= ends - DELIVERY:
            return Change(None)
        return Change(None, (replace(known, expires=ends),))

    if not host.ends and gate.expires < ends - DELIVERY:
        journal.transact(journal.read([gate.sk]), decide)


def _mail(host: GateHost, journal: Journal, run: Run, gate: Gate, person: Person) -> tuple[Gate | None, list[str]]:
    """Write one letter and record it. Returns the gate as it is then, None once it is decided, and what failed."""
    reason, failures, refused = why(gate, person.email), list[str](), False
    about = {"to": person.email} if reason == "asked" else {"to": person.email, "why": reason}
    note = Note("gate_mailed", gate.path, None, about)
    try:
        host.mail.send(host.letters(gate, run, person, values.load(gate.show, host.blobs) or {}))
    except StepFailure as failure:
        failures, refused = [str(failure)], isinstance(failure, PermanentFailure)
        note = Note("gate_mail_failed", gate.path, None, {**about, "error": str(failure)[:300]})

    def decide(again: Snapshot) -> Change[Gate | None]:
        known = again.gate(gate.path)
        if known is None or again.head.ended:
            return Change(None)
        owed = person.email in untold(known)
        if person.email in known.mailed and not owed:
            return Change(known)
        # What was changed meanwhile, this letter has not said. An address that is refused for good is not tried again.
        stale = (known.id, known.digest) != (gate.id, gate.digest)
        done = not stale and (not failures or (refused and owed))
        after = told(known, person.email, asked=not failures) if done else known
        return Change(after, (after,) if done else (), (note,))

    known = journal.transact(journal.read([gate.sk]), decide)[0]
    return known if known and known.status == "open" else None, failures
