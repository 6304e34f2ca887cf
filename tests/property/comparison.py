"""Compares engines on one graph after the other; what differs comes with the smallest graph that shows it."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import engines
from behaviour import dice
from engines import Hold
from graphs import make
from outcome import differences, settled_for_sure
from shrink import shrink, text

from shared.compiler import compile_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from outcome import Result

    from shared.compiler import Unit
    from shared.manifest import Manifest

    Engine = Callable[[Unit, int, Hold | None], Result]


def interpreter_and_walker(unit: Unit, seed: int, _: Hold | None) -> Result:
    """Be the engine of the quick comparison: the compiled machine on the walker."""
    return engines.walk(unit, seed)


def holding(unit: Unit, seed: int, reference: Result) -> Hold | None:
    """Choose a step to hold, and find what must settle all the same while it has not returned."""
    sure = settled_for_sure(reference)
    rows = reference.rows
    tools = sorted(path for path in sure if rows[path].attempt and not path.endswith(("/fallback", "/compensate", "]")))
    callers = [path for path in tools if _is_tool(unit.manifest, path)]
    if reference.state != "completed" or not callers:
        return None
    path = dice("hold", seed).choice(callers)
    parked = engines.interpret(unit, seed, held=path)
    return Hold(path, settled_for_sure(parked) & sure)


def _is_tool(manifest: Manifest, path: str) -> bool:
    from shared.runtime.host import plan_of  # noqa: PLC0415

    return plan_of(manifest, path).type == "tool"


def compare(manifest: Manifest, seed: int, engine: Engine) -> list[str]:
    """Return how the engine differs from the interpreter on a graph. A broken rule or a halt is a difference too."""
    try:
        unit = compile_manifest(manifest)
        reference = engines.interpret(unit, seed)
        return differences(reference, engine(unit, seed, holding(unit, seed, reference)))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}: {str(error)[:500]}"]


@dataclass
class Tally:
    """How many graphs were compared, of which kinds, and what differed, by seed."""

    graphs: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    found: dict[int, list[str]] = field(default_factory=dict[int, list[str]])


def compare_all(seeds: Iterable[int], engine: Engine, *, progress: Callable[[Tally], None] = lambda _: None) -> Tally:
    """Compare the engine with the interpreter on the graphs of these seeds."""
    tally = Tally()
    for seed in seeds:
        found = compare(make(seed), seed, engine)
        tally.graphs += 1
        tally.kinds.update(kinds_of(make(seed)))
        if found:
            tally.found[seed] = found
        progress(tally)
    return tally


def kinds_of(manifest: Manifest) -> set[str]:
    """Return what a graph has in it, to show that all of it was met."""
    kinds: set[str] = set()
    graphs = [manifest.steps]
    while graphs:
        for plan in graphs.pop().values():
            kinds |= {plan.type, f"join {plan.join if plan.join in {'all', 'any'} else 'quorum'}"}
            kinds |= {name for name in ("when", "fallback", "optional") if getattr(plan, name)}
            kinds |= {"conditional edge"} if any(edge.when for edge in plan.needs) else set()
            graphs += [plan.body.steps] if plan.body else []
    return kinds


def _kind(found: list[str]) -> str:
    head, inside, _ = found[0].partition(" in ")
    return head if inside else "difference"


def _like(found: list[str], before: list[str]) -> bool:
    """Tell whether a smaller graph shows the same kind of difference."""
    return bool(found) and _kind(found) == _kind(before)


def explain(seed: int, found: list[str], engine: Engine, *, smaller: bool = True) -> str:
    """Return a difference with the smallest graph that shows one."""
    manifest = make(seed)
    if smaller:
        manifest = shrink(manifest, lambda less: _like(compare(less, seed, engine), found))
        found = compare(manifest, seed, engine) or found
    lines = "\n".join(f"  {line}" for line in found)
    return f"seed {seed}: interpreter / engine\n{lines}\n{text(manifest)}"
