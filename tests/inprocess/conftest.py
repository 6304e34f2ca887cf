"""Finds the helpers beside the tests; the ERP that processes call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "kills"), str(HERE.parent / "flows")]


@pytest.fixture
def erp(tmp_path):
    from process import quiet_erp  # noqa: PLC0415 - found by the path above

    made = quiet_erp(tmp_path / "erp.json")
    yield made
    made.shutdown()
    made.server_close()
