"""Plausibility of an invoice: pure arithmetic, no external call."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from shared.errors import PermanentFailure
from shared.tools.registry import tool

if TYPE_CHECKING:
    from collections.abc import Iterator

CURRENCIES = frozenset(
    {"AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HUF", "INR", "JPY", "MXN", "NOK", "NZD", "PLN"}
    | {"RON", "SEK", "SGD", "USD", "ZAR"}
)
"""ISO 4217 codes that the accounts department pays in."""
TOLERANCE = Decimal("0.02")
"""Sums may differ by this much, since invoices round line by line."""


class Line(TypedDict):
    """One position of an invoice; ``total`` before tax."""

    description: str
    total: float


class Verdict(TypedDict):
    """What was checked: the number of positions and the days from invoice to payment."""

    positions: int
    days: int


@tool
def check_invoice(  # noqa: PLR0913 - an invoice has these fields
    *,
    vendor: str,
    number: str,
    issued: str,
    due: str,
    currency: str,
    net: float,
    tax: float,
    amount: float,
    lines: list[Line],
) -> Verdict:
    """Check that an invoice can be right. Raises PermanentFailure that lists everything wrong with it."""
    dates, problems = _dates(issued, due)
    problems += _names(vendor, number, currency)
    problems += _sums([_money(net), _money(tax), _money(amount)], [_money(line["total"]) for line in lines])
    if problems:
        raise PermanentFailure(
            f"The invoice cannot be posted: {'; '.join(problems)}. Ask the vendor for a correct one."
        )
    return {"positions": len(lines), "days": (dates[1] - dates[0]).days}


def _names(vendor: str, number: str, currency: str) -> Iterator[str]:
    if not vendor.strip():
        yield "the vendor is missing"
    if not number.strip():
        yield "the invoice number is missing"
    if currency not in CURRENCIES:
        yield f"the currency {currency!r} is unknown"


def _dates(issued: str, due: str) -> tuple[list[date], list[str]]:
    dates: list[date] = []
    problems: list[str] = []
    for called, text in (("invoice date", issued), ("due date", due)):
        try:
            dates.append(date.fromisoformat(text))
        except ValueError:
            problems.append(f"the {called} {text!r} is not a date" if text else f"the {called} is missing")
    if not problems and dates[1] < dates[0]:
        problems.append(f"it is due on {due}, before its own date {issued}")
    return dates, problems


def _sums(totals: list[Decimal], lines: list[Decimal]) -> Iterator[str]:
    net, tax, amount = totals
    if amount <= 0:
        yield f"the amount {amount} is not positive"
    if tax < 0:
        yield f"the tax {tax} is negative"
    if not lines:
        yield "it has no positions"
    elif abs(sum(lines) - net) > TOLERANCE:
        yield f"its positions sum up to {sum(lines)}, not to the net total {net}"
    if abs(net + tax - amount) > TOLERANCE:
        yield f"net {net} and tax {tax} sum up to {net + tax}, not to {amount}"


def _money(value: float) -> Decimal:
    return Decimal(str(value)).quantize(Decimal("0.01"))
