"""Tools of document processing: a reading that cannot be right is refused. Pure, no external call."""

from __future__ import annotations

from datetime import date

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.errors import PermanentFailure
from shared.tools.registry import tool


class Reading(TypedDict):
    """A reading that may be filed; ``year`` is 0 for a document without a date."""

    title: str
    year: int


@tool
def check_reading(kind: str, title: str, dated: str) -> Reading:
    """Check what was read from a document. Raises PermanentFailure for one that cannot be filed."""
    if kind == "illegible":
        raise PermanentFailure("The document cannot be read. Scan it again.")
    if not title.strip():
        raise PermanentFailure("The document has no title. Look at it, and file it by hand.")
    return {"title": title.strip(), "year": _year(dated)}


def _year(dated: str) -> int:
    if not dated:
        return 0
    try:
        return date.fromisoformat(dated).year
    except ValueError:
        raise PermanentFailure(f"The document's date {dated!r} is none. Look at it, and file it by hand.") from None
