"""Equal branches written once: what makes a wide machine fit into the definition limit.

A branch of a Parallel costs kilobytes, most of them for the way out of trouble, which every branch must have for
itself. Branches that differ in the names of their steps only become *lanes*: one Map state whose items are these names.
A machine that fits without it is left as it is, because a state named after its step reads better than a lane's.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.asl.jumps import Chain, Fork, Lanes, Routed, Switch
from shared.graph.tree import Await, Parallel, Sequence, Step, leaf_step, leaves, sequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.asl.layout import Layout
    from shared.graph.tree import Tree
    from shared.manifest import StepPlan

MAX_LANES = 40
"""Lanes of one Map that run at once. Source: Step Functions Developer Guide, "Map state", inline mode."""
MIN_LANES = 3
MAX_LEAVES = 24
"""Larger branches stay as they are, so that the Parallels inside them can be folded."""
_PLAIN = frozenset({"agent", "tool", "transform"})

Shape = Hashable


def fold(layout: Layout, plans: Mapping[str, StepPlan]) -> Layout:
    """Return the layout with equal branches folded into lanes, in all bodies too."""
    bodies = {name: fold(laid, body.steps) for name, laid in layout.bodies.items() if (body := plans[name].body)}
    return replace(layout, routed=_fold(layout.routed, plans), bodies=bodies)


def _fold(node: Routed, plans: Mapping[str, StepPlan]) -> Routed:
    match node:
        case Sequence(items) | Chain(items):
            return Chain(tuple(_fold(item, plans) for item in items))
        case Switch(router, cases):
            return Switch(router, tuple((route, _fold(case, plans)) for route, case in cases))
        case Fork(branches) | Parallel(branches):
            return Fork(tuple(_grouped(branches, plans)))
        case _:
            return node


def _grouped(branches: tuple[Routed, ...], plans: Mapping[str, StepPlan]) -> Iterator[Routed]:
    groups: dict[Shape, list[tuple[Routed, Tree]]] = {}
    for branch in branches:
        tree = _plain(branch)
        shape = None if tree is None else _shape(tree, plans)
        if tree is None or shape is None:
            yield _fold(branch, plans)
        else:
            groups.setdefault(shape, []).append((branch, tree))
    for group in groups.values():
        if len(group) < MIN_LANES:
            yield from (_fold(branch, plans) for branch, _ in group)
        else:
            chunks = (group[start : start + MAX_LANES] for start in range(0, len(group), MAX_LANES))
            yield from (Lanes(tuple(tree for _, tree in chunk)) for chunk in chunks)


def _plain(node: Routed) -> Tree | None:
    """Return the node as a tree if no jump is in it."""
    match node:
        case Switch() | Lanes():
            return None
        case Sequence(items) | Chain(items):
            trees = [tree for item in items if (tree := _plain(item)) is not None]
            return sequence(tuple(trees)) if len(trees) == len(items) else None
        case Fork(branches) | Parallel(branches):
            trees = [tree for branch in branches if (tree := _plain(branch)) is not None]
            return Parallel(tuple(trees)) if len(trees) == len(branches) else None
        case _:
            return node


def _shape(tree: Tree, plans: Mapping[str, StepPlan]) -> Shape | None:
    """Return what trees have in common that differ in names only; None for one that is large or not plain."""
    if sum(1 for _ in leaves(tree)) > MAX_LEAVES:
        return None
    number = {name: index for index, name in enumerate(lane_steps(tree))}
    return None if any(plans[name].type not in _PLAIN for name in number) else _form(tree, plans, number)


def _form(node: Tree, plans: Mapping[str, StepPlan], number: Mapping[str, int]) -> Shape:
    match node:
        case Step(name):
            plan = plans[name]
            return (number[name], plan.type, plan.timeout, plan.fallback, plan.slot > 0)
        case Await(name):
            return (number[name], "await")
        case Sequence(items):
            return ("sequence", *(_form(item, plans, number) for item in items))
        case Parallel(branches):
            return ("parallel", *(_form(branch, plans, number) for branch in branches))


def lane_steps(lane: Tree) -> tuple[str, ...]:
    """Return the steps of a lane in the order in which its item names them."""
    return tuple(dict.fromkeys(leaf_step(leaf) for leaf in leaves(lane)))
