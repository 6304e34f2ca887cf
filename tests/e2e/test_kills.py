"""Worker processes of the local cloud killed with -9, its executions stopped: nothing lost, nothing twice."""

from __future__ import annotations

import pytest
from kill_cloud import at_each_call, at_random, killed_and_stopped, killing_cloud, stopped

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SECONDS = 5


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with killing_cloud(tmp_path_factory.mktemp("kills")) as made:
        yield made


def test_a_worker_killed_at_any_call_loses_nothing_and_repeats_nothing(cloud):
    tally = at_each_call(cloud, plain=("after",), gated=("before", "after"))
    assert not tally.violations, "\n".join(tally.violations)
    assert tally.kills >= (tally.runs - 2) * 0.7, "processes have not died as planned"
    assert tally.states["completed"] >= 0.8 * tally.runs, tally.states


def test_twelve_runs_at_once_survive_random_kills_and_stopped_executions(cloud):
    tally = at_random(cloud, SECONDS)
    assert not tally.violations, "\n".join(tally.violations)
    assert tally.kills > 0
    assert tally.runs >= 12


def test_executions_stopped_from_outside_leave_runs_that_stop_and_can_be_resumed(cloud):
    tally = stopped(cloud, 6)
    assert not tally.violations, "\n".join(tally.violations)
    assert tally.stops >= 4, "runs were over before they could be stopped"
    assert tally.states == {"completed": 6}


def test_a_call_in_doubt_whose_run_is_stopped_is_answered_and_the_run_resumed(cloud):
    tally = killed_and_stopped(cloud, range(6, 14))
    assert not tally.violations, "\n".join(tally.violations)
    assert tally.stops >= 6
    assert tally.states == {"completed": 8}
