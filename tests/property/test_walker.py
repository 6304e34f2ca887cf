"""The same comparison without an emulator: compiled machines on the walker of ``tests/flows``."""

from __future__ import annotations

import pytest
from comparison import compare_all, explain, interpreter_and_walker, kinds_of
from graphs import make

GRAPHS, CHUNK = 200, 40
ALL_KINDS = {
    *("tool", "transform", "router", "human_gate", "map", "loop", "wait"),
    *("join all", "join any", "join quorum", "when", "fallback", "optional", "conditional edge"),
}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 10_000 + GRAPHS, CHUNK))
def test_interpreter_and_walker_agree(first):
    engine = interpreter_and_walker
    tally = compare_all(range(first, first + CHUNK), engine)
    assert not tally.found, "\n".join(explain(seed, found, engine) for seed, found in tally.found.items())


def test_the_graphs_have_everything_in_them():
    kinds = set().union(*(kinds_of(make(seed)) for seed in range(300)))
    assert kinds == ALL_KINDS
