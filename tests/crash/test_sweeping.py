"""Single faults at every call of a run whose table's stream and ended executions nobody hears of.

Only the sweeper heals, and the faults strike at its own calls too. A share of them, another one every day.
"""

from __future__ import annotations

import pytest
from faults import KINDS, Tap
from matrix import Fault, done, goes_out_again, letters_wrong
from routes import ROUTES, calls_of, made
from test_pairs import SHARE

SHARES = 6
ALL = [
    (route, number, call, kind)
    for route in ROUTES
    for number, call in enumerate(calls_of(route, "sweep"))
    for kind in KINDS[call]
    if kind != "own write"
]
CASES = ALL[SHARE % SHARES :: SHARES]


@pytest.mark.parametrize(("route", "number", "call", "kind"), CASES)
def test_the_sweeper_alone_brings_every_run_to_its_end(route, number, call, kind):
    play, far_side = made(route, Tap(number, kind), ("sweep",))
    world = play.to_the_end()
    if not world.run:
        assert number == 0
        return
    expected = {ROUTES[route].ends} | ({"cancelled"} if kind == "cancel" else set())
    assert world.head.ended in expected, world.head
    # A run that is cancelled in a later epoch leaves parts that have failed in an earlier one as they are.
    expected |= {"failed"} if play.resumes and kind == "cancel" else set()
    assert far_side.live == done(play)
    assert letters_wrong(play, goes_out_again(play, Fault(number, kind))) is None
    assert {play.seen(run).records.run.state for run in play.runs()} <= {*expected, "completed", "stopped"}
