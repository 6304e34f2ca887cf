"""Tools of procurement: what the purchasing department knows of a vendor, and the order."""

from __future__ import annotations

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.tools.registry import Call, tool
from workflows.tools._office import Document, record

VENDORS = {"contoso office supplies": 2014, "nordlicht gebäudereinigung": 2019, "aurora sistemas": 2022}
"""Vendors and the year of the first order; a real deployment would ask the ERP system."""
BLOCKED = {"fabrikam training": "Two deliveries paid in advance never came."}
"""Vendors that nothing is ordered from, and why."""


class VendorFacts(TypedDict):
    """What is known of a vendor; ``since`` is 0 for an unknown one, ``blocked`` the reason, empty if there is none."""

    since: int
    blocked: str


@tool
def find_vendor(vendor: str) -> VendorFacts:
    """Look a vendor up; case, legal form and punctuation do not matter."""
    name = " ".join(vendor.casefold().replace(".", " ").replace(",", " ").split())

    def known(entry: str) -> bool:
        return name == entry or name.startswith(f"{entry} ")

    since = next((year for entry, year in VENDORS.items() if known(entry)), 0)
    return {"since": since, "blocked": next((why for entry, why in BLOCKED.items() if known(entry)), "")}


@tool
def place_order(vendor: str, article: str, quantity: int, total: float, *, call: Call) -> Document:
    """Order something. Raises StepFailure subclasses as ``_office.request`` does."""
    return record("order", {"vendor": vendor, "article": article, "quantity": quantity, "total": total}, call)
