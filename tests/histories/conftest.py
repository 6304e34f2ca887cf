"""Runs as earlier versions have left them, in the middle of their work."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(TESTS / "crash"), str(TESTS / "flows")]
