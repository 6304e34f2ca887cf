"""Compares engines on one graph after the other; what differs comes with the smallest graph that shows it."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import engines
from behaviour import dice
from engines import Hold
from graphs import ENOUGH, child, children_of, make, make_large, plans_of
from outcome import differences, settled_for_sure
from shrink import shrink, text
from specs import SOON

from shared.asl.split import ROOM
from shared.compiler import compile_manifest
from shared.runtime.host import plan_of
from shared.runtime.scopes import container_of, enclosing, graph_at, number_of, scope_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from outcome import Result

    from shared.compiler import Unit
    from shared.manifest import Manifest, Split, StepPlan

    Engine = Callable[[Unit, int, Hold | None], Result]


def interpreter_and_walker(unit: Unit, seed: int, hold: Hold | None) -> Result:
    """Be the engine of the quick comparison: the compiled machine on the walker, which must not wait needlessly."""
    result = engines.walk(unit, seed)
    if hold:
        there = settled_for_sure(engines.walk(unit, seed, held=hold.path))
        assert not hold.others - there, _needless(hold.path, hold.others - there)
        here = (there & settled_for_sure(result)) - hold.others - hold.delayed
        assert not here, f"on the interpreter, {_needless(hold.path, here)}"
    return result


def _needless(held: str, waiting: Iterable[str]) -> str:
    return f"while {held} does not return, these wait without need: {sorted(waiting)}"


def holding(unit: Unit, seed: int, reference: Result) -> Hold | None:
    """Choose a step to hold, and find what must settle all the same while it has not returned."""
    sure = settled_for_sure(reference)
    rows = reference.rows
    tools = sorted(path for path in sure if rows[path].attempt and not path.endswith(("/fallback", "/compensate", "]")))
    callers = [path for path in tools if ">" not in path and _can_be_held(unit.manifest, path)]
    if reference.state != "completed" or not callers:
        return None
    rolled, inside = dice("hold", seed), [path for path in callers if "[" in path]
    path = rolled.choice(inside if inside and rolled.random() < 0.5 else callers)
    parked = sure & settled_for_sure(engines.interpret(unit, seed, held=path))
    late = {other for other in sure - parked if not after(unit.manifest, path, other)}
    assert not late, _needless(path, late)
    delayed = parked & behind(unit.manifest, path, rows)
    return Hold(path, parked - delayed, delayed, engines.patience(unit.manifest) / 6)


def after(manifest: Manifest, path: str, other: str) -> bool:
    """Tell whether ``other`` may have to wait for the step at ``path``: it, or what it stands in, comes later.

    So does, where few items or one iteration run at a time, what stands in the same map or loop.
    """
    for scope in enclosing(scope_of(path)):
        if not other.startswith(scope):
            return True
        mine, its = (_first(one.removeprefix(scope)) for one in (path, other))
        if mine != its:
            return its.partition("[")[0] in _later(graph_at(manifest, scope), mine) or _turns(
                manifest, scope, mine, its
            )
    return True


def _first(path: str) -> str:
    """Return the step, or the item, that a path leads into first."""
    return re.split(r"[/>]", path, maxsplit=1)[0]


def _turns(manifest: Manifest, scope: str, mine: str, its: str) -> bool:
    """Tell whether two paths lead into one container whose items wait for each other, or to the container itself."""
    name = mine.partition("[")[0]
    if "[" not in mine or its.partition("[")[0] != name:
        return False
    plan = graph_at(manifest, scope)[name]
    return its == name or plan.type == "loop" or bool(plan.spec["max_concurrency"]) or plan.split is not None


def behind(manifest: Manifest, path: str, others: Iterable[str]) -> set[str]:
    """Return what waits for the step at ``path`` because its map is split: what stands in later items of its part.

    Only where a part runs its items one by one: else they overtake the one that is held.
    """
    found: set[str] = set()
    for scope in enclosing(scope_of(path))[1:]:
        container = container_of(scope)
        split = plan_of(manifest, container).split
        items = {other: int(at[1]) for other in others if (at := re.match(rf"{re.escape(container)}\[(\d+)\]", other))}
        count = 1 + max(items.values(), default=0)
        if split and split.inside == 1 and count > split.inline:
            part = range(*_part_with(split, count, number_of(scope)))
            found |= {other for other, item in items.items() if item in part and item > number_of(scope)}
    return found


def _part_with(split: Split, count: int, item: int) -> tuple[int, int]:
    """Return the first item of the part that an item of a split map is in, and that of the next part."""
    parts = min(count, max(split.at_once, -(-count // split.size)))
    bounds = [count * number // parts for number in range(parts + 1)]
    return next((first, end) for first, end in pairwise(bounds) if item < end)


def _later(graph: Mapping[str, StepPlan], step: str) -> set[str]:
    """Return the steps, and the items of those, that come after a step of their graph."""
    found: set[str] = set()
    queue = [step.partition("[")[0]]
    while queue:
        plan = graph[queue.pop()]
        fresh = {*plan.dependents, *([plan.spec["approves"]] if plan.spec.get("approves") else [])} - found
        found |= fresh
        queue += fresh
    return found


def _can_be_held(manifest: Manifest, path: str) -> bool:
    """Tell whether a step can be held while others go on: it calls, leaves them a place, no probe answers."""
    splits = [plan_of(manifest, container_of(scope)).split for scope in enclosing(scope_of(path))[1:]]
    share = max((split.at_once for split in splits if split), default=1)
    plan = plan_of(manifest, path)
    return plan.type == "tool" and not plan.spec.get("reconcile") and manifest.max_parallel // share > 1


def compare(manifest: Manifest, seed: int, engine: Engine) -> list[str]:
    """Return how the engine differs from the interpreter on a graph. A broken rule or a halt is a difference too."""
    try:
        unit = compile_manifest(manifest, TIGHT if seed % SPLIT == 0 else ROOM)
        reference = engines.interpret(unit, seed)
        return differences(reference, engine(unit, seed, holding(unit, seed, reference)))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}: {str(error)[:500]}"]


TIGHT, SPLIT = 300, 4
"""History events that one execution of every fourth graph is planned for: maps and loops are split soon then."""
LARGE = 500
"""Steps; machines of more are folded, and take too long to be made smaller."""
EVERY = 200
"""One graph in so many is a large one."""


def graph_of(seed: int, *, large: bool = True) -> Manifest:
    """Return the graph of a seed; without ``large`` always one of a few steps."""
    return make_large(seed) if large and seed % EVERY == EVERY - 1 else make(seed)


@dataclass
class Tally:
    """How many graphs were compared, of which kinds, and what differed, by seed."""

    graphs: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    found: dict[int, list[str]] = field(default_factory=dict[int, list[str]])


def compare_all(seeds: Iterable[int], engine: Engine, *, large: bool = True) -> Tally:
    """Compare the engine with the interpreter on the graphs of these seeds."""
    tally = Tally()
    for seed in seeds:
        manifest = graph_of(seed, large=large)
        found = compare(manifest, seed, engine)
        tally.graphs += 1
        tally.kinds.update(kinds_of(manifest))
        if found:
            tally.found[seed] = found
    return tally


def kinds_of(manifest: Manifest) -> set[str]:
    """Return what a graph has in it, to show that all of it was met."""
    kinds: set[str] = {"600 steps"} if len(manifest.order) >= LARGE else set()
    for one in (manifest, *map(child, children_of(manifest))):
        kinds |= {"few places"} if one.max_parallel < ENOUGH else set()
        for plan in plans_of(one.steps.values()):
            kinds |= {plan.type, f"join {plan.join if plan.join in {'all', 'any'} else 'quorum'}"}
            kinds |= {name for name in ("when", "fallback", "optional") if getattr(plan, name)}
            kinds |= {"conditional edge"} if any(edge.when for edge in plan.needs) else set()
            kinds |= set(_special(plan))
    return kinds


def _special(plan: StepPlan) -> Iterator[str]:
    """Yield what a step has that not every step of its type has."""
    if plan.risk != "read":
        yield plan.risk
        yield f"doubtful {plan.risk}" if plan.spec["with"]["doubtful"] else plan.risk
        yield "reconcile" if plan.spec["reconcile"] else plan.risk
    if plan.merge != "by_step":
        yield f"merge {plan.merge}"
    if plan.type == "router":
        yield f"router {plan.spec['strategy']}"
    if plan.type == "wait":
        yield f"wait {next(kind for kind in ('for', 'until', 'event') if kind in plan.spec)}"
    if plan.type == "human_gate" and plan.timeout <= SOON:
        yield f"expiry {plan.spec['on_expiry']}"
    if plan.type == "map":
        rule = plan.spec["on_failure"]
        yield f"map {rule if isinstance(rule, str) else 'quorum'}"
        yield f"map {plan.spec['max_concurrency'] or 'all'} at once"


def _kind(found: list[str]) -> str:
    head, inside, _ = found[0].partition(" in ")
    return head if inside else "difference"


def _like(found: list[str], before: list[str]) -> bool:
    """Tell whether a smaller graph shows the same kind of difference."""
    return bool(found) and _kind(found) == _kind(before)


def explain(seed: int, found: list[str], engine: Engine, *, smaller: bool = True) -> str:
    """Return a difference with the smallest graph that shows one."""
    manifest = graph_of(seed, large=smaller)
    if smaller and len(manifest.order) < LARGE:
        manifest = shrink(manifest, lambda less: _like(compare(less, seed, engine), found))
        found = compare(manifest, seed, engine) or found
    lines = "\n".join(f"  {line}" for line in found)
    return f"seed {seed}: interpreter / engine\n{lines}\n{text(manifest)}"
