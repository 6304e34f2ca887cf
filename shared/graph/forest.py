"""Cover of a prime block by a forest: as few awaits as exactness allows.

A step with one parent stands directly after it, beside the parent's other children. Steps with the same several
parents stand together after a *join*, a Parallel of exactly the trees that hold these parents, when everything in those
trees must come before them anyway; else they stand together behind one await. Whatever already stands before a join is
frozen: nothing is added there any more, because the join would wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from shared.graph.dag import bits
from shared.graph.tree import Await, Parallel, Sequence, Step, Tree, sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.graph.dag import Graph


@dataclass(eq=False, slots=True)
class _Place:
    """A node of the forest: a step, or what stands before a group of steps (a join, an await), or the root."""

    up: _Place | None = None
    node: int = -1
    joins: list[_Place] = field(default_factory=list["_Place"])
    waits: tuple[int, int] | None = None
    after: list[_Place] = field(default_factory=list["_Place"])
    frozen: bool = False
    content: int = 0


def _lineage(place: _Place) -> list[_Place]:
    """Return the places from the root to this one."""
    line = [place]
    while (up := line[-1].up) is not None:
        line.append(up)
    return line[::-1]


Site = Literal["root", "meeting", "parent"]
"""Where an await stands: beside everything, where its sources' trees meet, or after one of its sources."""
SITES: tuple[Site, ...] = ("parent", "meeting", "root")


def cover(graph: Graph, block: int, heads: int, leaf: Callable[[int], Tree], site: Site) -> Tree:
    """Return the tree of a block.

    Args:
        graph: The order.
        block: Its nodes to cover.
        heads: Nodes that have an await of their own, which covers all their parents.
        leaf: Makes the tree of a single node.
        site: Where awaits stand; all are exact, which is cheapest depends on the graph.
    """
    return _Forest(graph, block, heads, site).tree(leaf)


class _Forest:
    def __init__(self, graph: Graph, block: int, heads: int, site: Site) -> None:
        self._graph = graph
        self._site = site
        self._root = _Place()
        self._places = {node: _Place(node=node, content=1 << node) for node in bits(block)}
        groups: dict[int, list[int]] = {}
        for node in bits(block):
            parents = graph.parents[node] & block
            if parents & (parents - 1) and not heads >> node & 1:
                groups.setdefault(parents, []).append(node)
            elif parents and not parents & (parents - 1):
                self._attach(self._places[node], self._places[parents.bit_length() - 1])
            else:
                self._attach(self._places[node], self._root)
        self._fill(self._root)
        for parents, nodes in groups.items():
            self._group(parents, nodes)

    def _attach(self, place: _Place, up: _Place) -> None:
        place.up = up
        up.after.append(place)

    def _fill(self, root: _Place) -> None:
        """Sum up what every tree holds, children first: they have higher numbers than their parents."""
        for node in sorted(self._places, reverse=True):
            place = self._places[node]
            if place.up is not None and place.up is not root:
                place.up.content |= place.content

    def _group(self, parents: int, nodes: list[int]) -> None:
        lines = [_lineage(self._places[parent]) for parent in bits(parents)]
        level = _common(lines)
        meeting = lines[0][level - 1]
        trees = list(dict.fromkeys(line[level] for line in lines if len(line) > level))
        group = _Place()
        if self._may_join(lines[0][:level], trees, self._graph.ancestors[nodes[0]]):
            group.joins = trees
            meeting.after = [place for place in meeting.after if place not in trees]
            for tree in trees:
                tree.up, tree.frozen = group, True
                group.content |= tree.content
        else:
            meeting = self._awaiting(lines, lines[0][: level + 1])
            follows = 1 << meeting.node if meeting.node >= 0 else 0
            group.waits = (nodes[0], parents & ~follows)
        self._attach(group, meeting)
        for node in nodes:
            self._attach(self._places[node], group)
            group.content |= self._places[node].content
        for place in _lineage(group)[:-1]:
            place.content |= group.content

    def _awaiting(self, lines: list[list[_Place]], line: list[_Place]) -> _Place:
        """Return the place after which a group stands with its await; ``line`` leads to the first tree of a source."""
        if self._site == "root":
            return self._root
        if self._site == "parent":
            free = (line[-1] for line in lines if not line[-1].after and not any(place.frozen for place in line))
            if (found := next(free, None)) is not None:
                return found
        return _thawed(line)

    @staticmethod
    def _may_join(line: list[_Place], trees: list[_Place], before: int) -> bool:
        """Tell whether the trees hold nothing but what comes before the group anyway, and are free to be joined."""
        if any(place.frozen for place in (*line, *trees)):
            return False
        return all(tree.content & ~before == 0 for tree in trees)

    def tree(self, leaf: Callable[[int], Tree]) -> Tree:
        """Return the finished tree."""
        done: dict[_Place, Tree] = {}
        for place in reversed(_preorder(self._root)):
            items: list[Tree] = []
            if place.joins:
                items.append(_together(done[tree] for tree in place.joins))
            if place.waits:
                step, sources = place.waits
                items.append(Await(self._graph.names[step], self._graph.names_of(sources)))
            if place.node >= 0:
                items.append(leaf(place.node))
            if place.after:
                items.append(_together(done[tree] for tree in place.after))
            done[place] = sequence(tuple(items))
        return done[self._root]


def _preorder(root: _Place) -> list[_Place]:
    found, stack = list[_Place](), [root]
    while stack:
        place = stack.pop()
        found.append(place)
        stack += [*place.joins, *place.after]
    return found


def _common(lines: list[list[_Place]]) -> int:
    """Return how many places, counted from the root, all lines share."""
    level = 0
    while all(len(line) > level and line[level] is lines[0][level] for line in lines):
        level += 1
    return level


def _thawed(line: list[_Place]) -> _Place:
    """Return the last place of a line before its last one that is not frozen; a frozen tree's own join is outside."""
    for index, place in enumerate(line):
        if place.frozen:
            return line[index - 2]
    return line[-2]


def _together(trees: Iterable[Tree]) -> Tree:
    found = tuple(trees)
    return found[0] if len(found) == 1 else Parallel(found)


def price(tree: Tree) -> tuple[int, int, int]:
    """Return how many states a tree has besides its steps, how many of these are awaits, and the wakes they need."""
    states, awaits, wakes, stack = 0, 0, 0, [tree]
    while stack:
        match stack.pop():
            case Step():
                pass
            case Await(_, sources):
                states, awaits, wakes = states + 1, awaits + 1, wakes + len(sources)
            case Sequence(items):
                stack += items
            case Parallel(branches):
                states += 1
                stack += branches
    return states, awaits, wakes
