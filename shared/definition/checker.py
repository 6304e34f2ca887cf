"""Checks one CEL expression against declared types and says what is wrong, where, and what to write instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cel_expr_python import cel

from shared.definition.growth import TooLarge, guard
from shared.definition.idioms import for_field, for_function, for_name, for_syntax
from shared.definition.names import listed, nearest
from shared.definition.syntax import Node, TooLong, parse, readable, spoken, variables, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.definition.types import Shape, TypeSpace

_ERROR = re.compile(r"^(?:INVALID_ARGUMENT: )?ERROR: <input>:(\d+):(\d+): (.*?)(?: \[INVALID_ARGUMENT\])?$")
_FIELD = re.compile(r"undefined field '(.*)' not found in struct '(.*)'")
_OVERLOAD = re.compile(r"found no matching overload for '(.*)' applied to '\((.*)\)'")
_UNDECLARED = re.compile(r"undeclared reference to '(.*)' \(in container")
_MESSAGE = re.compile(r"signalbox\.[\w.]+")
_SELECT = re.compile(r"expression of type '(.*)' cannot be the operand of a select operation")
_SELECTED = re.compile(r"\.\s*(\w+)")
_OPERATOR = re.compile(r"_(?P<infix>[^\[_]+)_|(?P<prefix>[!-])_|@(?P<word>in)")
_COMPARISONS = frozenset({"_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "@in"})
_LITERAL = re.compile(r"-?(?:0x[0-9a-fA-F]+|[0-9]+)")
_BEHIND = re.compile(r"(?:[<>]=?|[=!]=)\s*(-?\d+)(?![\w.])")
_BEFORE = re.compile(r"(?:^|[\s(,&|?:!<>=])(\d+)\s*$")
_NUMBERS = frozenset({"int", "uint", "double"})
_MOST_EDITS = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of an expression; ``offset`` counts characters from its start."""

    offset: int
    message: str
    remedy: str = ""


_TOO_DEEP = Problem(0, "it is nested more than 32 levels deep", "Split it, for example with a transform.")


@dataclass(frozen=True, slots=True)
class Checked:
    """The type of an expression, or its problems."""

    type: cel.Type | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Names:
    """Variables in scope, and the space their message types live in."""

    space: TypeSpace
    shapes: Mapping[str, Shape]


def check_expression(expression: str, names: Names) -> Checked:
    """Return the expression's type or what is wrong with it.

    A whole-number literal that is compared with a ``number`` is read as one: JSON does not tell 5000 from 5000.0.
    """
    types = variables({name: shape.cel() for name, shape in names.shapes.items()})
    try:
        guard(expression)
        environment = cel.NewEnv(descriptor_pool=names.space.pool, variables=types)
        return check_text(readable(expression), environment, names)
    except (TooLong, TooLarge) as error:
        return Checked(None, (Problem(0, str(error), "Split it, for example with a transform."),))


def check_text(expression: str, environment: cel.Env, names: Names) -> Checked:
    """Check an expression in an environment that exists already."""
    text, edits = expression, list[int]()
    for _ in range(_MOST_EDITS):
        try:
            return Checked(environment.compile(text).return_type())
        except RuntimeError as error:
            told = spoken(str(error))
        if "recursion" in told:
            return Checked(None, (_TOO_DEEP,))
        at = _literal_to_widen(text, told)
        if at is None:
            return Checked(None, tuple(_problems(text, edits, told, names)))
        text, edits = _widened(text, edits, at)
    return Checked(None, (Problem(0, "too many whole numbers compared with numbers", "Write them with `.0`."),))


def type_name(kind: str) -> str:
    """Return a CEL type as readers of JSON know it."""
    kind = _MESSAGE.sub("object", kind)
    plain = {"google.protobuf.Value": "anything", "map(string, dyn)": "object", "null_type": "null"}
    return plain.get(kind, kind.replace("wrapper(", "optional ").rstrip(")") if "wrapper(" in kind else kind)


def _literal_to_widen(text: str, told: str) -> int | None:
    """Return where a whole-number literal stands that is compared with a double, if the message says so."""
    for offset, message in _errors(text, told):
        overload = _OVERLOAD.fullmatch(message)
        if overload is None or overload[1] not in _COMPARISONS or "double" not in overload[2]:
            continue
        beside = _whole_beside(text, offset)
        if beside is not None:
            return beside
        found = next((node for node in walk(parse(text)) if node.kind == "call" and node.offset == offset), None)
        literals = [one for child in (found.children if found else ()) for one in (child, *child.children)]
        whole = next((one for one in literals if _is_whole(one, text)), None)
        if whole is not None:
            return whole.offset
    return None


def _whole_beside(text: str, operator: int) -> int | None:
    """Return where a whole-number literal stands right beside an operator, without parsing anything."""
    behind = _BEHIND.match(text, operator)
    if behind is not None:
        return behind.start(1)
    before = _BEFORE.search(text, max(operator - 40, 0), operator)
    return before.start(1) if before is not None else None


def _is_whole(node: Node, text: str) -> bool:
    if node.kind != "const" or type(node.value) is not int or node.offset < 0:
        return False
    match = _LITERAL.match(text, node.offset)
    return match is not None and text[match.end() : match.end() + 1] not in (".", "e", "E", "u", "U")


