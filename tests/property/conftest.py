"""Random graphs on several engines: the folders whose helpers they share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "flows")]


@pytest.fixture(scope="module")
def moto():
    from moto_engine import on_moto  # noqa: PLC0415 - its parser takes a second to import

    with on_moto() as engine:
        yield engine
