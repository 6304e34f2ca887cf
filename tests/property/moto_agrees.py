"""Any graph runs exactly as drawn: random graphs end alike on the interpreter and as compiled machines on moto.

One step a graph does not return before everything that does not depend on it has settled: so nothing waits longer than
it needs to. Two files run halves of the graphs, since files are what the test command spreads over the cores;
``scripts/compare`` is the long run of the same comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from comparison import compare_all, explain

if TYPE_CHECKING:
    from moto_engine import Moto

GRAPHS = 300
CHUNK = 10


def chunks(half: int) -> Any:
    """Return the parameter of a test: the first seeds of every second chunk."""
    return pytest.mark.parametrize("first", range(half * CHUNK, GRAPHS, 2 * CHUNK))


def assert_agree(moto: Moto, first: int) -> None:
    tally = compare_all(range(first, first + CHUNK), moto.run)
    assert not tally.found, "\n".join(explain(seed, found, moto.run) for seed, found in tally.found.items())
