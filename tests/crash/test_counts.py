"""What tests/README says of the crash matrix is so."""

from __future__ import annotations

import re
from pathlib import Path

import test_deliveries
import test_orders
import test_reads
import test_single_faults
from routes import ROUTES
from test_sweeping import ALL

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def told(row: str) -> list[int]:
    """Return the numbers of a row of the table."""
    line = next(line for line in README.splitlines() if line.startswith(f"| {row}"))
    return [int(number.replace(",", "")) for number in re.findall(r"\b\d[\d,]*", line)]


def test_the_single_faults_are_as_many_as_it_says():
    assert told("single faults") == [len(ROUTES), len(test_single_faults.CASES)]


def test_the_faults_that_the_sweeper_heals_are_as_many_as_it_says():
    assert len(ALL) in told("the same where only the sweeper heals")


def test_the_reads_are_as_many_as_it_says():
    assert len(test_reads.cases()) in told("reads and stored values")


def test_the_deliveries_are_as_many_as_it_says():
    assert told("deliveries twice") == [3 * len(test_deliveries.CASES) + len(ROUTES)]


def test_the_orders_are_as_many_as_it_says():
    kinds = len(ROUTES) * len(test_orders.MOODS)
    assert told("orders of everybody's calls") == [8, 8 * kinds, 102, 102 * kinds]
