"""Whole runs over fakes, with one thing going wrong at every place where one can."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "flows")]
