"""Every single fault at every call of a run, on every main route."""

from __future__ import annotations

import pytest
from matrix import singles, violation
from routes import ROUTES

CASES = [(route, fault) for route in ROUTES for fault in singles(route)]


@pytest.mark.parametrize(("route", "fault"), CASES, ids=str)
def test_a_single_fault_is_survived(route, fault):
    assert violation(route, fault) is None
