"""Deliveries that come twice, side by side, or long after: of every state of a run, on every main route."""

from __future__ import annotations

import pytest
from faults import Tap
from machine import Killed
from matrix import done
from routes import ROUTES


def deliveries_of(route):
    play, _ = ROUTES[route].make(Tap())
    return len(recorded(play))


def recorded(play, before=lambda _: None, after=lambda _: None):
    """Play the route to its end and return its deliveries, with something done before and after each."""
    call, seen = play.world.call, []

    def recording(function, event):
        if function is None:
            return None
        seen.append((function, event))
        before(seen)
        try:
            return call(function, event)
        finally:
            after(seen)

    play.world.call = recording
    play.again = lambda one: quietly(play, call, one)
    play.to_the_end()
    return seen


def quietly(play, call, one):
    """Deliver once more; the engine does not listen to the answer of a delivery that it has given up."""
    try:
        call(*one)
    except (Killed, Exception):  # noqa: BLE001 - nobody hears it
        return


def judge(route, play, far_side):
    assert play.world.head.ended == ROUTES[route].ends
    assert far_side.live == done(play)


CASES = [(route, number) for route in ROUTES for number in range(deliveries_of(route))]


@pytest.mark.parametrize(("route", "number"), CASES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_delivery_may_come_twice(route, number, when):
    play, far_side = ROUTES[route].make(Tap())

    def again(seen):
        if len(seen) == number + 1:
            play.again(seen[number])

    recorded(play, **{when: again})
    judge(route, play, far_side)


@pytest.mark.parametrize(("route", "number"), CASES)
def test_a_delivery_may_come_again_before_every_later_one(route, number):
    play, far_side = ROUTES[route].make(Tap())

    def again(seen):
        if len(seen) > number + 1:
            play.again(seen[number])

    recorded(play, before=again)
    judge(route, play, far_side)


@pytest.mark.parametrize("route", ROUTES)
def test_every_delivery_may_come_again_after_the_end(route):
    play, far_side = ROUTES[route].make(Tap())
    seen = recorded(play)
    before = play.world.head
    for one in seen:
        play.again(one)
    assert play.world.head == before, "what has ended does not change"
    judge(route, play, far_side)
