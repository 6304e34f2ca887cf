"""The scripts of the rehearsal: rules that find an answer in the text of a request."""

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

Rule = Mapping[str, Any]
_FLAGS = re.IGNORECASE | re.MULTILINE
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TOTAL = (
    r"^[ \t]*(?:{})\b[^\n]*?(?:[ \t]|[€$£])"
    r"(\d{{1,3}}(?:[ .,]\d{{3}})*[.,]\d{{2}})[ \t]*(?:EUR|USD|GBP|CHF|[€$£])?[ \t]*$"
)
"""A labelled amount at the end of a line."""
_GERMAN = {"mär": "mar", "mai": "may", "okt": "oct", "dez": "dec"}


@dataclass(frozen=True)
class Asked:
    """What a rule looks at: the request's text, the output schema's properties, the offered tools, what tools gave."""

    text: str
    properties: frozenset[str]
    tools: frozenset[str]
    results: int


def load(folder: Path) -> tuple[Rule, ...]:
    """All rules of all `*.yaml` in `folder`, in the order of file names.

    Raises:
        ValueError: For a file without rules or with a pattern that is none; the message names file and rule.
    """
    return tuple(rule for file in sorted(folder.glob("*.yaml")) for rule in _rules(file))


def _rules(file: Path) -> Sequence[Rule]:
    content: Any = yaml.safe_load(file.read_text())
    if not isinstance(content, dict) or "rules" not in content:
        raise ValueError(f"{file}: expected a mapping with `rules`.")
    rules = cast("list[Rule]", content["rules"])
    for rule in rules:
        for pattern in _patterns(rule):
            try:
                re.compile(pattern, _FLAGS)
            except re.error as error:
                raise ValueError(f"{file}: rule {rule.get('name')!r}: {pattern!r} is no pattern: {error}") from error
    return rules


def _patterns(rule: Rule) -> list[str]:
    fields: list[Rule] = list(rule.get("fields", {}).values())
    found = [pattern for field in fields for pattern in field.get("find", ())]
    found += [field[name] for field in fields for name in ("each", "total_after") if name in field]
    found += [choice["text"] for choice in rule.get("choose", ())]
    return found + [p for p in (rule.get("source"), rule.get("when", {}).get("text")) if p]


def choose(rules: Sequence[Rule], asked: Asked) -> Rule | None:
    """The first rule that applies."""
    return next((rule for rule in rules if _applies(rule, asked)), None)


def _applies(rule: Rule, asked: Asked) -> bool:
    when: Mapping[str, Any] = rule.get("when", {})
    call = rule.get("call")
    return (
        asked.properties.issuperset(when.get("schema_has", ()))
        and asked.tools.issuperset(when.get("tools", ()))
        and (re.search(when.get("text", ""), asked.text, _FLAGS) is not None)
        # A rule that calls a tool speaks once; when the result is there, a later rule answers.
        and (call is None or (call["tool"] in asked.tools and asked.results <= int(when.get("results", 0))))
    )


def value(rule: Rule, text: str) -> dict[str, Any]:
    """The answer's value: `set`, overridden by the choice that applies, overridden by the fields found."""
    source = re.search(rule["source"], text, _FLAGS | re.DOTALL) if rule.get("source") else None
    read = source[1] if source else text
    answer: dict[str, Any] = dict(rule.get("set", {}))
    choices: list[Rule] = rule.get("choose", [])
    chosen = next((choice for choice in choices if re.search(choice["text"], read, _FLAGS)), None)
    answer.update(chosen["set"] if chosen else {})
    for name, field in rule.get("fields", {}).items():
        answer[name] = _field(field, read)
    for name, field in rule.get("fields", {}).items():
        answer[name] = _late(field, read, answer, answer[name])
    return answer


def _field(field: Mapping[str, Any], text: str) -> Any:
    if "each" in field:
        kinds: Mapping[str, str] = field.get("as", {})
        matches = re.finditer(field["each"], text, _FLAGS)
        return [{name: _convert(got, kinds.get(name)) for name, got in m.groupdict().items()} for m in matches]
    if "total_after" in field:
        field = {"find": [_TOTAL.format(field["total_after"])], "as": "number"}
    for pattern in field["find"]:
        for match in re.finditer(pattern, text, _FLAGS):
            found = _convert(match[1], field.get("as"))
            if found is not None:
                return field.get("map", {}).get(found, found)
    return None


def _late(field: Mapping[str, Any], text: str, answer: Mapping[str, Any], found: Any) -> Any:
    """What depends on other fields, and the default."""
    if found is None and "or_days" in field:
        found = _days_later(answer.get(field["or_days"]["from"]), re.search(field["or_days"]["find"], text, _FLAGS))
    if found is None and "or_field" in field:
        found = answer.get(field["or_field"])
    return field.get("default") if found is None else found


def _days_later(start: Any, days: re.Match[str] | None) -> str | None:
    if not start or days is None:
        return None
    return (dt.date.fromisoformat(start) + dt.timedelta(days=int(days[1]))).isoformat()


def _convert(text: str, kind: str | None) -> Any:
    return _CONVERTERS[kind](text) if kind else text.strip()


def number(text: str) -> float | None:
    """A printed amount, with either sign as the decimal point: the last separator with one or two digits after it."""
    digits = re.sub(r"[^\d.,-]", "", text)
    point = re.search(r"[.,](?=\d{1,2}$)", digits)
    if not re.search(r"\d", digits):
        return None
    if point is None:
        return float(re.sub(r"[.,]", "", digits))
    return float(f"{re.sub(r'[.,]', '', digits[: point.start()])}.{digits[point.end() :]}")


def date(text: str) -> str | None:
    """A printed date as YYYY-MM-DD; all-numeric ones are day-month-year unless only month-day-year is possible."""
    for pattern, order in _DATES:
        match = re.search(pattern, text, re.IGNORECASE)
        if match:
            year, month, day = (match[group] for group in order)
            return _iso(year, month, day) or _iso(year, day, month)
    return None


def _iso(year: str, month: str, day: str) -> str | None:
    short = _GERMAN.get(month.lower()[:3], month.lower()[:3])
    try:
        number_of_month = int(month) if month.isdigit() else _MONTHS.index(short) + 1
        return dt.date(int(year), number_of_month, int(day)).isoformat()
    except ValueError:
        return None


_DATES: Sequence[tuple[str, tuple[int, int, int]]] = (
    (r"(\d{4})-(\d{1,2})-(\d{1,2})", (1, 2, 3)),
    (r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})", (3, 2, 1)),
    (r"(\d{1,2})(?:st|nd|rd|th|\.)?[ -]+([^\W\d]{3,9})\.?,?[ -]+(\d{4})", (3, 2, 1)),
    (r"([^\W\d]{3,9})\.?[ ]+(\d{1,2})(?:st|nd|rd|th)?,?[ ]+(\d{4})", (3, 1, 2)),
)
_CONVERTERS: Mapping[str, Callable[[str], Any]] = {"number": number, "date": date}
