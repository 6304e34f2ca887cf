"""The approval page: GET and HEAD show and decide nothing; POST decides once, for the person the link is for."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.api.problems import WrongMethod
from shared.api.web import head_of, parse_event
from shared.approvals import forms, links
from shared.approvals.changes import PREFIX, read
from shared.approvals.render import decision_page, notice_page
from shared.approvals.show import person_of
from shared.errors import Conflict, Forbidden, NotFound, RequestRefused, TransientFailure, UnfitChanges
from shared.runtime.votes import voted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.api.web import Request, Response
    from shared.approvals.forms import Form
    from shared.approvals.host import ApprovalsHost
    from shared.ledger.records import Gate
    from shared.runtime.gates import Decision
    from shared.runtime.journal import Journal, Snapshot
    from shared.settings import Person

LOG = logging.getLogger("signalbox")
_DECISIONS: dict[str, Decision] = {"approve": "approved", "edit": "approved", "reject": "rejected"}
_OVER = 410


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at the page: who looks, at which gate of which run, as it was read at ``now`` (ms)."""

    host: ApprovalsHost
    person: Person
    journal: Journal
    seen: Snapshot
    gate: Gate
    now: int

    @property
    def over(self) -> bool:
        """Nothing can be decided any more although nobody has decided."""
        head = self.seen.head
        return self.gate.status == "open" and bool(self.now >= self.gate.expires or head.ended or head.unwinding)


def respond(make_host: Callable[[], ApprovalsHost], event: Mapping[str, Any]) -> Response:
    """Answer an HTTP API event with a page. Never raises."""
    request = head_of(event)
    try:
        page = answer(make_host(), parse_event(event, limit=forms.MAX_FORM))
    except RequestRefused as refused:
        page = notice_page(refused)
    except TransientFailure:
        LOG.warning("busy", exc_info=True, extra={"correlation_id": request.id})
        page = notice_page(Busy("Too much is happening at once. Please try again in a moment."))
    except Exception:  # the outermost boundary: people get a page, whatever happened
        LOG.exception("unexpected error", extra={"correlation_id": request.id})
        page = notice_page(Broken(f"Open the link again to see where the request stands. Reference: {request.id}"))
    return page.without_body() if request.method == "HEAD" else page


class Busy(RequestRefused):
    """Writers compete; a moment later it works."""

    status = 503
    code = "unavailable"


class Superseded(RequestRefused):
    """The link is genuine, and what it asked for is asked once more, by another mail."""

    status = 410
    code = "superseded"


class Broken(RequestRefused):
    """An error that nobody foresaw."""

    status = 500
    code = "internal"


def answer(host: ApprovalsHost, request: Request) -> Response:
    """Answer a request for the page. Raises RequestRefused."""
    if request.method not in {"GET", "HEAD", "POST"}:
        raise WrongMethod(request.method, ("GET", "HEAD", "POST"))
    visit = _visit(host, request.path.rsplit("/", 1)[-1])
    if request.method == "POST":
        forms.check_origin(request)
        return _decide(visit, forms.parse(request))
    return decision_page(visit, _status(visit))


def _visit(host: ApprovalsHost, token: str) -> Visit:
    """Return the visit that a link stands for. Raises NotFound, LinkExpired, Superseded or Forbidden."""
    now = host.clock.now()
    link = links.verify(token, (host.link_key, *host.older_keys), now)
    from shared.runtime.denials import request_id  # noqa: PLC0415 - a link that is not ours needs no runtime
    from shared.runtime.journal import Journal  # noqa: PLC0415 - likewise

    journal = Journal(host.store, host.clock, link.tenant, link.run)
    seen = journal.read_all()
    gate = seen.gate(link.path)
    if gate is None:
        raise NotFound("There is nothing to decide here any more.", code="unknown_gate")
    person = _recipient(host, gate, link.email)
    if gate.id != (link.request or request_id(link.run, link.path)):
        raise Superseded("This is asked once more, for another call. The link in the newest mail leads there.")
    return Visit(host, person, journal, seen, gate, now)


def _recipient(host: ApprovalsHost, gate: Gate, email: str) -> Person:
    """Return the link's recipient, if they are still among those who may decide. Raises Forbidden."""
    people = {role: host.approvers.get(role, ()) for role in gate.roles}
    person = person_of(email, people)
    if person is None:
        raise Forbidden(f"{email} is no longer among those who decide this.", code="not_an_approver")
    return person


