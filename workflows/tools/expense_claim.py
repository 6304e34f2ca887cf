"""Tools of expense claims: the house's policy as plain arithmetic, the payment and its booking."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.errors import PermanentFailure
from shared.tools.registry import Call, tool
from workflows.tools._office import Document, record

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = {"hotel": Decimal(180), "meal": Decimal(45), "taxi": Decimal(60), "train": Decimal(250), "other": Decimal(50)}
"""The most that one expense of a category may cost without a question, in the claim's currency."""


class Expense(TypedDict):
    """One expense; ``date`` as YYYY-MM-DD."""

    date: str
    category: str
    description: str
    amount: float


class Checked(TypedDict):
    """The claim's total, and what a manager should look at."""

    total: float
    findings: list[str]


@tool
def check_expenses(expenses: list[Expense]) -> Checked:
    """Compare a claim with the policy. Raises PermanentFailure for a claim that cannot be right."""
    wrong = [told for one in expenses for told in _impossible(one)]
    if wrong:
        raise PermanentFailure(f"The claim cannot be right: {'; '.join(wrong)}. Ask for a correct one.")
    total = sum((_money(one) for one in expenses), Decimal(0))
    return {"total": float(total), "findings": [*_above_limits(expenses), *_twice(expenses)]}


@tool
def reimburse(employee: str, amount: float, currency: str, *, call: Call) -> Document:
    """Pay an employee with the next salary. Raises StepFailure subclasses as ``_office.request`` does."""
    return record("reimbursement", {"employee": employee, "amount": amount, "currency": currency}, call)


@tool
def book_expenses(payment: str, cost_centre: str, amount: float, *, call: Call) -> Document:
    """Book a payment on a cost centre. Raises StepFailure subclasses as ``_office.request`` does."""
    return record("booking", {"payment": payment, "cost_centre": cost_centre, "amount": amount}, call)


def _impossible(one: Expense) -> Iterator[str]:
    if one["amount"] <= 0:
        yield f"{one['description']} costs {_money(one)}"
    try:
        date.fromisoformat(one["date"])
    except ValueError:
        yield f"{one['description']} has no date but {one['date']!r}"


def _above_limits(expenses: list[Expense]) -> Iterator[str]:
    for one in expenses:
        limit = LIMITS.get(one["category"], LIMITS["other"])
        if _money(one) > limit:
            yield f"{one['description']}: {_money(one)} is more than {limit} for {one['category']}"


def _twice(expenses: list[Expense]) -> Iterator[str]:
    seen: set[tuple[str, str, float]] = set()
    for one in expenses:
        same = (one["date"], one["category"], one["amount"])
        if same in seen:
            yield f"{one['description']}: the same amount was claimed twice for {one['date']}"
        seen.add(same)


def _money(one: Expense) -> Decimal:
    return Decimal(str(one["amount"])).quantize(Decimal("0.01"))