def _widened(text: str, edits: list[int], at: int) -> tuple[str, list[int]]:
    """Write ``.0`` behind the literal at ``at``; remember where, so that columns can be told as the author counts."""
    match = _LITERAL.match(text, at)
    end = match.end() if match else at
    literal = text[at:end]
    shown = f"{int(literal, 0)}.0" if "x" in literal else f"{literal}.0"
    return text[:at] + shown + text[end:], [*edits, at]


def _problems(text: str, edits: list[int], told: str, names: Names) -> list[Problem]:
    errors = _errors(text, told)
    # What cannot be read after the first such place is mostly its consequence.
    first = [error for error in errors if error[1].startswith("Syntax error")][:1]
    found = [_problem(text, offset, message, names) for offset, message in first or errors]
    shifted = [
        Problem(one.offset - 2 * sum(edit < one.offset for edit in edits), one.message, one.remedy) for one in found
    ]
    return shifted or [Problem(0, told.split("\n", 1)[0])]


def _errors(text: str, told: str) -> list[tuple[int, str]]:
    """Return offset and message of every error in the library's report."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    matches = [match for line in told.split("\n") if (match := _ERROR.match(line)) and "*error*" not in match[3]]
    told_once = dict.fromkeys((_offset(starts, int(match[1]), int(match[2])), match[3]) for match in matches)
    return list(told_once)


def _offset(starts: list[int], line: int, column: int) -> int:
    """Return the offset of a line and column; that of the whole where the library names no line of the text."""
    return starts[line - 1] + max(column - 1, 0) if line < len(starts) else 0


def _problem(text: str, offset: int, message: str, names: Names) -> Problem:
    if match := _FIELD.fullmatch(message):
        known = names.space.fields.get(match[2], ())
        return Problem(offset, f"undefined field '{match[1]}'", nearest(match[1], known) or f"Fields: {listed(known)}.")
    if match := _UNDECLARED.match(message):
        return _undeclared(text, offset, match[1], names)
    if match := _OVERLOAD.fullmatch(message):
        return _mismatch(offset, match[1], [type_name(one) for one in _split(match[2])])
    if match := _SELECT.fullmatch(message):
        kind, selected = type_name(match[1]), _SELECTED.match(text, offset)
        return Problem(offset, f"`{kind}` has no fields", for_field(selected[1] if selected else "", kind))
    return Problem(offset, *for_syntax(text, offset, message.split(" expecting ", 1)[0]))


def _undeclared(text: str, offset: int, name: str, names: Names) -> Problem:
    root = name.split(".", 1)[0]
    if text[offset : offset + 1] == "(" and "." not in name:  # a call stands where its arguments begin
        return Problem(max(offset - len(name), 0), f"unknown function '{name}'", for_function(name))
    if root in names.shapes:
        return Problem(offset, f"`{name}` cannot be called", "CEL's standard functions and macros are available.")
    remedy = for_name(root) or nearest(root, names.shapes) or f"Names here: {listed(sorted(names.shapes))}."
    return Problem(max(offset - len(root), 0) if "." in name else offset, f"unknown name '{root}'", remedy)


def _mismatch(offset: int, function: str, kinds: list[str]) -> Problem:
    match = _OPERATOR.fullmatch(function)
    operator = next((group for group in match.groups() if group), "") if match else ""
    if len(kinds) == 2 and operator:  # noqa: PLR2004 - an infix operator has two sides
        shown = f"{kinds[0]} {operator} {kinds[1]}"
    elif function == _CHOICE:
        shown = f"{kinds[0]} ? {kinds[1]} : {kinds[2]}"
    elif function == "_[_]":
        shown = f"{kinds[0]}[{kinds[-1]}]"
    else:
        shown = f"{operator or function}({', '.join(kinds)})"
    return Problem(offset, f"`{shown}` does not fit", _remedy(function, kinds))


_CHOICE = "_?_:_"
_REMEDIES: tuple[tuple[Callable[[str, list[str]], bool], str], ...] = (
    (
        lambda function, kinds: function == _CHOICE and (kinds[0] != "bool" or not set(kinds[1:]) <= _NUMBERS),
        "A choice asks a condition, true or false, and both of its values are of one type.",
    ),
    (
        lambda _, kinds: "google.protobuf.Timestamp" in kinds,
        'Add a duration to a time, as in `+ duration("24h")`, or compare it with another timestamp(...).',
    ),
    (
        lambda function, kinds: len(set(kinds)) > 1 and set(kinds[function == _CHOICE :]) <= _NUMBERS,
        "Whole and fractional numbers do not mix: write literals as 1.0, convert others with double(...).",
    ),
    (
        lambda function, kinds: function == "_[_]" and kinds[0] == "object",
        'Write a field as `.name`, not `["name"]`.',
    ),
    (lambda function, kinds: function == "_+_" and "string" in kinds, "Convert the other side with string(...)."),
    (lambda function, _: function == "contains", "Ask a list with `value in list`."),
    (
        lambda _function, _kinds: True,
        "Compare and combine values of one type; convert with string(...), double(...) or int(...).",
    ),
)


def _remedy(function: str, kinds: list[str]) -> str:
    return next(remedy for fits, remedy in _REMEDIES if fits(function, kinds))


def _split(kinds: str) -> list[str]:
    """Split ``a, map(b, c)`` at the commas outside parentheses."""
    found, depth = [""], 0
    for character in kinds:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [kind.strip() for kind in found]
