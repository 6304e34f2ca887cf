"""An immutable directed acyclic graph whose reachability is kept as bitsets, so that 1,000 steps stay fast.

Nodes are numbered in topological order: bit ``i`` of a mask stands for ``names[i]``, and every ancestor of a node has
a lower number than the node itself.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class CycleError(ValueError):
    """The relation has a cycle; ``cycle`` names its nodes in order, each before its dependent."""

    def __init__(self, cycle: tuple[str, ...]) -> None:
        super().__init__(f"these steps wait for each other: {' -> '.join((*cycle, cycle[0]))}")
        self.cycle = cycle


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in topological order, with the mask of all ancestors of each and of its immediate ones (parents).

    ``parents`` is the transitive reduction: a parent is an ancestor that is no ancestor of another ancestor.
    """

    names: tuple[str, ...]
    ancestors: tuple[int, ...]
    parents: tuple[int, ...]

    @classmethod
    def of(cls, needs: Mapping[str, Iterable[str]]) -> Graph:
        """Build from each node's sources. Ties are broken by the mapping's order.

        Raises:
            CycleError: the relation has a cycle.
            KeyError: a source is no node.
        """
        names = topological({name: tuple(sources) for name, sources in needs.items()})
        number = {name: index for index, name in enumerate(names)}
        ancestors: list[int] = []
        for name in names:
            ancestors.append(union(ancestors, (number[source] for source in needs[name])))
        return cls.closed(names, ancestors)

    @classmethod
    def closed(cls, names: Sequence[str], ancestors: Sequence[int]) -> Graph:
        """Build from names in topological order and their already transitive ancestor masks."""
        parents = tuple(_immediate(mask, ancestors) for mask in ancestors)
        return cls(names=tuple(names), ancestors=tuple(ancestors), parents=parents)

    @property
    def everything(self) -> int:
        """The mask of all nodes."""
        return (1 << len(self.names)) - 1

    def names_of(self, mask: int) -> tuple[str, ...]:
        """Return the names that a mask stands for, in topological order."""
        return tuple(self.names[index] for index in bits(mask))

    def longest_path(self) -> tuple[str, ...]:
        """Return one longest chain of nodes: the critical path when every step takes equally long."""
        length: list[int] = []
        via: list[int] = []
        for mask in self.parents:
            best = max(bits(mask), key=length.__getitem__, default=-1)
            length.append(1 + (length[best] if best >= 0 else 0))
            via.append(best)
        node = max(range(len(length)), key=length.__getitem__, default=-1)
        path: list[str] = []
        while node >= 0:
            path.append(self.names[node])
            node = via[node]
        return tuple(reversed(path))


def union(ancestors: Sequence[int], sources: Iterable[int]) -> int:
    """Return the mask of the given nodes and of everything before them."""
    mask = 0
    for source in sources:
        mask |= ancestors[source] | 1 << source
    return mask


def topological(needs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names so that sources come first; among free ones, the mapping's order decides.

    Raises:
        CycleError: no such order exists.
        KeyError: a source is no node.
    """
    place = {name: index for index, name in enumerate(needs)}
    missing = {name: len(set(sources)) for name, sources in needs.items()}
    dependents: dict[str, list[str]] = {name: [] for name in needs}
    for name, sources in needs.items():
        for source in set(sources):
            dependents[source].append(name)
    free = [(place[name], name) for name, count in missing.items() if not count]
    order: list[str] = []
    while free:
        _, name = heapq.heappop(free)
        order.append(name)
        for dependent in dependents[name]:
            missing[dependent] -= 1
            if not missing[dependent]:
                heapq.heappush(free, (place[dependent], dependent))
    if len(order) < len(needs):
        raise CycleError(_cycle(needs, {name for name, count in missing.items() if count}))
    return tuple(order)


def _immediate(mask: int, ancestors: Sequence[int]) -> int:
    found = 0
    while mask:
        last = mask.bit_length() - 1
        found |= 1 << last
        mask &= ~(ancestors[last] | 1 << last)
    return found


def _cycle(needs: Mapping[str, tuple[str, ...]], stuck: set[str]) -> tuple[str, ...]:
    # Every stuck node has a stuck source, so walking backwards must meet itself.
    walk: list[str] = []
    name = next(name for name in needs if name in stuck)
    while name not in walk:
        walk.append(name)
        name = next(source for source in needs[name] if source in stuck)
    return tuple(reversed(walk[walk.index(name) :]))
