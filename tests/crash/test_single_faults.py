"""Every single fault at every call of a run, on every main route."""

from __future__ import annotations

import pytest
from faults import KINDS, Tap
from routes import ROUTES, calls_of

CASES = [
    (route, number, call, kind)
    for route in ROUTES
    for number, call in enumerate(calls_of(route))
    for kind in KINDS[call]
]


@pytest.mark.parametrize(("route", "number", "call", "kind"), CASES)
def test_a_single_fault_is_survived(route, number, call, kind):
    play, far_side = ROUTES[route].make(Tap(number, kind))
    world = play.to_the_end()
    if not world.run:
        assert number == 0
        return
    expected = {ROUTES[route].ends} | ({"cancelled"} if kind == "cancel" else set())
    assert world.head.ended in expected, world.head
    assert far_side.live == done(route, world)


def done(route, world):
    """Tell whether the effect stands, by the run's own record."""
    step = world.records.step("pay" if route == "pay" else "post")
    assert route == "pay" or (world.head.ended == "completed") == (step is not None and step.status == "completed")
    return step is not None and step.status == "completed"
