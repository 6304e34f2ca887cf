"""What people write who come from other languages, and what it is called in CEL."""

from __future__ import annotations

import re

from shared.definition.names import nearest

FUNCTIONS = (
    *("size", "contains", "startsWith", "endsWith", "matches", "string", "int", "double", "bool", "timestamp"),
    *("duration", "type", "dyn"),
)
"""CEL's standard functions that are of use here. Source: cel-spec, ``doc/langdef.md``."""
_MACROS = {
    "all": "`list.all(one, condition)`",
    "exists": "`list.exists(one, condition)`",
    "exists_one": "`list.exists_one(one, condition)`",
    "filter": "`list.filter(one, condition)`",
    "map": "`list.map(one, value)`",
    "has": "`has(object.field)`",
}
_COUNT = "Count with size(...)."
_NO_CLOCK = "Expressions know no clock: they must say the same when a step runs again."
_NOT_HERE = "CEL has none; compute it in a tool."
_WORDS = {
    **dict.fromkeys(("len", "length", "count"), _COUNT),
    **dict.fromkeys(("includes", "include", "has_key", "indexOf"), "Ask with text.contains(part), or `value in list`."),
    **dict.fromkeys(("startswith", "starts_with"), "Write startsWith(...)."),
    **dict.fromkeys(("endswith", "ends_with"), "Write endsWith(...)."),
    **dict.fromkeys(("match", "test", "search"), "Write text.matches(pattern)."),
    **dict.fromkeys(("str", "toString", "to_string"), "Convert with string(...)."),
    **dict.fromkeys(("float", "number", "parseFloat"), "Convert with double(...)."),
    **dict.fromkeys(("integer", "parseInt"), "Convert with int(...)."),
    **dict.fromkeys(("date", "datetime"), 'Write timestamp("2026-01-31T00:00:00Z").'),
    **dict.fromkeys(("now", "today"), _NO_CLOCK),
    **dict.fromkeys(("min", "max", "sum", "abs", "round", "floor", "ceil"), _NOT_HERE),
    **dict.fromkeys(("upper", "lower", "toUpperCase", "toLowerCase", "trim", "strip", "split", "join"), _NOT_HERE),
    **dict.fromkeys(("any", "some"), "Write list.exists(one, condition)."),
    "not": "Write `!` for not.",
    "every": "Write list.all(one, condition).",
}
_NAMES = {
    "True": "Write `true`.",
    "False": "Write `false`.",
    **dict.fromkeys(
        ("None", "nil", "undefined", "NULL", "Null"), "Write `null`; has(...) tells whether a field is there."
    ),
}
_SIGNS = (
    (r"and\b", "Write `&&` for and."),
    (r"&", "Write `&&` for and."),
    (r"or\b", "Write `||` for or."),
    (r"\|", "Write `||` for or."),
    (r"not\b|(?<=not )\S", "Write `!` for not."),
    (r"if\b|then\b|else\b", "Write a choice as `condition ? one : other`."),
    (r"=>|->", "Name the element first: list.map(one, one.field)."),
    (r"=", "Compare with `==`."),
    (r"(?<=<)>", "Write `!=` for unequal."),
    (r"(?<=\?)\?", "Write `has(object.field) ? object.field : other`."),
    (r"is\b", "Compare with `==`, as in `value == null`."),
    (r"matches\b|contains\b|like\b", "Write it as a call: text.matches(pattern), text.contains(part)."),
    (r"\*|\^", "CEL has + - * / and %, no powers."),
    (r"(?<=f)['\"]", "Interpolate with `${ ... }` inside a text of the file."),
    (r"`", "Write texts in ' or \"."),
    (r"(?<=\d)[smhdw]\b", 'Write durations as duration("1h").'),
    (r"\)", "There is one ) too many."),
    (r"\$", "Inside `${ ... }` and in conditions names stand as they are, without $."),
    (r"\s*$", "Complete it: a value or a closing bracket is missing."),
)
_MISSING = re.compile(r"Syntax error: missing '(.)' at")
_UNREADABLE = re.compile(
    r"Syntax error: (?:mismatched input|extraneous input|token recognition error at:|no viable alternative at input)"
    r" '(.*)'\.?"
)


def for_syntax(text: str, offset: int, message: str) -> tuple[str, str]:
    """Return a syntax error of the library in plain words, and what to write instead if that is known."""
    if missing := _MISSING.match(message):
        return f"a `{missing[1]}` is missing", f"Add the `{missing[1]}`."
    token = _UNREADABLE.match(message)
    signs = (remedy for sign, remedy in _SIGNS if re.compile(sign).match(text, offset))
    return _unreadable(token[1]) if token else message, next(signs, "")


def _unreadable(what: str) -> str:
    return "the expression ends too early" if what == "<EOF>" else f"`{what.strip()}` cannot stand here"


def for_function(name: str) -> str:
    """Return what an unknown function may be called in CEL."""
    if name in _MACROS:
        return f"Write {_MACROS[name]}."
    if name in FUNCTIONS:
        return f"Write `text.{name}(...)`."
    return (
        _WORDS.get(name) or nearest(name, (*FUNCTIONS, *_MACROS)) or f"Functions: {', '.join((*FUNCTIONS, *_MACROS))}."
    )


def for_name(name: str) -> str:
    """Return what an unknown name may be called in CEL; empty when it is none of other languages' constants."""
    return _NAMES.get(name, "")


def for_field(name: str, kind: str) -> str:
    """Return how to ask a value of this CEL type, which has no fields, for what ``name`` seems to ask."""
    if name in _WORDS or name == "size":
        return _WORDS.get(name, _COUNT)
    return "Name an element, as in `list[0]`, or ask for all with list.map(...)." if kind.startswith("list") else ""
