"""Cover of a block by the fewest chains: a minimum path cover by bipartite matching (Kuhn's algorithm on bitsets).

Every matched pair (parent, child) makes the child follow its parent in one chain. Children with a single parent are
matched first: augmenting never unmatches a child, so they keep a chain of their own parent and need no await.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.graph.dag import bits

if TYPE_CHECKING:
    from shared.graph.dag import Graph


def chains(graph: Graph, block: int, heads: int = 0) -> tuple[tuple[int, ...], ...]:
    """Cover the nodes of ``block`` with disjoint paths of the transitive reduction; ``heads`` must start a path.

    Returns the chains by their first node, each a tuple of node numbers.
    """
    parents = {node: graph.parents[node] & block for node in bits(block & ~heads)}
    matching = _Matching(parents)
    for child in sorted(parents, key=lambda node: (parents[node].bit_count(), node)):
        matching.augment(child)
    return tuple(matching.path(node) for node in bits(block) if node not in matching.leader)


@dataclass(frozen=True, slots=True)
class _Matching:
    """Grows by augmenting paths; ``follower`` and ``leader`` are inverse to each other."""

    parents: dict[int, int]
    follower: dict[int, int] = field(default_factory=dict[int, int])
    leader: dict[int, int] = field(default_factory=dict[int, int])

    def augment(self, child: int) -> None:
        """Match the child if that is possible at all, moving others to other parents where needed."""
        suitor: dict[int, int] = {}  # parent -> the child that would follow it
        visited = 0
        queue = deque((child,))
        while queue:
            node = queue.popleft()
            fresh = self.parents[node] & ~visited
            visited |= fresh
            for parent in bits(fresh):
                suitor[parent] = node
                if parent not in self.follower:
                    self._flip(parent, suitor)
                    return
                queue.append(self.follower[parent])

    def _flip(self, parent: int, suitor: dict[int, int]) -> None:
        given: int | None = parent
        while given is not None:
            node = suitor[given]
            left = self.leader.get(node)
            self.follower[given], self.leader[node] = node, given
            given = left

    def path(self, node: int) -> tuple[int, ...]:
        """Return the chain that starts with the node."""
        walked = [node]
        while (node := self.follower.get(node, -1)) >= 0:
            walked.append(node)
        return tuple(walked)
