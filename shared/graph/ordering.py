"""From the steps' sources and joins to the order that the machine must keep.

Edges into ``all`` joins order. An ``any`` or quorum join may start before some of its sources have ended, so its
edges do not; but what stands before so many of its sources that it cannot start, nor be skipped, without it, does.
Knowing that keeps such a step inside the part of the graph where it belongs and never delays it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.graph.dag import Graph, topological, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Join = str | int


def order_graph(needs: Mapping[str, Sequence[str]], joins: Mapping[str, Join]) -> Graph:
    """Return the order of steps.

    Args:
        needs: Every step's sources.
        joins: ``"all"``, ``"any"`` or the number of a quorum, by step; ``"all"`` where missing.

    Raises:
        CycleError: steps wait for each other.
        KeyError: a source is no step.
    """
    names = topological({name: tuple(sources) for name, sources in needs.items()})
    number = {name: index for index, name in enumerate(names)}
    ancestors: list[int] = []
    for name in names:
        sources = sorted({number[source] for source in needs[name]})
        ancestors.append(_before(ancestors, sources, joins.get(name, "all")))
    return Graph.closed(names, ancestors)


def early(needs: Sequence[str], join: Join) -> bool:
    """Tell whether a step may settle before all its sources have."""
    return join != "all" and len(set(needs)) > 1


def _before(ancestors: Sequence[int], sources: Sequence[int], join: Join) -> int:
    if join == "all" or len(sources) < 2:  # noqa: PLR2004 - of fewer, any and all are the same
        return union(ancestors, sources)
    wanted = 1 if join == "any" else int(join)
    # It runs at the n-th active edge and is skipped at the (m-n+1)-th inactive one: whichever comes first needs this
    # many sources settled, so a node before more than the remaining ones stands before the step.
    settled = max(1, min(wanted, len(sources) - wanted + 1))
    return _in_at_least(len(sources) - settled + 1, (union(ancestors, (source,)) for source in sources))


def _in_at_least(count: int, masks: Iterable[int]) -> int:
    reached = [-1, *[0] * count]
    for mask in masks:
        for level in range(count, 0, -1):
            reached[level] |= reached[level - 1] & mask
    return reached[count]
