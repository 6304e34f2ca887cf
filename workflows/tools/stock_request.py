"""Tools of the warehouse: what there is, and reservations."""

from __future__ import annotations

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.errors import PermanentFailure
from shared.tools.registry import Call, tool
from workflows.tools._office import Document, record

STOCK = {"P-100": ("printer paper", 40), "C-210": ("desk chair", 2), "L-330": ("desk lamp", 0)}
"""Articles by number, with how many there are; a real deployment would ask the warehouse."""


class Article(TypedDict):
    """An article of the warehouse."""

    number: str
    name: str
    stock: int


@tool
def find_article(words: str) -> list[Article]:
    """Find articles whose names have one of these words, with how many there are."""
    wanted = set(words.casefold().split())
    found = [(number, *row) for number, row in STOCK.items() if wanted & set(row[0].split())]
    return [{"number": number, "name": name, "stock": stock} for number, name, stock in found]


@tool
def reserve_article(number: str, quantity: int, *, call: Call) -> Document:
    """Reserve so many of an article. Raises StepFailure subclasses as ``_office.request`` does."""
    if not 0 < quantity <= STOCK.get(number, ("", 0))[1]:
        raise PermanentFailure(f"There are not {quantity} of {number} in the warehouse.")
    return record("reservation", {"number": number, "quantity": quantity}, call)
