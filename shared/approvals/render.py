"""From a visit to HTML: what the page says, and the headers under which it travels."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from shared import values
from shared.api.problems import WrongMethod
from shared.api.web import Response
from shared.approvals.changes import fields
from shared.approvals.show import (
    RISKS,
    asked,
    counted,
    exact,
    groups,
    moment,
    money,
    one_line,
    person_of,
    remaining,
    rows,
    templates,
    visible,
)
from shared.budget.rules import NANO
from shared.runtime import tiers, views
from shared.runtime.votes import EXPIRY, voted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.approvals.forms import Form
    from shared.approvals.pages import Visit
    from shared.errors import RequestRefused

_HTML = "text/html; charset=utf-8"
_TITLES = {
    400: "That could not be read",
    403: "Not for you to decide",
    404: "This link leads nowhere",
    405: "Not possible here",
    410: "This link has expired",
    413: "That is too long",
    415: "That could not be read",
    500: "Something went wrong",
    503: "One moment, please",
}


def notice_page(refused: RequestRefused) -> Response:
    """Return a page that says why there is nothing to decide."""
    facts = {"title": _TITLES.get(refused.status, "Not possible"), "text": visible(refused.detail)}
    headers = {"allow": refused.allowed} if isinstance(refused, WrongMethod) else {}
    return _page("notice.html", facts, refused.status).with_headers(headers)


def decision_page(
    visit: Visit, status: int, *, form: Form | None = None, faults: Mapping[str, str] | None = None
) -> Response:
    """Return the page of a gate: with its form while it can be decided, else with what was decided."""
    return _page("page.html", _facts(visit, form, faults or {}), status)


def _facts(visit: Visit, form: Form | None, faults: Mapping[str, str]) -> dict[str, Any]:
    gate, run = visit.gate, visit.seen.run
    return {
        "subject": visible(gate.subject),
        "state": _state(visit),
        "open": gate.status == "open" and not visit.over and gate.excluded != visit.person.email,
        "excluded": gate.excluded == visit.person.email,
        "person": visit.person,
        "asked": asked(gate, visit.host.approvers),
        "tier": gate.tier,
        "since": moment(gate.since),
        "next_tier": _next_tier(visit),
        "workflow": run.workflow,
        "version": run.version,
        "run": run.id,
        "path": gate.path,
        "initiator": one_line(run.initiator),
        "started": moment(run.created),
        "deadline": moment(gate.expires),
        "remaining": remaining(gate.expires - visit.now),
        "decision": _decision(visit),
        "action": _action(visit),
        "shown": _shown(visit),
        "budget": _budget(visit),
        "digest": gate.digest,
        **_approvals(visit),
        "fields": _fields(visit, form),
        "changed": rows(values.load(gate.changes, visit.host.blobs)),
        "form": {"signature": form.signature[:200] if form else "", "note": form.note if form else ""},
        "faults": dict(faults),
    }


def _next_tier(visit: Visit) -> dict[str, Any] | None:
    found = None if visit.over else tiers.next_tier(visit.gate)
    return {"at": moment(found[0]), "roles": found[1]} if found else None


def _approvals(visit: Visit) -> dict[str, Any]:
    """Return how many must approve, and who has."""
    gate = visit.gate
    votes = [
        {"by": _name(visit, vote["by"]), "at": moment(vote["at"]), "note": visible(vote["note"])} for vote in gate.votes
    ]
    return {"quorum": gate.quorum, "count": counted(gate), "votes": votes, "voted": voted(gate, visit.person.email)}


def _fields(visit: Visit, form: Form | None) -> list[dict[str, Any]]:
    """Return the fields in which arguments may be changed; what was typed only where it was about these arguments."""
    gate, blobs = visit.gate, visit.host.blobs
    if gate.edit is None or gate.status != "open":
        return []
    typed = form.typed if form and form.digest == gate.digest else dict[str, str]()
    known = fields(values.load(gate.edit, blobs), values.load(gate.arguments, blobs))
    return [{**asdict(one), "typed": typed.get(one.name, one.shown)} for one in known]


def _name(visit: Visit, email: str) -> str:
    person = person_of(email, visit.host.approvers)
    return person.name if person else one_line(email)


def _state(visit: Visit) -> str:
    """Return the gate's status as people see it: an open one whose time is over has expired."""
    if not visit.over:
        return visit.gate.status
    return "expired" if visit.now >= visit.gate.expires else "cancelled"


def _decision(visit: Visit) -> dict[str, Any] | None:
    gate = visit.gate
    if not gate.decided or not gate.by:
        return None
    name = "the workflow's rule for an expired request" if gate.by == EXPIRY else _name(visit, gate.by)
    return {"by": name, "at": moment(gate.decided), "note": visible(gate.note)}


def _action(visit: Visit) -> dict[str, Any] | None:
    gate = visit.gate
    if gate.approves is None or gate.arguments is None:
        return None
    arguments = values.load(gate.arguments, visit.host.blobs)
    return {
        "step": gate.approves,
        "tool": gate.tool,
        "risk": gate.risk,
        "risk_text": RISKS.get(gate.risk or "", ""),
        "rows": rows(arguments),
        "exact": exact(arguments),
        "digest": gate.digest,
    }


def _shown(visit: Visit) -> list[dict[str, Any]]:
    return groups(cast("dict[str, Any]", values.load(visit.gate.show, visit.host.blobs) or {}))


def _budget(visit: Visit) -> list[dict[str, Any]]:
    run, used = visit.seen.run, views.spent(visit.seen.steps())
    usd_share = _share(used.usd, run.limit_usd)
    return [
        {"name": "Cost", "used": money(_cents(used.usd)), "limit": _usd_limit(run.limit_usd), "share": usd_share},
        _used("Tokens", used.tokens, run.limit_tokens),
        _used("Steps", used.steps, run.limit_steps),
    ]


def _used(name: str, used: int, limit: int | None) -> dict[str, Any]:
    return {
        "name": name,
        "used": f"{used:,}",
        "limit": "no limit" if limit is None else f"of {limit:,}",
        "share": _share(used, limit),
    }


def _usd_limit(limit: int | None) -> str:
    return "no limit" if limit is None else f"of {money(_cents(limit))}"


def _cents(nano: int) -> str:
    """Return an amount of USD to the ten-thousandth: enough to judge a run's cost by."""
    return views.usd(round(nano, -5)) or f"{nano / NANO:.4f}"


def _share(used: int, limit: int | None) -> int | None:
    """Return how much of a limit is used, in percent."""
    return None if not limit else max(0, min(100, round(100 * used / limit)))


@cache
def _style() -> tuple[str, str]:
    """Return the style sheet and its hash, by which the page's policy allows it and no other."""
    css = templates().get_template("style.css").render()
    return css, base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()


def _page(template: str, facts: dict[str, Any], status: int) -> Response:
    css, digest = _style()
    body = templates().get_template(template).render(**facts, css=css)
    return Response(status, body, _HTML, _headers(digest))


def _headers(style: str) -> dict[str, str]:
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    return {
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
        "strict-transport-security": "max-age=63072000; includeSubDomains",
        "x-robots-tag": "noindex, nofollow, noarchive",
    }
