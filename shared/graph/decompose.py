"""Decomposition of an order into sequence, parallel and awaits, without inserting any barrier.

Recursively: components of the comparability graph run in parallel; components of the incomparability graph run in
sequence; what has neither form (a prime block, for example a→c, a→d, b→d) is covered with trees or chains, and every
dependency between these becomes an await before the dependent steps. With zero overheads the makespan of the tree
equals the critical path of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.graph import forest
from shared.graph.chains import chains
from shared.graph.dag import Graph, bits
from shared.graph.tree import Await, Parallel, Sequence, Step, Tree, nesting, sequence

if TYPE_CHECKING:
    from collections.abc import Mapping

# Parallel states nested deeper than this are laid flat as chains with awaits: nobody reads such a drawing, and the
# nesting of a definition stays bounded whatever the graph.
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Splits blocks of a graph; ``cover`` says what becomes of a block that is neither parallel nor series."""

    graph: Graph
    early: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def build(self, block: int, depth: int) -> Tree:
        """Return the tree of a block that stands inside ``depth`` Parallels."""
        if block & (block - 1) == 0:
            return self.leaf(block.bit_length() - 1, 0)
        if len(parts := self.components(block)) > 1 and depth < MAX_DEPTH:
            return Parallel(tuple(self.build(part, depth + 1) for part in parts))
        if len(parts := self.series(block)) > 1:
            return sequence(tuple(self.build(part, depth) for part in parts))
        return self.cover(block, depth)

    def leaf(self, node: int, unordered: int) -> Tree:
        """Return a step's tree: behind an await if it starts early or some of its parents are not ordered before it."""
        name = self.graph.names[node]
        sources = self.early.get(name) or self.graph.names_of(unordered)
        return Sequence((Await(name, sources), Step(name))) if sources else Step(name)

    def components(self, block: int) -> list[int]:
        """Split into what no order connects; each part convex, in order of its first node."""
        parts: list[int] = []
        for node in bits(block):
            merged = 1 << node
            linked = self.graph.parents[node] & block
            apart: list[int] = []
            for part in parts:
                if part & linked:
                    merged |= part
                else:
                    apart.append(part)
            parts = [*apart, merged]
        return sorted(parts, key=lambda part: part & -part)

    def series(self, block: int) -> list[int]:
        """Split where everything before stands before everything after; parts in order."""
        parts: list[int] = []
        rest, tail, common = block, 0, -1
        while rest:
            node = rest.bit_length() - 1
            rest ^= 1 << node
            tail |= 1 << node
            common &= self.graph.ancestors[node]
            if rest & ~common == 0:
                parts.append(tail)
                tail, common = 0, -1
        return parts[::-1]

    def cover(self, block: int, depth: int) -> Tree:
        """Return the cheapest exact cover of a prime block that is not nested too deeply."""
        found = [forest.cover(self.graph, block, self.heads(block), self.alone, site) for site in forest.SITES]
        fit = (tree for tree in found if depth + nesting(tree) <= MAX_DEPTH)
        return min((*fit, self.flat(block)), key=forest.price)

    def heads(self, block: int) -> int:
        """Return the nodes of a block that start early, each behind an await of its own."""
        return sum(1 << node for node in bits(block) if self.graph.names[node] in self.early)

    def flat(self, block: int) -> Tree:
        """Return a block as chains side by side: never nested, whatever the graph."""
        return Parallel(tuple(self.chain(path, block) for path in chains(self.graph, block, self.heads(block))))

    def alone(self, node: int) -> Tree:
        """Return a node's tree where all its parents are cared for."""
        return self.leaf(node, 0)

    def chain(self, path: tuple[int, ...], block: int) -> Tree:
        """Return a path as a sequence with an await before every node that has parents elsewhere."""
        items: list[Tree] = []
        for index, node in enumerate(path):
            before = 1 << path[index - 1] if index else 0
            items.append(self.leaf(node, self.graph.parents[node] & block & ~before))
        return sequence(tuple(items))


def decompose(graph: Graph, early: Mapping[str, tuple[str, ...]] | None = None) -> Tree:
    """Return the tree that keeps exactly the graph's order.

    Args:
        graph: The order; not empty.
        early: Steps with an ``any`` or quorum join and their sources: they start a chain of their own with an await
            that each of these wakes.

    Returns:
        A tree in which every node stands once.
    """
    return Decomposition(graph, early or {}).build(graph.everything, 0)
