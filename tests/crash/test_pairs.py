"""A share of all pairs of faults, another one every day. ``./scripts/crash --pairs`` plays them all."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime

import pytest
from matrix import seconds, singles, violation
from routes import ROUTES

SHARE = int(os.environ.get("SIGNALBOX_PAIRS_SHARE") or datetime.now(UTC).toordinal())
"""Which share; a failure names it, so that it can be played again."""
FIRSTS, SECONDS = 3, 5
"""First faults of a route, and second ones after each."""


@pytest.mark.parametrize("route", ROUTES)
def test_two_faults_are_survived(route):
    chance = random.Random(f"{SHARE} {route}")  # noqa: S311 - a choice of tests
    for first in chance.sample(singles(route), FIRSTS):
        after = seconds(route, first)
        for second in chance.sample(after, min(SECONDS, len(after))):
            found = violation(route, first, second)
            assert found is None, f"SIGNALBOX_PAIRS_SHARE={SHARE}, {route}, {first}, {second}: {found}"
