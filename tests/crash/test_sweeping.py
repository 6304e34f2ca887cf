"""Single faults at every call of a run whose table's stream and ended executions nobody hears of.

Only the sweeper heals, and the faults strike at its own calls too.
"""

from __future__ import annotations

import pytest
from faults import KINDS, Tap
from matrix import Fault, done, goes_out_again, letters_wrong
from routes import ROUTES, calls_of, made

ALL = [
    (route, number, kind)
    for route in ROUTES
    for number, call in enumerate(calls_of(route, "sweep"))
    for kind in KINDS[call]
    if kind != "own write"
]
STRUCK = sorted({(route, kind) for route, _, kind in ALL})


@pytest.mark.parametrize(("route", "kind"), STRUCK)
def test_the_sweeper_alone_brings_every_run_to_its_end(route, kind):
    for number in (number for where, number, what in ALL if (where, what) == (route, kind)):
        judge(route, number, kind)


def judge(route, number, kind):
    play, far_side = made(route, Tap(number, kind), ("sweep",))
    world = play.to_the_end()
    if not world.run:
        assert number == 0
        return
    struck = f"{kind} at call {number}"
    expected = {ROUTES[route].ends} | ({"cancelled"} if kind == "cancel" else set())
    assert world.head.ended in expected, f"{struck}: {world.head}"
    # A run that is cancelled in a later epoch leaves parts that have failed in an earlier one as they are.
    expected |= {"failed"} if play.resumes and kind == "cancel" else set()
    assert far_side.live == done(play), struck
    assert letters_wrong(play, goes_out_again(play, Fault(number, kind))) is None, struck
    assert {play.seen(run).records.run.state for run in play.runs()} <= {*expected, "completed", "stopped"}, struck