def _status(visit: Visit) -> int:
    return _OVER if visit.over or visit.gate.status in {"expired", "cancelled"} else 200


def _decide(visit: Visit, form: Form) -> Response:
    """Record the decision of a signed form, or show the page again with what is missing."""
    changes, faults = _changes(visit, form)
    if _repeats(visit, form, changes):
        return _record(visit, replace(form, decision="approve", digest=visit.gate.digest), {})
    if visit.gate.status != "open" or visit.over:
        return _late(visit, form)
    faults = _faults(visit, form, changes) | {f"{PREFIX}{name}": told for name, told in faults.items()}
    if faults:
        return decision_page(visit, 422, form=form, faults=faults)
    return _record(visit, form, changes)


def _changes(visit: Visit, form: Form) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what was changed on the page, as it stands now, and what of it cannot be read, by argument."""
    if visit.gate.edit is None or form.decision == "reject":
        return {}, {}
    blobs = visit.host.blobs
    return read(values.load(visit.gate.edit, blobs), values.load(visit.gate.arguments, blobs), form.typed)


def _repeats(visit: Visit, form: Form, changes: Mapping[str, Any]) -> bool:
    """Tell whether the form was sent before: what it changes stands so already, approved by the same person."""
    gate = visit.gate
    again = form.decision == "edit" and form.digest == gate.edited and not changes and bool(form.typed)
    return again and gate.status in {"open", "approved"} and voted(gate, visit.person.email)


def _late(visit: Visit, form: Form) -> Response:
    """Answer a form that comes after the decision: repeating one's own is no conflict, and sends the answer again."""
    if visit.gate.status == _DECISIONS.get(form.decision) and form.decision != "edit":
        theirs = visit.gate.by == visit.person.email or voted(visit.gate, visit.person.email)
        if theirs:
            return _record(visit, form, {})
    return decision_page(visit, max(_status(visit), 409))


def _faults(visit: Visit, form: Form, changes: Mapping[str, Any]) -> dict[str, str]:
    """Return what keeps the form from being a decision, by field."""
    faults: dict[str, str] = {}
    if form.decision not in _DECISIONS or (form.decision == "edit" and visit.gate.edit is None):
        faults["decision"] = "Choose Approve or Reject."
    elif form.digest == visit.gate.digest and form.decision == "edit" and not changes:
        faults["decision"] = "Nothing was changed. Change something, or choose Approve."
    elif form.digest == visit.gate.digest and form.decision == "approve" and changes:
        names = ", ".join(changes)
        faults["decision"] = f"You have changed {names}. Choose Approve with changes, or put back what was there."
    if not forms.is_signed(form, visit.person):
        given = "That is not" if form.signature.strip() else "Type"
        faults["signature"] = f"{given} your name or your initials as they are on record for {visit.person.email}."
    if len(form.note) > forms.NOTE_LIMIT:
        faults["note"] = f"The note has {len(form.note)} characters; {forms.NOTE_LIMIT} fit."
    return faults


def _record(visit: Visit, form: Form, changes: Mapping[str, Any]) -> Response:
    from shared.runtime.gates import Word, decide_gate  # noqa: PLC0415 - looking at the page does not need it

    # Without the digest of what was shown nothing is bound: a missing field must not pass for agreement.
    edit = changes if form.decision == "edit" else None
    decision, email = _DECISIONS[form.decision], visit.person.email
    word = Word(decision, email, form.note.strip(), form.digest or "", visit.gate.id, edit)
    try:
        decide_gate(visit.host, visit.journal, visit.gate.path, word)
    except UnfitChanges as unfit:
        return decision_page(visit, 422, form=form, faults={f"{PREFIX}{unfit.field}": unfit.told})
    except Conflict as conflict:
        faults = {"digest": conflict.detail} if conflict.problem == "digest_mismatch" else {}
        again = _again(visit)
        return decision_page(again, max(_status(again), 409), form=form, faults=faults)
    return decision_page(_again(visit), 200)


def _again(visit: Visit) -> Visit:
    seen = visit.journal.read_all()
    gate = seen.gate(visit.gate.path) or visit.gate
    return Visit(visit.host, visit.person, visit.journal, seen, gate, visit.host.clock.now())
