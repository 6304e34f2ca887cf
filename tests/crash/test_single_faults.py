"""Every single fault at every call of a run, on every main route."""

from __future__ import annotations

import pytest
from faults import KINDS, Tap
from routes import ROUTES, calls_of, plans_of

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
    assert far_side.live == done(route, play)


def done(route, play):
    """Return how many effects stand, by the records of the run and its parts."""
    world = play.world
    if world.unit.manifest.slots or any(plan.split or plan.apart for plan in plans_of(world)):
        steps = [step for run in play.runs() for step in play.seen(run).records.steps()]
        return sum(
            step.status == "completed" and step.call is not None and step.step != "bad"
            for step in steps
            if not step.path.endswith("/compensate")
        )
    step = world.records.step("pay" if route == "pay" else "post")
    assert route == "pay" or (world.head.ended == "completed") == (step is not None and step.status == "completed")
    return step is not None and step.status == "completed"
