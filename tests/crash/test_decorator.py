"""A well-known decorator beside our protocol: the harness's faults are such that it can be seen to fail."""

from __future__ import annotations

from decorator import ours, theirs


def test_the_decorator_makes_some_effects_twice_and_we_none():
    assert theirs()["duplicated"] > 0
    found = ours()
    assert (found["duplicated"], found["unsaid"]) == (0, 0)
    assert found["scenarios"] > 50
