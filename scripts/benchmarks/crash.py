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
from scripts.commands.output import table

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
    parser.add_argument("--compare", action="store_true", help="ours beside Powertools' idempotency decorator")
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
    """Play the kinds of run in which something happens outside, on our protocol and on Powertools' decorator."""
    _matrix()
    beside = import_module("beside")
    kinds: dict[str, dict[str, dict[str, int]]] = {}
    for name in beside.KINDS:
        kinds[name] = beside.compared(name)
        print(f"{len(kinds)} of {len(beside.KINDS)} kinds of run", file=sys.stderr)
    totals = beside.totals(kinds.values())
    if as_json:
        print(json.dumps({"kinds": kinds, "totals": totals}))
    else:
        _beside({**kinds, "all": totals})
    return 1 if beside.broken(kinds) else 0


COLUMNS = (
    ("SIGNALBOX", "signalbox", "scenarios"),
    ("DUPLICATED", "signalbox", "duplicated"),
    ("PAID", "signalbox", "paid_twice"),
    ("UNSAID", "signalbox", "unsaid"),
    ("ASKED", "signalbox", "asked"),
    ("POWERTOOLS", "powertools", "scenarios"),
    ("DUPLICATED", "powertools", "duplicated"),
    ("LOOKED UP", "powertools, looked up first", "duplicated"),
    ("WITH KEYS", "powertools, far side with keys", "duplicated"),
    ("PAID", "powertools", "paid_twice"),
    ("UNSAID", "powertools", "unsaid"),
)
LEGEND = """
SIGNALBOX, POWERTOOLS  scenarios: one fault at one call of the run, or all of it delivered again after its end
DUPLICATED             an effect was made twice, at a far side that takes no keys
LOOKED UP              the same where each decorated function looks first, written by hand; Signalbox does so for what
                       is reversible where the file names a probe (without one it repeats the call once, as the file
                       allows), and asks a person about what is irreversible
WITH KEYS              the same at a far side that makes one effect a key
PAID                   a request to a model was made twice
UNSAID                 an effect or a result is missing, or one is left behind, and nobody is told
ASKED                  a person had to say what became of a call"""


def _beside(rows: dict[str, dict[str, dict[str, int]]]) -> None:
    cells = [(name, *(f"{its[side][what]:,}" for _, side, what in COLUMNS)) for name, its in rows.items()]
    heads = tuple(head for head, _, _ in COLUMNS)
    table(("KIND OF RUN", *heads), cells, right=heads, empty="nothing")
    print(LEGEND)


if __name__ == "__main__":
    sys.exit(main())
