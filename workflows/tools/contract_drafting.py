"""Tools of contract drafting: the finished contract goes on file."""

from __future__ import annotations

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.tools.registry import Call, tool
from workflows.tools._office import Document, record


class Clause(TypedDict):
    """One clause of a contract."""

    heading: str
    text: str


@tool
def file_contract(title: str, parties: list[str], clauses: list[Clause], *, call: Call) -> Document:
    """Put a contract on file, ready to be signed. Raises StepFailure subclasses as ``_office.request`` does."""
    return record("contract", {"title": title, "parties": parties, "clauses": clauses}, call)
