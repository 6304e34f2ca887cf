"""What earlier versions have written still folds to the records beside it, and their runs still go on to their end."""

from __future__ import annotations

import pytest
from history import all_recorded, restored, route_of
from invariants import check
from routes import ROUTES

from shared.runtime.rebuild import compare
from shared.runtime.resuming import Resume, resume_run

FILES = all_recorded()


def test_there_are_histories():
    assert FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_an_earlier_log_says_what_its_records_say(file):
    play = restored(file)
    for run in play.runs():
        seen = play.seen(run)
        found = compare(seen.records, seen.journal.events()).differences
        assert not [one for one in found if one.record != "RUN"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_an_earlier_run_is_resumed_and_ends(file):
    play = restored(file)
    world = play.world
    ends = ROUTES[route_of(file)].ends
    to_its_end(play)
    for _ in range(2):
        if world.head.ended != ends:  # its process had died, which it may have failed of
            resume_run(world.steps, world.journal, Resume("ops"))
            to_its_end(play)
    assert world.head.ended == ends
    for run in play.runs():
        check(play.seen(run))


def to_its_end(play):
    for _ in range(40):
        play.settle()
        if play.world.head.ended:
            return
        play.move()
    raise AssertionError(f"the run never ends: {play.world.head}")
