"""The same comparison without an emulator: compiled machines on the walker of ``tests/flows``."""

from __future__ import annotations

import pytest
from comparison import compare_all, explain, graph_of, interpreter_and_walker, kinds_of

GRAPHS, CHUNK = 200, 40
ALL_KINDS = {
    *("tool", "agent", "transform", "router", "human_gate", "map", "loop", "wait", "sub_workflow", "turns"),
    *("wait for", "wait until", "wait event", "few places"),
    *("reconcile", "doubtful reversible", "doubtful irreversible"),
    *("join all", "join any", "join quorum", "when", "fallback", "optional", "conditional edge"),
    *("reversible", "irreversible", "router rules", "router llm", "router score", "600 steps"),
    *("merge shallow", "merge deep", "merge list", "merge first"),
    *("expiry reject", "expiry approve", "expiry fail", "expiry pause"),
    *("map collect_all", "map fail_fast", "map quorum"),
    *("map all at once", "map 1 at once", "map 2 at once", "map 3 at once", "map 4 at once", "map 6 at once"),
}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 10_000 + GRAPHS, CHUNK))
def test_interpreter_and_walker_agree(first):
    engine = interpreter_and_walker
    tally = compare_all(range(first, first + CHUNK), engine)
    assert not tally.found, "\n".join(explain(seed, found, engine) for seed, found in tally.found.items())


def test_the_graphs_have_everything_in_them():
    kinds = set().union(*(kinds_of(graph_of(seed)) for seed in range(300)))
    assert kinds == ALL_KINDS
