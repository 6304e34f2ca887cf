"""Tools of customer support: what the house allows, and the reply."""

from __future__ import annotations

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.tools.registry import Call, tool
from workflows.tools._office import Document, record

RULES = {
    "delivery": "Say when it will arrive. If it is more than ten days late, offer a refund of the postage.",
    "refund": "Unused goods can be returned within 30 days. The money comes back within five working days.",
    "product": "Answer from the manual only. If it is not there, promise an answer within two working days.",
    "complaint": "Apologise once. Offer a replacement or a refund, and let the customer choose.",
}
"""What may be promised, by topic; a real deployment would read this from where the support team keeps it."""


class HouseRule(TypedDict):
    """What may be promised to a customer."""

    rule: str


@tool
def support_rule(topic: str) -> HouseRule:
    """Return the house's rule about a topic; without one, nothing may be promised."""
    return {"rule": RULES.get(topic, "Promise nothing. Say that somebody will get in touch within two working days.")}


@tool
def send_reply(customer: str, subject: str, body: str, *, call: Call) -> Document:
    """Send a reply to a customer. Raises StepFailure subclasses as ``_office.request`` does."""
    return record("reply", {"customer": customer, "subject": subject, "body": body}, call)
