"""The syntax tree of a CEL expression, read from the form in which the library serialises it.

The library parses and checks but shows no tree. Its serialised form is the public ``cel.expr.ParsedExpr`` message;
the few fields needed are decoded here by hand, so that the runtime loads no generated classes.
Source of the field numbers: cel-spec, ``proto/cel/expr/syntax.proto``.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cel_expr_python import cel

T = TypeVar("T")

Kind = Literal["const", "ident", "select", "call", "list", "struct", "comprehension"]
Fields = dict[int, list["int | bytes"]]
Constant = str | float | bool | None

_BYTES = 2
_SIZES = {1: 8, 5: 4}  # of the wire types with a fixed size
_MORE = 0x80  # the high bit of a byte says that more follow
_CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _COMPREHENSION = 3, 4, 5, 6, 7, 8, 9
_KINDS: dict[int, Kind] = {
    _CONST: "const",
    _IDENT: "ident",
    _SELECT: "select",
    _CALL: "call",
    _LIST: "list",
    _STRUCT: "struct",
    _COMPREHENSION: "comprehension",
}
_CONST_BOOL, _CONST_INT, _CONST_UINT, _CONST_DOUBLE, _CONST_STRING = 2, 3, 4, 5, 6

MAX_LENGTH = 4000
"""Characters of one expression. The library bounds the depth (32) and the iterations, not the time to parse."""
_LOOP = re.compile(
    r"""[rR]?(?:\"{3}.*?\"{3}|'{3}.*?'{3})|[rR]"[^"]*"|[rR]'[^']*'|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|//[^\n]*
    |(?<![\w.])loop(?!\w)""",
    re.DOTALL | re.VERBOSE,
)
_LOOP_ALIAS = "lo_p"


@dataclass(frozen=True, slots=True)
class Node:
    """One node. ``name`` is the identifier, the selected field or the function; ``value`` that of a constant.

    ``offset`` counts code points from 0; -1 where the library gives none. ``bound`` are the names that a
    comprehension (``all``, ``exists``, ``map``, ...) binds in all children but the first. ``asks`` marks ``has(...)``.
    """

    kind: Kind
    name: str = ""
    children: tuple[Node, ...] = ()
    value: Constant = None
    offset: int = -1
    bound: tuple[str, ...] = ()
    asks: bool = False


@lru_cache(maxsize=1)
def environment() -> cel.Env:
    """Return the environment without declarations; the library is loaded with the first expression, not before."""
    from cel_expr_python import cel  # noqa: PLC0415 - handlers import this module but often evaluate nothing

    return cel.NewEnv()


class TooLong(RuntimeError):
    """An expression is longer than anybody would read."""


def readable(expression: str) -> str:
    """Return the expression as the library reads it: CEL reserves the word ``loop``, workflow files use it as a name.

    Every character keeps its place. Raises TooLong.
    """
    if len(expression) > MAX_LENGTH:
        raise TooLong(f"{len(expression):,} characters are more than the {MAX_LENGTH:,} that an expression may have")
    if "loop" not in expression:
        return expression
    return _LOOP.sub(lambda match: _LOOP_ALIAS if match[0] == "loop" else match[0], expression)


def spoken(message: str) -> str:
    """Return a message of the library with names as the author wrote them."""
    return message.replace(_LOOP_ALIAS, "loop")


def variables(names: Mapping[str, T]) -> dict[str, T]:
    """Return names as the library knows them."""
    return {_LOOP_ALIAS if name == "loop" else name: value for name, value in names.items()}


@lru_cache(maxsize=8192)
def parse(expression: str) -> Node:
    """Parse ``expression`` without checking names or types.

    Raises RuntimeError: the library's own message, with line and column, when the syntax is wrong.
    """
    serialised = environment().compile(readable(expression), disable_check=True).serialize()
    parsed = _message(_message(serialised)[2][0])
    info = _message(parsed[3][0])
    positions = dict(_position(entry) for entry in info.get(4, []))
    return _node(parsed[2][0], positions)


def walk(node: Node) -> Iterator[Node]:
    """Yield ``node`` and everything below it, parents first."""
    yield node
    for child in node.children:
        yield from walk(child)


def _position(entry: int | bytes) -> tuple[int, int]:
    fields = _message(entry)
    return _number(fields, 1), _number(fields, 2)


def _node(data: int | bytes, positions: dict[int, int]) -> Node:
    fields = _message(data)
    offset = positions.get(_number(fields, 2), -1)
    for number, kind in _KINDS.items():
        if number in fields:
            return _typed(kind, _message(fields[number][0]), offset, positions)
    return Node("const", offset=offset)


def _typed(kind: Kind, body: Fields, offset: int, positions: dict[int, int]) -> Node:
    match kind:
        case "const":
            node = Node(kind, value=_constant(body), offset=offset)
        case "ident":
            node = Node(kind, name=spoken(_text(body, 1)), offset=offset)
        case "select":
            asks = bool(_number(body, 3))
            node = Node(kind, _text(body, 2), _nodes(body, positions, 1), offset=offset, asks=asks)
        case "call":
            node = Node(kind, _text(body, 2), _nodes(body, positions, 1, 3), offset=offset)
        case "list":
            node = Node(kind, children=_nodes(body, positions, 1), offset=offset)
        case "struct":
            node = _struct(body, offset, positions)
        case "comprehension":
            bound = tuple(name for name in (_text(body, 1), _text(body, 3), _text(body, 8)) if name)
            node = Node(kind, "", _nodes(body, positions, 2, 4, 5, 6, 7), offset=offset, bound=bound)
    return node


def _struct(body: Fields, offset: int, positions: dict[int, int]) -> Node:
    entries = [_message(entry) for entry in body.get(2, [])]
    children = [node for entry in entries for node in _nodes(entry, positions, 3, 4)]
    return Node("struct", _text(body, 1), tuple(children), offset=offset)


def _nodes(body: Fields, positions: dict[int, int], *numbers: int) -> tuple[Node, ...]:
    return tuple(_node(data, positions) for number in numbers for data in body.get(number, []))


def _constant(body: Fields) -> Constant:
    if _CONST_STRING in body:
        return _text(body, _CONST_STRING)
    if _CONST_INT in body:
        value = _number(body, _CONST_INT)
        return value - (1 << 64) if value >= 1 << 63 else value
    if _CONST_DOUBLE in body and isinstance(raw := body[_CONST_DOUBLE][-1], bytes):
        return float(struct.unpack("<d", raw)[0])
    if _CONST_BOOL in body:
        return bool(_number(body, _CONST_BOOL))
    return _number(body, _CONST_UINT) if _CONST_UINT in body else None


def _number(body: Fields, number: int) -> int:
    value = body.get(number, [0])[-1]
    return value if isinstance(value, int) else 0


def _text(body: Fields, number: int) -> str:
    value = body.get(number, [b""])[-1]
    return value.decode() if isinstance(value, bytes) else ""


def _message(data: int | bytes) -> Fields:
    """Decode one message of the protocol-buffer wire format into its raw fields."""
    fields: Fields = {}
    at = 0
    data = data if isinstance(data, bytes) else b""
    end = len(data)
    while at < end:
        key, at = (data[at], at + 1) if data[at] < _MORE else _varint(data, at)
        wire = key & 7
        value, size = 0, _SIZES.get(wire, 0)
        if not size:
            value, at = (data[at], at + 1) if data[at] < _MORE else _varint(data, at)
            size = value if wire == _BYTES else 0
        fields.setdefault(key >> 3, []).append(data[at : at + size] if wire else value)
        at += size
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, at
        shift += 7
