"""A share of all pairs of faults, another one every day. ``./scripts/crash --pairs`` plays them all."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime

import pytest
from matrix import Fault, seconds, singles, violation
from routes import ROUTES

SHARE = int(os.environ.get("SIGNALBOX_PAIRS_SHARE") or datetime.now(UTC).toordinal())
"""Which share; a failure names it, so that it can be played again."""
FIRSTS, SECONDS = 3, 5
"""First faults of a route, and second ones after each."""

FOUND = (
    # A process that was given up before it opened made the call, while a person was asked to approve it once more.
    ("pay, denied", (11, "answer lost"), (18, "stalls")),
    ("pay, denied", (11, "killed after"), (18, "stalls")),
    ("pay, denied", (12, "fails"), (20, "stalls")),
    ("pay, denied", (12, "killed before"), (19, "stalls")),
)
"""Pairs that once broke a promise."""


@pytest.mark.parametrize(("route", "first", "second"), FOUND)
def test_what_once_went_wrong_does_not_any_more(route, first, second):
    assert violation(route, Fault(*first), Fault(*second)) is None


@pytest.mark.parametrize("route", ROUTES)
def test_two_faults_are_survived(route):
    chance = random.Random(f"{SHARE} {route}")  # noqa: S311 - a choice of tests
    for first in chance.sample(singles(route), FIRSTS):
        after = seconds(route, first)
        for second in chance.sample(after, min(SECONDS, len(after))):
            found = violation(route, first, second)
            assert found is None, f"SIGNALBOX_PAIRS_SHARE={SHARE}, {route}, {first}, {second}: {found}"
