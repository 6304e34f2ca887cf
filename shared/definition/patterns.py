"""Event patterns: whether EventBridge would take one, and whether it matches what our own runs cause.

Source: EventBridge User Guide, "Event patterns" and "Comparison operators".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, cast

from shared.definition.names import listed, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shared.definition.yaml_tree import Path

KEYS = ("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail")
_OBJECTS = ("detail",)
_OR = "$or"
_DEEPEST = 20
_COMPARISONS = ("<", "<=", "=", ">=", ">")
_FROM, _TO = (">", ">="), ("<", "<=")
LONGEST = 2048
"""Characters of a pattern. Source: EventBridge User Guide, "Amazon EventBridge quotas"."""
_ENDED = "Step Functions Execution Status Change"
OURS = (
    ("aws.states", _ENDED),
    ("aws.states", "AWS API Call via CloudTrail"),
    ("aws.lambda", "AWS API Call via CloudTrail"),
)
"""Source and detail-type of events that runs cause on the default bus: who starts runs by them starts runs without end.

What Signalbox announces itself goes to a bus of its own.
"""
_NAMES = ("signalbox-", "Signalbox")
"""How the names of our machines begin."""

Told = tuple["Path", str, str]
"""Where in the pattern, what is wrong, what to do."""


def faults(pattern: Mapping[str, Any]) -> Iterator[Told]:
    """Yield what EventBridge would refuse."""
    if not pattern:
        yield (), "a pattern that asks for nothing matches every event", "Name a source: {source: [app.uploads]}."
    size = len(json.dumps(pattern, separators=(",", ":"), ensure_ascii=False, default=str))
    if size > LONGEST:
        yield (), f"the pattern has {size:,} characters as JSON: at most {LONGEST:,} can be deployed", "Ask for less."
    for key in (key for key in pattern if key not in (*KEYS, _OR)):
        yield (key,), f"an event has no `{key}` at its top", nearest(key, KEYS) or f"Fields there: {listed(KEYS)}."
    for key in (key for key in pattern if key in KEYS and key not in _OBJECTS and isinstance(pattern[key], dict)):
        yield (key,), f"`{key}` is no object: expected a list of values", f"Write {key}: [...]."
    for key, value in pattern.items():
        yield from _of_field(key, value, (key,))


def _of_field(key: str, value: Any, path: Path) -> Iterator[Told]:
    if len(path) > _DEEPEST:
        yield path, "the pattern is nested too deep", ""
    elif key == _OR:
        yield from _of_alternatives(value, path)
    elif isinstance(value, dict):
        yield from _of_object(cast("dict[str, Any]", value), path)
    elif not isinstance(value, list):
        yield path, f"`{key}`: expected a list of values", f"Write {key}: [{_shown(value)}]."
    else:
        yield from _of_list(key, cast("list[Any]", value), path)


def _of_object(value: dict[str, Any], path: Path) -> Iterator[Told]:
    if not value:
        yield path, f"`{path[-1]}` asks for nothing", "Name a field of it, or remove it."
    for key, inner in value.items():
        yield from _of_field(str(key), inner, (*path, key))


def _of_list(key: str, values: list[Any], path: Path) -> Iterator[Told]:
    if not values:
        yield path, f"`{key}`: an empty list matches no event", "List the values that fit."
    for index, one in enumerate(values):
        if isinstance(one, dict):
            yield from _of_matcher(cast("dict[str, Any]", one), (*path, index))
        elif one is None:
            yield (*path, index), f"`{key}`: null cannot be deployed", "Match other fields, and look at it in a `when`."
        elif isinstance(one, list):
            yield (*path, index), f"`{key}`: a list inside a list is no value", "Write the values one after another."


def _of_alternatives(value: Any, path: Path) -> Iterator[Told]:
    parts = cast("list[Any]", value) if isinstance(value, list) else []
    if len(parts) < 2 or not all(isinstance(one, dict) for one in parts):  # noqa: PLR2004 - a choice has two
        yield path, "`$or`: expected a list of at least two patterns", "Write $or: [{...}, {...}]."
        return
    for index, one in enumerate(parts):
        yield from _of_object(cast("dict[str, Any]", one), (*path, index))


def _of_matcher(matcher: dict[str, Any], path: Path) -> Iterator[Told]:
    names = list(matcher)
    if len(names) != 1 or names[0] not in _OPERANDS:
        known = listed(_OPERANDS)
        given = next((name for name in names if name not in _OPERANDS), "")
        yield path, "a comparison has exactly one operator", nearest(given, _OPERANDS) or f"Operators: {known}."
    elif not _OPERANDS[names[0]].fits(matcher[names[0]]):
        yield path, f"`{names[0]}`: expected {_OPERANDS[names[0]].wants}", ""


def _shown(value: Any) -> str:
    return str(value)[:40] if value is not None else "..."


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_affix(value: Any) -> bool:
    if not isinstance(value, dict):
        return _is_text(value)
    inner = cast("dict[str, Any]", value)
    return list(inner) == ["equals-ignore-case"] and _is_text(inner["equals-ignore-case"])


def _is_wildcard(value: Any) -> bool:
    return _is_text(value) and "**" not in value


def _is_numeric(value: Any) -> bool:
    match value:
        case [sign, number]:
            return sign in _COMPARISONS and _is_number(number)
        case [above, low, below, high]:
            return above in _FROM and below in _TO and _is_number(low) and _is_number(high) and low < high
        case _:
            return False


def _is_other(value: Any) -> bool:
    if isinstance(value, dict):
        inner = cast("dict[str, Any]", value)
        names = {"prefix", "suffix", "equals-ignore-case", "wildcard"}
        return len(inner) == 1 and set(inner) <= names and all(map(_is_text, _several(next(iter(inner.values())))))
    given = _several(value)
    return bool(given) and (all(map(_is_text, given)) or all(map(_is_number, given)))


def _is_cidr(value: Any) -> bool:
    address, _, bits = value.partition("/") if isinstance(value, str) else ("", "", "")
    try:
        ip_network((address, int(bits) if bits.isdecimal() else -1), strict=False)
    except ValueError:
        return False
    return True


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _several(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


@dataclass(frozen=True, slots=True)
class _Operand:
    fits: Callable[[Any], bool]
    wants: str


_OPERANDS = {
    "prefix": _Operand(_is_affix, "a text, or {equals-ignore-case: text}"),
    "suffix": _Operand(_is_affix, "a text, or {equals-ignore-case: text}"),
    "equals-ignore-case": _Operand(_is_text, "a text"),
    "wildcard": _Operand(_is_wildcard, "a text with `*`, never two in a row"),
    "anything-but": _Operand(_is_other, "texts, numbers, or one of {prefix, suffix, equals-ignore-case, wildcard}"),
    "exists": _Operand(_is_flag, "true or false"),
    "numeric": _Operand(_is_numeric, 'one comparison, or first the lower and then the higher limit: [">", 0, "<=", 5]'),
    "cidr": _Operand(_is_cidr, "a range of addresses such as 10.0.0.0/24"),
}


def of_ours(pattern: Mapping[str, Any]) -> str:
    """Return the source of an event that runs of our own cause and that a valid ``pattern`` may match; else ""."""
    for source, kind in OURS:
        if _may_match(pattern, {"source": source, "detail-type": kind}):
            return source
    return ""


def _may_match(pattern: Mapping[str, Any], event: Mapping[str, str]) -> bool:
    """Tell whether the pattern's words about source and type fit; other machines' events are told from ours by name."""
    if any(key in pattern and not _one_fits(pattern[key], event[key]) for key in event):
        return False
    inner = cast("dict[str, Any]", pattern["detail"]) if isinstance(pattern.get("detail"), dict) else {}
    named = (pattern.get("resources"), inner.get("stateMachineArn"))
    if any(isinstance(each, list) and not _may_be_ours(cast("list[Any]", each), event) for each in named):
        return False
    parts = cast("list[dict[str, Any]]", pattern.get(_OR, []))
    return not parts or any(_may_match(part, event) for part in parts)


def _may_be_ours(matchers: list[Any], event: Mapping[str, str]) -> bool:
    """Tell whether ARNs of our machines and executions may fit; where AWS's event has none, only their absence does."""
    if event["detail-type"] != _ENDED:
        return {"exists": False} in matchers
    return any(_may_be_arn(one) for one in matchers)


