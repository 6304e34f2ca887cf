"""Identifiers."""

from __future__ import annotations

from shared.ids import is_ulid, ulid, ulid_time


def test_a_ulid_tells_when_it_was_made_and_sorts_by_it():
    times = [0, 1, 1_790_000_000_000, 2**48 - 1]
    made = [ulid(time) for time in times]
    assert all(map(is_ulid, made))
    assert [ulid_time(one) for one in made] == times
    assert sorted(made) == made
    assert ulid_time("01ARZ3NDEKTSV4RRFFQ69G5FAV") == 1_469_922_850_259  # the example of the specification
