"""The workflow library: every workflow from its sample input to its end."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "flows"), str(TESTS / "inprocess"), str(Path(__file__).parent)]


@pytest.fixture
def office():
    """The stand-in that keeps every effect."""
    from scripts.local.erp import Erp  # noqa: PLC0415 - after the path is set, as all imports of tests

    running = Erp()
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()
