"""Random graphs end alike on the interpreter and on the local cloud: real executions, processes, DynamoDB over HTTP.

The graphs and the comparison are those of ``tests/property``; ``scripts/compare --engine cloud`` is the long run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "flows"))
sys.path.insert(0, str(Path(__file__).parents[1] / "property"))

from cloud import on_cloud
from comparison import compare_all, explain

GRAPHS = 30
CHUNK = 5

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with on_cloud(tmp_path_factory.mktemp("cloud")) as engine:
        yield engine


@pytest.mark.parametrize("first", range(20_000, 20_000 + GRAPHS, CHUNK))
def test_interpreter_and_local_cloud_agree(cloud, first):
    tally = compare_all(range(first, first + CHUNK), cloud.run)
    shown = [explain(seed, found, cloud.run, smaller=False) for seed, found in tally.found.items()]
    assert not tally.found, "\n".join(shown)
