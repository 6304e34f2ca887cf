"""Decomposition of an order into sequence, parallel and awaits, without inserting any barrier.

Recursively: components of the comparability graph run in parallel; components of the incomparability graph run in
sequence; what has neither form (a prime block, for example a→c, a→d, b→d) is covered with chains, and every
dependency between chains becomes an await before the dependent step. With zero overheads the makespan of the tree
equals the critical path of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.graph.chains import chains
from shared.graph.dag import Graph, bits
from shared.graph.tree import Await, Parallel, Sequence, Step, Tree, sequence

if TYPE_CHECKING:
    from collections.abc import Mapping

# Parallel states nested deeper than this are laid flat as chains with awaits: nobody reads such a drawing, and the
# nesting of a definition stays bounded whatever the graph.
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class _Work:
    graph: Graph
    early: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def build(self, block: int, depth: int) -> Tree:
        if block & (block - 1) == 0:
            return self.leaf(block.bit_length() - 1, 0)
        if len(parts := self.components(block)) > 1 and depth < MAX_DEPTH:
            return Parallel(tuple(self.build(part, depth + 1) for part in parts))
        if len(parts := self.series(block)) > 1:
            return sequence(tuple(self.build(part, depth) for part in parts))
        return self.cover(block)

    def leaf(self, node: int, unordered: int) -> Tree:
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

    def cover(self, block: int) -> Tree:
        heads = sum(1 << node for node in bits(block) if self.graph.names[node] in self.early)
        return Parallel(tuple(self.chain(path, block) for path in chains(self.graph, block, heads)))

    def chain(self, path: tuple[int, ...], block: int) -> Tree:
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
    return _Work(graph, early or {}).build(graph.everything, 0)
