"""Where a router's choice jumps over steps: the places that are worth a Choice state.

A step is *only reachable* through a route when it can be nothing but skipped unless the router chose that route.
Its handler would find that out by itself; a jump over several such steps, or over a Parallel, saves entering them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from shared.graph.tree import Parallel, Sequence, Step, Tree, leaf_step, leaves, sequence

if TYPE_CHECKING:
    from shared.manifest import Body, Manifest, StepPlan

WORTH_A_JUMP = 2
"""Jump over this many steps or more; a single step is skipped by its own handler at the same price."""


@dataclass(frozen=True, slots=True)
class Switch:
    """Runs the case of the route that ``router`` chose; when it chose none of them, nothing."""

    router: str
    cases: tuple[tuple[str, Routed], ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """A Sequence that may hold switches."""

    items: tuple[Routed, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """A Parallel whose branches may hold switches."""

    branches: tuple[Routed, ...]


@dataclass(frozen=True, slots=True)
class Lanes:
    """Branches of a Fork that differ in the names of their steps only; written once (see ``fold``)."""

    branches: tuple[Tree, ...]


Routed = Tree | Switch | Chain | Fork | Lanes
Region = frozenset[str]


def place_jumps(tree: Tree, graph: Manifest | Body) -> Routed:
    """Return the tree with a Switch wherever a jump is worth one."""
    return _Placer(graph).place(tree, ())


def routers_read(tree: Routed) -> frozenset[str]:
    """Return the routers whose route some Switch reads."""
    match tree:
        case Switch(router, cases):
            return frozenset({router}).union(*(routers_read(case) for _, case in cases))
        case Chain(items):
            return frozenset[str]().union(*map(routers_read, items))
        case Fork(branches):
            return frozenset[str]().union(*map(routers_read, branches))
        case _:
            return frozenset()


def only_reachable(graph: Manifest | Body, router: str, route: str) -> Region:
    """Return the steps that are skipped unless ``router`` chose ``route``."""
    dead = {(router, route)}
    region: set[str] = set()
    queue = deque((route,))
    while queue:
        name = queue.popleft()
        if name in region or not _impossible(graph.steps[name], dead):
            continue
        region.add(name)
        for dependent in graph.steps[name].dependents:
            dead.add((name, dependent))
            queue.append(dependent)
    return frozenset(region)


def _impossible(plan: StepPlan, dead: set[tuple[str, str]]) -> bool:
    alive = sum((edge.source, plan.id) not in dead for edge in plan.needs)
    wanted = plan.join if isinstance(plan.join, int) else 1
    return alive < wanted


class _Placer:
    def __init__(self, graph: Manifest | Body) -> None:
        self._graph = graph

    @cached_property
    def _regions(self) -> dict[str, dict[str, Region]]:
        plans = self._graph.steps
        return {
            router: {route: only_reachable(self._graph, router, route) for route in plans[router].dependents}
            for router in self._graph.order
            if plans[router].type == "router" and not self._may_be_missed(router)
        }

    def _may_be_missed(self, router: str) -> bool:
        """Tell whether a dependent may run although the router failed: then it chose nothing, and nothing is jumped."""
        plans = self._graph.steps
        edges = [edge for route in plans[router].dependents for edge in plans[route].needs]
        return any(edge.source == router and edge.optional for edge in edges)

    def place(self, tree: Tree, known: tuple[str, ...]) -> Routed:
        """Place jumps in a tree; ``known`` are the routers that have chosen before it, in their order."""
        match tree:
            case Sequence(items):
                return self._in_sequence(items, known)
            case Parallel(branches):
                return self._in_parallel(branches, known)
            case _:
                return tree

    def _in_sequence(self, items: tuple[Tree, ...], known: tuple[str, ...]) -> Routed:
        placed: list[Routed] = []
        index = 0
        while index < len(items):
            router, route, length = self._best_jump(items[index:], known)
            if length:
                inner = tuple(name for name in known if name != router)
                run = sequence(items[index : index + length])
                placed.append(Switch(router, ((route, self.place(run, inner)),)))
            else:
                length = 1
                placed.append(self.place(items[index], known))
                known = self._and_router(items[index], known)
            index += length
        return placed[0] if len(placed) == 1 else Chain(tuple(placed))

    def _and_router(self, item: Tree, known: tuple[str, ...]) -> tuple[str, ...]:
        return (*known, item.id) if isinstance(item, Step) and item.id in self._regions else known

    def _best_jump(self, items: tuple[Tree, ...], known: tuple[str, ...]) -> tuple[str, str, int]:
        for router in known:
            for route, region in self._regions[router].items():
                length = _run_length(items, region)
                if _steps(items[:length]) >= WORTH_A_JUMP:
                    return router, route, length
        return "", "", 0

    def _in_parallel(self, branches: tuple[Tree, ...], known: tuple[str, ...]) -> Routed:
        for router in known:
            routes = [self._route_of(branch, router) for branch in branches]
            if sum(route != "" for route in routes) >= WORTH_A_JUMP:
                return self._exclusive(branches, router, routes, known)
        return Fork(tuple(self._in_branch(branch, known) for branch in branches))

    def _in_branch(self, branch: Tree, known: tuple[str, ...]) -> Routed:
        items = branch.items if isinstance(branch, Sequence) else (branch,)
        return self._in_sequence(items, known)

    def _route_of(self, branch: Tree, router: str) -> str:
        for route, region in self._regions[router].items():
            if _run_length((branch,), region):
                return route
        return ""

    def _exclusive(self, branches: tuple[Tree, ...], router: str, routes: list[str], known: tuple[str, ...]) -> Routed:
        """Of branches that belong to different routes of one router only one runs: they are cases, not a Parallel."""
        groups: dict[str, list[Tree]] = {}
        for route, branch in zip(routes, branches, strict=True):
            groups.setdefault(route, []).append(branch)
        free = groups.pop("", [])
        inner = tuple(name for name in known if name != router)
        cases = tuple((route, self.place(_together(group), inner)) for route, group in groups.items())
        switch = Switch(router, cases)
        if not free:
            return switch
        rest = self.place(_together(free), known)
        return Fork((*(rest.branches if isinstance(rest, Fork) else (rest,)), switch))


def _together(branches: list[Tree]) -> Tree:
    return branches[0] if len(branches) == 1 else Parallel(tuple(branches))


def _run_length(items: tuple[Tree, ...], region: Region) -> int:
    length = 0
    for item in items:
        if not all(leaf_step(leaf) in region for leaf in leaves(item)):
            break
        length += 1
    return length


def _steps(items: tuple[Tree, ...]) -> int:
    return sum(isinstance(leaf, Step) for item in items for leaf in leaves(item))
