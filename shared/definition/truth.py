"""Whether a condition can ever be true, as far as its constants and the schemas of what it compares tell.

A careful half: what cannot be told counts as possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from shared.definition.syntax import Constant, Node

Domain = Callable[["Node"], Mapping[str, Any] | None]
"""Returns the JSON Schema of what a node reads, where there is one."""
Literal = tuple["Node", bool]
"""An atom of a condition, and whether it must hold or must not."""

_MOST_CASES = 128
_COMPARISONS = {"_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def never(conditions: list[Literal], domain: Domain) -> bool:
    """Tell whether these conditions, each to hold or not to hold, surely never come together."""
    cases: list[list[Literal]] = [[]]
    for node, wanted in conditions:
        cases = _product(cases, _cases(node, wanted=wanted))
    return all(_impossible(case, domain) for case in cases)


def _cases(node: Node, *, wanted: bool) -> list[list[Literal]]:
    """Return the ways in which a node can be as wanted: a disjunction of conjunctions of atoms."""
    if node.name == "!_":
        return _cases(node.children[0], wanted=not wanted)
    if node.name in ("_&&_", "_||_"):
        left, right = (_cases(child, wanted=wanted) for child in node.children)
        return _product(left, right) if (node.name == "_&&_") == wanted else [*left, *right][: _MOST_CASES + 1]
    if node.name == "_?_:_":
        test, yes, no = node.children
        chosen = _product(_cases(test, wanted=True), _cases(yes, wanted=wanted))
        return chosen + _product(_cases(test, wanted=False), _cases(no, wanted=wanted))
    return [[(node, wanted)]]


def _product(left: list[list[Literal]], right: list[list[Literal]]) -> list[list[Literal]]:
    """Combine every way of the one with every way of the other; when that is too much, anything is possible."""
    if len(left) * len(right) > _MOST_CASES:
        return [[]]
    return [[*one, *other] for one in left for other in right]


@dataclass(frozen=True, slots=True)
class _Range:
    """What one operand may still be: bounds of numbers (open when ``strict``), listed values, excluded values."""

    low: float = -math.inf
    high: float = math.inf
    low_strict: bool = False
    high_strict: bool = False
    allowed: tuple[Constant, ...] | None = None
    excluded: tuple[Constant, ...] = ()

    def narrowed(self, operator: str, value: Constant) -> _Range:
        """Return what is left after one comparison with a constant."""
        if operator == "==":
            kept = (value,) if self.allowed is None or _among(value, self.allowed) else ()
            return replace(self, allowed=kept)
        if operator == "!=":
            return replace(self, excluded=(*self.excluded, value))
        if not _is_number(value):
            return self
        bound, strict = float(cast("float", value)), operator in "<>"
        if operator.startswith("<") and (bound, not strict) < (self.high, not self.high_strict):
            return replace(self, high=bound, high_strict=strict)
        if operator.startswith(">") and (bound, strict) > (self.low, self.low_strict):
            return replace(self, low=bound, low_strict=strict)
        return self

    def empty(self) -> bool:
        """Tell whether nothing is left."""
        if self.low > self.high or (self.low == self.high and (self.low_strict or self.high_strict)):
            return True
        return self.allowed is not None and not any(self._fits(value) for value in self.allowed)

    def _fits(self, value: Constant) -> bool:
        if _among(value, self.excluded):
            return False
        if not _is_number(value):
            return True
        number = float(cast("float", value))
        above = number > self.low or (number == self.low and not self.low_strict)
        return above and (number < self.high or (number == self.high and not self.high_strict))


def _impossible(case: list[Literal], domain: Domain) -> bool:
    """Tell whether the atoms of one way contradict a constant, a schema or each other."""
    ranges: dict[str, _Range] = {}
    held: dict[str, bool] = {}
    for node, wanted in case:
        if node.kind == "const" and isinstance(node.value, bool) and node.value is not wanted:
            return True
        if held.setdefault(text := spelled(node), wanted) is not wanted:
            return True
        for operand, operator, value in _comparison(node, wanted=wanted):
            text = spelled(operand)
            start = _of_constant(operand) or _of_schema(domain(operand))
            ranges[text] = _with(ranges.get(text, start), operator, value)
    return any(found.empty() for found in ranges.values())


def _with(found: _Range, operator: str, value: Constant | tuple[Constant, ...]) -> _Range:
    if not isinstance(value, tuple):
        return found.narrowed(operator, value)
    if operator == "in":
        kept = value if found.allowed is None else tuple(one for one in found.allowed if _among(one, value))
        return replace(found, allowed=kept)
    return replace(found, excluded=(*found.excluded, *value))


def _comparison(node: Node, *, wanted: bool) -> list[tuple[Node, str, Constant | tuple[Constant, ...]]]:
    """Return operand, operator and constant of a comparison; nothing when it is none."""
    if (
        node.name == "@in"
        and node.children[1].kind == "list"
        and all(_is_const(one) for one in node.children[1].children)
    ):
        values = tuple(one.value for one in node.children[1].children)
        return [(node.children[0], "in" if wanted else "not in", values)]
    if node.name not in _COMPARISONS:
        return []
    operator = _COMPARISONS[node.name]
    left, right = node.children
    if _is_const(left) and not _is_const(right):
        left, right, operator = right, left, _MIRRORED[operator]
    if not _is_const(right):
        return []
    return [(left, operator if wanted else _OPPOSITE[operator], right.value)]


def _of_constant(node: Node) -> _Range | None:
    return _Range(allowed=(node.value,)) if _is_const(node) else None


def _of_schema(schema: Mapping[str, Any] | None) -> _Range:
    if schema is None:
        return _Range()
    given: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    values = cast("list[Any]", given) if isinstance(given, list) else [given]
    plain = given is not None and all(value is None or isinstance(value, str | int | float) for value in values)
    found = _Range(allowed=tuple(values) if plain else None)
    kinds = {"minimum": ">=", "maximum": "<=", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
    for name, operator in kinds.items():
        if _is_number(schema.get(name)):
            found = found.narrowed(operator, schema[name])
    return found


def spelled(node: Node) -> str:
    """Return a text by which equal expressions are recognised."""
    inner = ",".join(spelled(child) for child in node.children)
    return f"{node.kind}{'?' * node.asks}:{node.name}:{node.value!r}({inner})"


def _is_const(node: Node) -> bool:
    return node.kind == "const"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _among(value: Constant, values: tuple[Constant, ...]) -> bool:
    """Tell whether a value is one of several as JSON compares: 1 is 1.0 and not true."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)
