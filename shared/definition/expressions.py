"""CEL expressions and ``${ ... }`` templates, evaluated over JSON.

A condition is a bare expression. In any other string ``${ expression }`` alone yields the typed value, inside text it
is interpolated, and ``$${`` stands for a literal ``${``. Imports here stay light: handlers load this module.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from shared.definition.growth import guard
from shared.definition.syntax import Node, environment, parse, readable, spoken, variables
from shared.errors import PermanentFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cel_expr_python import cel

_NOT_PLAIN = object()
_PATH = re.compile(r"[a-z_]\w*(\.[a-z_]\w*)+", re.ASCII)
SECRET = re.compile(r"\s*secrets\.([A-Za-z_]\w{0,63})\s*", re.ASCII)
"""The only expression that may read a secret: nothing can be computed from a value that is not there yet."""
_WORD = 2**63
"""Integers of CEL are smaller."""
_QUOTES = ('"""', "'''", '"', "'")


class ExpressionFailure(PermanentFailure):
    """An expression cannot be read or evaluated. ``offset`` counts characters from the start of the text given."""

    def __init__(self, message: str, *, expression: str = "", offset: int = 0) -> None:
        super().__init__(message)
        self.expression = expression
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Slot:
    """One ``${ ... }``: the expression without its braces, and where it begins in the template."""

    expression: str
    offset: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A name that an expression reads, with the fields that follow it: ``steps`` and ``("extract", "output")``."""

    root: str
    fields: tuple[str, ...]
    offset: int


def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
    """Return the JSON value of a bare expression.

    JSON does not tell 5 from 5.0, CEL does not add them. An expression that fails is therefore evaluated once more
    with every number read as a double, so that a ``number`` that happens to be whole behaves like any other.
    Raises ExpressionFailure when the expression is wrong, a name is missing or the result is not JSON.
    """
    program = _compile(expression)
    found = _look_up(expression, names)
    if found is not _NOT_PLAIN:
        return found
    result = _run(program, names)
    if isinstance(result, _Failed):
        again = _run(program, cast("Mapping[str, Any]", _as_doubles(dict(names))))
        if isinstance(again, _Failed):
            raise ExpressionFailure(f"`{_short(expression)}`: {result.reason}", expression=expression)
        result = again
    return _json(result, expression)


def _look_up(expression: str, names: Mapping[str, Any]) -> Any:
    """Return what an expression like ``input.number`` stands for, as CEL would, which takes ten times as long.

    Only where there can be no doubt: names and fields that are there, and a plain value at their end.
    """
    value: Any = names
    try:
        for name in _path(expression):
            value = value[name]
    except (KeyError, TypeError):
        return _NOT_PLAIN
    if value is names:
        return _NOT_PLAIN
    plain = value is None or isinstance(value, bool) or (isinstance(value, str) and value.isascii())
    return value if plain or (isinstance(value, int) and abs(value) < _WORD) else _NOT_PLAIN


@lru_cache(maxsize=2048)
def _path(expression: str) -> tuple[str, ...]:
    """Return the names in an expression that is nothing but names, else none."""
    text = expression.strip()
    return tuple(text.split(".")) if _PATH.fullmatch(text) else ()


def condition(expression: str, names: Mapping[str, Any]) -> bool:
    """Return the value of a condition. Raises ExpressionFailure also when it is anything but true or false."""
    value = evaluate(expression, names)
    if not isinstance(value, bool):
        raise ExpressionFailure(
            f"`{_short(expression)}` is a condition and must be true or false, not {_describe(value)}",
            expression=expression,
        )
    return value


def render(template: Any, names: Mapping[str, Any]) -> Any:
    """Return ``template`` (any JSON) with every ``${ ... }`` in its strings replaced. Raises ExpressionFailure."""
    if isinstance(template, str):
        return _render_text(template, names)
    if isinstance(template, dict):
        return {key: render(value, names) for key, value in cast("dict[str, Any]", template).items()}
    if isinstance(template, list | tuple):
        return [render(value, names) for value in cast("list[Any]", template)]
    return template


@lru_cache(maxsize=2048)
def parts(text: str) -> tuple[str | Slot, ...]:
    """Split a template into literal text and slots. Raises ExpressionFailure for a ``${`` that is never closed."""
    found: list[str | Slot] = []
    literal: list[str] = []
    at = 0
    while at < len(text):
        if text.startswith("$${", at):
            literal.append("${")
            at += 3
        elif text.startswith("${", at):
            end = _slot_end(text, at)
            found += ["".join(literal), Slot(text[at + 2 : end], at + 2)]
            literal = []
            at = end + 1
        else:
            step = _plain_length(text, at)
            literal.append(text[at : at + step])
            at += step
    return tuple(part for part in (*found, "".join(literal)) if part != "")


def slots(template: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Slot]]:
    """Yield every slot of a JSON template with the path of its string. Raises ExpressionFailure."""
    if isinstance(template, str):
        yield from ((path, part) for part in parts(template) if isinstance(part, Slot))
    elif isinstance(template, dict):
        for key, value in cast("dict[str, Any]", template).items():
            yield from slots(value, (*path, key))
    elif isinstance(template, list | tuple):
        for index, value in enumerate(cast("list[Any]", template)):
            yield from slots(value, (*path, index))


def sole_slot(text: Any) -> Slot | None:
    """Return the slot of a string that is nothing but one ``${ ... }``, else None."""
    found = parts(text.strip()) if isinstance(text, str) else ()
    return found[0] if len(found) == 1 and isinstance(found[0], Slot) else None


@lru_cache(maxsize=8192)
def references(expression: str) -> tuple[Reference, ...]:
    """Return what a bare expression reads, in order of appearance. Raises ExpressionFailure for wrong syntax."""
    try:
        tree = parse(expression)
    except RuntimeError as error:
        raise ExpressionFailure(f"`{_short(expression)}`: {first_line(error)}", expression=expression) from None
    return tuple(_references(tree, frozenset()))


def template_references(template: Any) -> tuple[Reference, ...]:
    """Return what all slots of a JSON template read. Raises ExpressionFailure."""
    return tuple(found for _, slot in slots(template) for found in references(slot.expression))


def first_line(error: Exception) -> str:
    """Return the first line of a message of the CEL library, without its picture of the source."""
    return spoken(str(error)).split("\n", 1)[0].removeprefix("INVALID_ARGUMENT: ").removeprefix("ERROR: ")


@dataclass(frozen=True, slots=True)
class _Failed:
    reason: str


@lru_cache(maxsize=2048)
def _compile(expression: str) -> cel.Expression:
    try:
        program = environment().compile(readable(expression), disable_check=True)
        guard(expression)
    except RuntimeError as error:
        raise ExpressionFailure(f"`{_short(expression)}`: {first_line(error)}", expression=expression) from None
    return program


def _run(program: cel.Expression, names: Mapping[str, Any]) -> Any:
    try:
        value = program.eval(data=variables(names))
    except RuntimeError as error:
        return _Failed(first_line(error))
    return _Failed(spoken(str(value.value()))) if value.type().name() == "ERROR" else value.plain_value()


def _as_doubles(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict):
        return {key: _as_doubles(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_as_doubles(item) for item in cast("list[Any]", value)]
    return value


def _json(value: Any, expression: str) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list):
        return [_json(item, expression) for item in cast("list[Any]", value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in cast("dict[Any, Any]", value)):
        return {key: _json(item, expression) for key, item in cast("dict[str, Any]", value).items()}
    raise ExpressionFailure(
        f"`{_short(expression)}` yields {_describe(value)}, which is not JSON: convert it, for example with string()",
        expression=expression,
    )


def _describe(value: Any) -> str:
    names = {"NoneType": "null", "str": "a string", "dict": "an object", "list": "a list", "bytearray": "bytes"}
    if isinstance(value, bool | int | float):
        return str(value).lower()
    kind = type(value).__name__
    return names.get(kind, f"a {kind}")


def _render_text(text: str, names: Mapping[str, Any]) -> Any:
    alone = sole_slot(text)
    if alone is not None:
        return evaluate(alone.expression, names)
    return "".join(part if isinstance(part, str) else as_text(evaluate(part.expression, names)) for part in parts(text))


def as_text(value: Any) -> str:
    """Return a value as it stands inside text. Sorted, so that a prompt has the same bytes in every process."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _plain_length(text: str, at: int) -> int:
    following = text.find("$", at + 1)
    return (following if following >= 0 else len(text)) - at


def _slot_end(text: str, start: int) -> int:
    """Return where the ``}`` stands that closes the ``${`` at ``start``, past strings, maps and comments."""
    depth, at = 0, start + 2
    while at < len(text):
        at = _after_string_or_comment(text, at)
        character = text[at : at + 1]
        if character == "}" and depth == 0:
            return at
        depth += {"{": 1, "}": -1}.get(character, 0)
        at += 1
    raise ExpressionFailure("`${` is never closed by `}`; write `$${` for the characters themselves", offset=start)


def _after_string_or_comment(text: str, at: int) -> int:
    while at < len(text):
        if text.startswith("//", at):
            end = text.find("\n", at)
            at = end + 1 if end >= 0 else len(text)
        elif quote := next((quote for quote in _QUOTES if text.startswith(quote, at)), None):
            at = _string_end(text, at, quote)
        else:
            return at
    return at


def _string_end(text: str, start: int, quote: str) -> int:
    raw = text[start - 1 : start] in ("r", "R") or text[start - 2 : start].lower() in ("rb", "br")
    at = start + len(quote)
    while at < len(text) and not text.startswith(quote, at):
        at += 2 if text[at] == "\\" and not raw else 1
    if at >= len(text):
        raise ExpressionFailure(f"the string that begins with {quote} is never closed", offset=start)
    return at + len(quote)


def _references(node: Node, bound: frozenset[str]) -> Iterator[Reference]:
    root, fields = _chain(node)
    if root.kind == "ident":
        if root.name not in bound:
            yield Reference(root.name, fields, max(root.offset, 0))
    elif root is not node:
        yield from _references(root, bound)
    for index, child in enumerate(_beside_chain(node)):
        inner = bound | set(node.bound) if node.kind == "comprehension" and index else bound
        yield from _references(child, inner)


def _chain(node: Node) -> tuple[Node, tuple[str, ...]]:
    """Follow ``a.b["c"]`` down to ``a``; return it and the fields passed."""
    fields: list[str] = []
    while True:
        if node.kind == "select":
            fields.append(node.name)
        elif _is_index(node):
            fields.append(str(node.children[1].value))
        else:
            return node, tuple(reversed(fields))
        node = node.children[0]


def _is_index(node: Node) -> bool:
    return node.kind == "call" and node.name == "_[_]" and isinstance(node.children[1].value, str)


def _beside_chain(node: Node) -> tuple[Node, ...]:
    return () if node.kind == "select" or _is_index(node) else node.children


def _short(expression: str, limit: int = 120) -> str:
    text = " ".join(expression.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
