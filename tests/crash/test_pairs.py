"""A share of all pairs of faults, another one every day. ``./scripts/crash --pairs`` plays them all."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime

import pytest
from faults import CALLS
from matrix import Fault, seconds, singles, violation
from routes import ROUTES, calls_of

SHARE = int(os.environ.get("SIGNALBOX_PAIRS_SHARE") or datetime.now(UTC).toordinal())
"""Which share; a failure names it, so that it can be played again."""
FIRSTS, SECONDS = 3, 5
"""First faults of a route, and second ones after each."""


def test_a_process_that_stalls_after_a_lost_call_makes_none_that_a_person_is_asked_about():
    """A process that was given up before it opened once made the call, while its approval was asked for once more."""
    route = "pay, denied"
    call = calls_of(route).index("invoke")
    lost = [Fault(number, kind) for number in (call - 1, call) for kind in CALLS]
    pairs = [(first, second) for first in lost for second in seconds(route, first) if second.kind == "stalls"]
    assert len(pairs) > 2 * len(lost)
    for pair in pairs:
        assert violation(route, *pair) is None, pair


@pytest.mark.parametrize("route", ROUTES)
def test_two_faults_are_survived(route):
    chance = random.Random(f"{SHARE} {route}")  # noqa: S311 - a choice of tests
    for first in chance.sample(singles(route), FIRSTS):
        after = seconds(route, first)
        for second in chance.sample(after, min(SECONDS, len(after))):
            found = violation(route, first, second)
            assert found is None, f"SIGNALBOX_PAIRS_SHARE={SHARE}, {route}, {first}, {second}: {found}"
