"""The long run of the comparison: random graphs on the interpreter and on another engine, in several processes.

Shows its progress, and every difference at once with the smallest graph that has it. Exit code 1 = there were some.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 10
_OPEN = ExitStack()
Finalize(None, _OPEN.close, exitpriority=1)


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="scripts/compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200, help="how many graphs (default: 200)")
    parser.add_argument("--engine", choices=("moto", "walker", "cloud"), default="moto", help="default: moto")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a core")
    parser.add_argument("--first", type=int, default=100_000, help="the first graph's seed (default: 100000)")
    parser.add_argument("--minutes", type=float, default=60, help="end after so many minutes (default: 60)")
    return parser.parse_args(argv)


@cache
def _engine(name: str) -> Any:
    """Return this process's engine; it stays up as long as the process."""
    tests = ROOT / "tests"
    sys.path[:0] = [str(ROOT), str(tests / "property"), str(tests / "flows")]
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(keys)
    logging.disable(logging.CRITICAL)
    if name == "walker":
        return _of_tests("comparison").interpreter_and_walker
    if name == "moto":
        return _OPEN.enter_context(_of_tests("moto_engine").on_moto()).run
    folder = Path(tempfile.mkdtemp(prefix="signalbox-compare-"))
    return _OPEN.enter_context(_of_tests("cloud").on_cloud(folder)).run


def _of_tests(name: str) -> Any:
    """Return a module of the tests, once their folders are on the path."""
    return import_module(name)


def _chunk(name: str, seeds: range) -> tuple[int, Counter[str], list[str]]:
    """Compare one chunk in a worker process."""
    engine = _engine(name)
    comparison = _of_tests("comparison")
    # The emulator starts a process for every call that is under way: large graphs would need hundreds of them.
    tally = comparison.compare_all(seeds, engine, large=name != "cloud")
    found = tally.found.items()
    texts = [comparison.explain(seed, how, engine, smaller=name != "cloud") for seed, how in found]
    return tally.graphs, tally.kinds, texts


def main(argv: list[str] | None = None) -> int:
    """Compare, and say how it went: 0 = no graph differs, 1 = some do, 3 = none of those that there was time for."""
    args = arguments(argv)
    processes = 1 if args.engine == "cloud" else args.processes
    begun, graphs, kinds, found = time.monotonic(), 0, Counter[str](), 0
    chunks = [
        range(first, min(first + CHUNK, args.first + args.graphs))
        for first in range(args.first, args.first + args.graphs, CHUNK)
    ]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(_chunk, args.engine, chunk) for chunk in chunks]
        for job in as_completed(jobs):
            done, its, texts = job.result()
            graphs, found = graphs + done, found + len(texts)
            kinds += its
            for text in texts:
                print(text, flush=True)
            seconds = time.monotonic() - begun
            print(f"{graphs} of {args.graphs} graphs, {found} differ, {seconds:.0f} s", file=sys.stderr, flush=True)
            if seconds > args.minutes * 60:
                _stop(jobs)
                break
    short = f", cut short of {args.graphs}" if graphs < args.graphs else ""
    took = f"{time.monotonic() - begun:.0f} s"
    print(f"{graphs} graphs compared{short}: interpreter and {args.engine}; {found} differ; {took}")
    print("graphs with: " + ", ".join(f"{name} {count}" for name, count in kinds.most_common()))
    return 1 if found else 3 if short else 0


def _stop(jobs: list[Future[Any]]) -> None:
    for job in jobs:
        job.cancel()


if __name__ == "__main__":
    sys.exit(main())