def _may_be_arn(matcher: Any) -> bool:
    if not isinstance(matcher, dict):
        return isinstance(matcher, str) and matcher.count(":") >= _COLONS and _may_begin(matcher, str)
    match cast("dict[str, Any]", matcher):
        case {"prefix": {"equals-ignore-case": str(text)}}:
            return _may_begin(text, str.lower)
        case {"equals-ignore-case": str(text)}:
            return text.count(":") >= _COLONS and _may_begin(text, str.lower)
        case {"prefix": str(text)}:
            return _may_begin(text, str)
        case {"wildcard": str(text)}:
            return _may_begin(text.partition("*")[0], str)
        case other:
            return other != {"exists": False}  # of a suffix, or of all but some, it cannot be told


_ARN = (("arn",), (), ("states",), (), (), ("stateMachine", "execution", "express"), _NAMES)
"""What may stand in each part of the ARN of a machine or an execution of ours; anything where nothing is said."""
_COLONS = len(_ARN) - 1


def _may_begin(text: str, form: Callable[[str], str]) -> bool:
    """Tell whether an ARN of ours may begin with ``text``, when both are brought into a ``form``."""
    parts = form(text).split(":", _COLONS)
    *whole, last = zip(parts, ([form(one) for one in known] for known in _ARN), strict=False)
    if any(known and part not in known for part, known in whole):
        return False
    return not last[1] or any(one.startswith(last[0]) or last[0].startswith(one) for one in last[1])


def _one_fits(matchers: list[Any], text: str) -> bool:
    return any(_fits(one, text) for one in matchers)


def _fits(matcher: Any, text: str) -> bool:
    if not isinstance(matcher, dict):
        return matcher == text
    ((name, operand),) = cast("dict[str, Any]", matcher).items()
    if name == "anything-but":
        inner = cast("dict[str, Any]", operand) if isinstance(operand, dict) else {}
        return not any(_fits({one: each}, text) for one in inner for each in _several(inner[one])) and (
            bool(inner) or text not in _several(operand)
        )
    if isinstance(operand, dict):
        operand, text = str(cast("dict[str, Any]", operand)["equals-ignore-case"]).lower(), text.lower()
    return name in _TESTS and _TESTS[name](text, operand)


_TESTS: Mapping[str, Callable[[str, Any], bool]] = {
    "prefix": lambda text, operand: text.startswith(operand),
    "suffix": lambda text, operand: text.endswith(operand),
    "equals-ignore-case": lambda text, operand: text.lower() == operand.lower(),
    "wildcard": lambda text, operand: fnmatchcase(text, operand.replace("[", "[[]").replace("?", "[?]")),
    "exists": lambda _text, operand: operand,
}
