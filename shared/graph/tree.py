"""What a decomposition is made of: steps, in sequence and in parallel, and awaits where neither form fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Step:
    """One step, by its id."""

    id: str


@dataclass(frozen=True, slots=True)
class Await:
    """Stands before ``step`` and parks until it may start; the settling of each of ``sources`` wakes it.

    It may stand before a Parallel of several steps with the same sources; it is then named for the first of them.
    For an ``all`` join the sources are the direct ones that no place in the tree orders before the step; for an
    ``any`` or quorum join they are all sources.
    """

    step: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Items one after the other; none of them is a Sequence itself."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """At least two branches at once; it ends when all have ended."""

    branches: tuple[Tree, ...]


Tree = Step | Await | Sequence | Parallel


def sequence(items: tuple[Tree, ...]) -> Tree:
    """Put items one after the other, flattening sequences; a single item stays itself."""
    flat: list[Tree] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Sequence) else (item,))
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def leaves(tree: Tree) -> Iterator[Step | Await]:
    """Yield steps and awaits in the order of the tree."""
    match tree:
        case Step() | Await():
            yield tree
        case Sequence(items):
            for item in items:
                yield from leaves(item)
        case Parallel(branches):
            for branch in branches:
                yield from leaves(branch)


def nesting(tree: Tree) -> int:
    """Return how many Parallels stand inside each other at most."""
    deepest, stack = 0, [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        match node:
            case Sequence(items):
                stack += [(item, depth) for item in items]
            case Parallel(branches):
                stack += [(branch, depth + 1) for branch in branches]
            case _:
                pass
    return deepest


def awaits(tree: Tree) -> tuple[Await, ...]:
    """Return the awaits of a tree, in its order."""
    return tuple(leaf for leaf in leaves(tree) if isinstance(leaf, Await))


def leaf_step(leaf: Step | Await) -> str:
    """Return the id of the step that a leaf is, or stands before."""
    return leaf.id if isinstance(leaf, Step) else leaf.step
