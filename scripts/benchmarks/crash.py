"""The crash matrix: every call of every kind of run, struck by every fault, alone or in pairs.

Shows its progress, and every violation at once with the faults that lead to it. Exit code 1 = there were some, 3 = none
so far, but the time was over before all were played.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from scripts.benchmarks.kills import HOSTS, kill

ROOT = Path(__file__).resolve().parents[2]
STORES = ("memory", "sqlite", "dynamodb")
"""The fake, the laptop's, and the cloud's, as moto plays DynamoDB."""


class Done(NamedTuple):
    """What one job has played: the route, how many scenarios, and what went wrong in which."""

    route: str
    scenarios: int
    violations: list[str]


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="scripts/crash", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", action="store_true", help="every pair of faults instead of every single one")
    parser.add_argument("--route", action="append", metavar="NAME", help="only this kind of run (may be repeated)")
    parser.add_argument("--store", choices=STORES, default=STORES[0], help="what keeps the runs (default: memory)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a core")
    parser.add_argument("--minutes", type=float, help="end after so many minutes (default: 600; with --kill: 1)")
    parser.add_argument("--kill", action="store_true", help="real processes instead, killed at random moments")
    parser.add_argument("--host", choices=HOSTS, default=HOSTS[0], help="with --kill: where (default: in-process)")
    parser.add_argument("--compare", action="store_true", help="a step made idempotent by Powertools, beside ours")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON on stdout, for programs")
    return parser.parse_args(argv)


@cache
def _matrix() -> Any:
    """Return the matrix, which stands with the tests."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "crash"), str(ROOT / "tests" / "flows")]
    logging.disable(logging.CRITICAL)
    return import_module("matrix")


def _play(route: str, first: Any, store: str, *, pairs: bool) -> Done:
    """Play one single fault, or all pairs that begin with it, in a worker process."""
    matrix = _matrix()
    with import_module("stores").worlds_on(store):
        cases = [(first, second) for second in matrix.seconds(route, first)] if pairs else [(first,)]
        found = [(faults, matrix.violation(route, *faults)) for faults in cases]
    told = [f"{route}: {' then '.join(map(_shown, faults))}: {what}" for faults, what in found if what]
    return Done(route, len(cases), told)


def _shown(fault: Any) -> str:
    return f"{fault.kind} at call {fault.number}"


def main(argv: list[str] | None = None) -> int:
    """Play the matrix, and say how it went."""
    args = arguments(argv)
    if args.kill:
        return kill(args.host, args.minutes or 1, as_json=args.as_json)
    if args.compare:
        return _compare(as_json=args.as_json)
    routes = args.route or list(_matrix().ROUTES)
    unknown = sorted(set(routes) - set(_matrix().ROUTES))
    if unknown:
        print(f"There is no route {unknown[0]!r}. Known: {', '.join(_matrix().ROUTES)}.", file=sys.stderr)
        return 2
    jobs = [(route, fault) for route in routes for fault in _matrix().singles(route)]
    begun = time.monotonic()
    done = _all(jobs, args, begun)
    counts = {route: sum(one.scenarios for one in done if one.route == route) for route in routes}
    violations = [told for one in done for told in one.violations]
    short = len(jobs) - len(done)
    _tell(counts, violations, time.monotonic() - begun, pairs=args.pairs, short=short, as_json=args.as_json)
    return 1 if violations else 3 if short else 0


def _all(jobs: list[tuple[str, Any]], args: argparse.Namespace, begun: float) -> list[Done]:
    done: list[Done] = []
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(_play, route, fault, args.store, pairs=args.pairs) for route, fault in jobs]
        for job in as_completed(running):
            done.append(job.result())
            for told in done[-1].violations:
                print(told, flush=True, file=sys.stderr)
            seconds, scenarios = time.monotonic() - begun, sum(one.scenarios for one in done)
            if sys.stderr.isatty() or len(done) % (len(jobs) // 20 + 1) == 0:
                print(f"{len(done)} of {len(jobs)} jobs, {scenarios} scenarios, {seconds:.0f} s", file=sys.stderr)
            if seconds > (args.minutes or 600) * 60:
                for other in running:
                    other.cancel()
                break
    return done


def _tell(
    counts: dict[str, int], violations: list[str], seconds: float, *, pairs: bool, short: int, as_json: bool
) -> None:
    kind, total = "pairs of faults" if pairs else "single faults", sum(counts.values())
    if as_json:
        told = {"kind": kind, "scenarios": counts, "violations": violations, "seconds": round(seconds, 1)}
        print(json.dumps(told | {"first_faults_left": short}))
        return
    for route, count in counts.items():
        print(f"  {route:<16} {count:>7,}")
    left = f", cut short: {short} first faults were not played" if short else ""
    print(f"{total:,} scenarios ({kind}), {len(violations)} violations, {seconds:.0f} s{left}")


def _compare(*, as_json: bool) -> int:
    """Play the single faults of one step with an effect, on our protocol and on Powertools' idempotency decorator."""
    _matrix()
    ours, theirs = import_module("decorator").ours(), import_module("decorator").theirs()
    if as_json:
        print(json.dumps({"signalbox": ours, "powertools": theirs}))
    else:
        print("                        scenarios  duplicated  lost or unknown and unsaid")
        for name, found in (("Signalbox, one step", ours), ("Powertools decorator", theirs)):
            print(f"  {name:<22}{found['scenarios']:>9}{found['duplicated']:>12}{found['unsaid']:>20}")
    return 1 if ours["duplicated"] or ours["unsaid"] else 0


if __name__ == "__main__":
    sys.exit(main())
