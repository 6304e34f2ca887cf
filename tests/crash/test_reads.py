"""Single faults at what only reads or stores values, and busy far sides. A share of them, another one every day."""

from __future__ import annotations

from functools import cache

import pytest
from faults import READS, Tap
from matrix import Fault, judged
from routes import ROUTES
from test_pairs import SHARE

SHARES = 12


@cache
def cases() -> list[tuple[str, Fault]]:
    """Return all of them."""
    found: list[tuple[str, Fault]] = []
    for route in ROUTES:
        play, _ = ROUTES[route].make(tap := Tap(kinds=READS))
        play.to_the_end()
        found += [(route, Fault(number, kind)) for number, call in enumerate(tap.calls) for kind in READS[call]]
    return found


@pytest.mark.parametrize("route", ROUTES)
def test_a_read_that_fails_and_a_far_side_that_is_busy_are_survived(route):
    for name, fault in cases()[SHARE % SHARES :: SHARES]:
        if name == route:
            found = judged(route, Tap(*fault, kinds=READS), fault)
            assert found is None, f"SIGNALBOX_PAIRS_SHARE={SHARE}, {route}, {fault}: {found}"
