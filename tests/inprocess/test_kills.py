"""Fifty runs at once in a process that is killed at random moments, again and again: nothing lost, nothing twice."""

from __future__ import annotations

import pytest
from kill_process import RUNS, play

SECONDS = 12


@pytest.mark.slow
def test_fifty_runs_survive_a_process_that_is_killed_again_and_again(tmp_path):
    tally = play(tmp_path, SECONDS)
    assert not tally.violations, "\n".join(tally.violations)
    assert tally.runs >= RUNS
    assert tally.kills >= 10
    assert tally.interrupted > 0, "no kill has met a call"
    assert tally.states["completed"] >= 0.8 * tally.runs, tally.states
