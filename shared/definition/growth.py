"""How much larger than its data the value of an expression can be.

The library stops runaway loops by itself, but not `x.map(a, a + a).map(b, b + b)...`, which doubles with every call.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.definition.syntax import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.definition.syntax import Node

MOST = 1000
"""An expression may make at most this many copies of its data."""
_MACRO = re.compile(r"\.\s*(?:map|filter|all|exists|exists_one)\s*\(")
_SCALAR = frozenset(
    {"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_&&_", "_||_", "!_", "@in", "@not_strictly_false", "size"}
)
_MEMBERS = frozenset({"_[_]", "_[?_]", "_?._"})


class TooLarge(RuntimeError):
    """An expression could multiply its data beyond reason."""


def guard(expression: str) -> None:
    """Refuse an expression whose value could be much larger than its data. Raises TooLarge."""
    if is_growing(expression):
        raise TooLarge(f"this could make more than {MOST:,} copies of its data; use fewer `map`s in each other")


def is_growing(expression: str) -> bool:
    """Tell whether an expression could multiply its data; one that cannot be read fails elsewhere."""
    try:
        return len(_MACRO.findall(expression)) > 1 and growth(parse(expression)) > MOST
    except RuntimeError:
        return False


def growth(node: Node, sizes: Mapping[str, int] | None = None) -> int:
    """Return how many copies of its data the value of ``node`` holds at most; ``sizes`` are those of bound names."""
    known = sizes or {}
    match node.kind:
        case "const":
            return 1
        case "ident":
            return known.get(node.name, 1)
        case "select":
            return growth(node.children[0], known)
        case "comprehension":
            return _of_comprehension(node, known)
        case _:
            return _of_call(node, known)


def _of_comprehension(node: Node, known: Mapping[str, int]) -> int:
    """Return the growth of a macro: what one element becomes. The accumulated value is what the step adds to it."""
    element = growth(node.children[0], known)
    bound = {name: 0 if name.startswith("@") else element for name in node.bound}
    return max(1, *(growth(child, {**known, **bound}) for child in node.children[1:]))


def _of_call(node: Node, known: Mapping[str, int]) -> int:
    sizes = [growth(child, known) for child in node.children]
    if node.name == "_?_:_":
        return max(sizes[1:], default=1)
    if node.name in _MEMBERS:
        return sizes[0]
    return 1 if node.name in _SCALAR else sum(sizes)
