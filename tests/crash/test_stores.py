"""Single faults on the product's own stores: SQLite's file, and DynamoDB as moto plays it. A share, another every day.

The other tests of this folder run on the fake in memory, which makes the same promises (``tests/unit/stores.py``).
"""

from __future__ import annotations

import pytest
from matrix import violation
from stores import STORES, worlds_on
from test_pairs import SHARE
from test_single_faults import CASES

SHARES = {"sqlite": 12, "dynamodb": 240}
"""How many shares make all of it; a transaction on moto takes a hundred times as long as one in memory."""


def share(store: str) -> list[tuple[str, str, object]]:
    """Return today's cases on a store."""
    return [(store, *case) for case in CASES[SHARE % SHARES[store] :: SHARES[store]]]


@pytest.mark.parametrize(("store", "route", "fault"), [case for store in STORES for case in share(store)], ids=str)
def test_a_single_fault_is_survived_on_the_products_stores(store, route, fault):
    with worlds_on(store):
        found = violation(route, fault)
    assert found is None, f"SIGNALBOX_PAIRS_SHARE={SHARE}: {found}"
