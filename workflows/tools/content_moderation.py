"""Tools of content moderation: a post becomes visible, or stays hidden with the reason."""

from __future__ import annotations

from shared.tools.registry import Call, tool
from workflows.tools._office import Document, record


@tool
def publish_post(post: str, *, call: Call) -> Document:
    """Make a post visible to everybody. Raises StepFailure subclasses as ``_office.request`` does."""
    return record("published", {"post": post}, call)


@tool
def hide_post(post: str, reason: str, *, call: Call) -> Document:
    """Hide a post from everybody but its author, who is told why. Raises as ``publish_post`` does."""
    return record("hidden", {"post": post, "reason": reason}, call)
