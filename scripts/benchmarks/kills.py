"""Real kills: processes that drive runs are ended with -9 at random moments, and what is left is looked at.

In-process, fifty runs at once; on a local cloud, twelve, whose executions are also stopped from outside now and then.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("in-process", "cloud")


def kill(host: str, minutes: float, *, as_json: bool) -> int:
    """Kill for so many minutes; print what was played and what is wrong. Returns 1 when something is."""
    sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("kills", "flows", "property"))]
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        tally = _play(host, Path(folder), minutes * 60)
    _tell(host, tally, as_json=as_json)
    return 1 if tally.violations else 0


def _play(host: str, folder: Path, seconds: float) -> Any:
    if host == "in-process":
        return import_module("kill_process").play(folder, seconds)
    cloud = import_module("kill_cloud")
    with cloud.killing_cloud(folder) as running:
        return cloud.at_random(running, seconds)


def _tell(host: str, tally: Any, *, as_json: bool) -> None:
    """Print the counts, and every violation."""
    counts = {name: getattr(tally, name) for name in ("kills", "interrupted", "stops", "runs", "effects")}
    if as_json:
        print(json.dumps({"host": host, **counts, "states": tally.states, "violations": tally.violations}))
        return
    for violation in tally.violations:
        print(violation)
    ended = ", ".join(f"{count} {state}" for state, count in sorted(tally.states.items()))
    print(f"{host}: {counts['kills']:,} kills, which interrupted {counts['interrupted']:,} calls")
    print(f"  {counts['stops']:,} executions stopped, {counts['runs']:,} runs ({ended}), {counts['effects']:,} effects")
    print(f"  {len(tally.violations)} violations")
