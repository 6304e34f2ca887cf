"""Tools of recruitment: the invitation, the offer and the account for the first day."""

from __future__ import annotations

from shared.tools.registry import Call, tool
from workflows.tools._office import Document, record


@tool
def invite(candidate: str, email: str, position: str, *, call: Call) -> Document:
    """Invite a candidate to choose a day. Raises StepFailure subclasses as ``_office.request`` does."""
    return record("invitation", {"candidate": candidate, "email": email, "position": position}, call)


@tool
def send_offer(candidate: str, email: str, position: str, salary: float, *, call: Call) -> Document:
    """Send a binding offer; ``salary`` a year. Raises as ``invite`` does."""
    fields = {"candidate": candidate, "email": email, "position": position, "salary": salary}
    return record("offer", fields, call)


@tool
def open_account(candidate: str, starts: str, *, call: Call) -> Document:
    """Open an account that works from the first day. Raises as ``invite`` does."""
    return record("account", {"candidate": candidate, "starts": starts}, call)
