"""Every single fault at every call of a run, on every main route."""

from __future__ import annotations

import pytest
from matrix import singles, violation
from routes import ROUTES

CASES = [(route, fault) for route in ROUTES for fault in singles(route)]
STRUCK = sorted({(route, fault.kind) for route, fault in CASES})


@pytest.mark.parametrize(("route", "kind"), STRUCK)
def test_a_single_fault_is_survived(route, kind):
    struck = [fault for fault in singles(route) if fault.kind == kind]
    found = {fault.number: wrong for fault in struck if (wrong := violation(route, fault))}
    assert not found, f"{kind} at these calls"
