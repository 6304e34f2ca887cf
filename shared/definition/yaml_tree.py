"""YAML to plain data with positions, refusing whatever could surprise a reader.

Scalars follow the YAML 1.2 core schema: ``yes``, ``on`` and dates are text, ``1e3`` is a number. Anchors, aliases,
tags, tabs, duplicate and non-text keys are refused. The text is read as a stream of events, so nothing is expanded
and a hostile file costs no more than its length.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from shared.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

Path = tuple[str | int, ...]

MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_FAULTS = 100
MAX_STEPS = 2_000
MAX_VALUES = 40_000
"""Keys and values of one file: a graph of a thousand large steps has fewer."""

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_LIMIT = 1 << 53  # JSON numbers are exact up to here
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same events, four times faster


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a key or value stands: line and column from 1, and its span of characters from 0."""

    line: int
    column: int
    start: int
    end: int


@dataclass(slots=True)
class Tree:
    """What was read: ``data`` as plain Python, positions by path, faults, and the paths that faults made unusable."""

    data: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict[Path, Mark])
    values: dict[Path, Mark] = field(default_factory=dict[Path, Mark])
    findings: list[Finding] = field(default_factory=list[Finding])
    broken: set[Path] = field(default_factory=set[Path])


class _Stop(Exception):
    """The rest of the file cannot be read."""


def read(text: str, name: str) -> Tree:
    """Read one YAML document. Faults are in the result's ``findings``; nothing is raised."""
    reader = _Reader(text, name)
    reader.read()
    return reader.tree


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.tree = Tree()
        self.events: Iterator[Any] = iter(())
        self.count = 0

    def read(self) -> None:
        try:
            self._refuse_by_sight()
            self.events = yaml.parse(self.text, Loader=_LOADER)
            self._document()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = _mark(mark, mark) if mark else Mark(1, 1, 0, 0)
            told = ", ".join(part for part in (error.context, error.problem) if part)
            self._fault(at, f"this is not YAML: {told}", "Check indentation, quotes and brackets here.")
        except yaml.YAMLError as error:
            self._fault(Mark(1, 1, 0, 0), f"this is not YAML: {' '.join(str(error).split())}")
        except _Stop:
            pass

    def _refuse_by_sight(self) -> None:
        if len(self.text.encode()) > MAX_BYTES:
            self._stop(
                Mark(1, 1, 0, 0), f"the file is larger than {MAX_BYTES:,} bytes", "Move long texts to prompt files."
            )
        self._refuse_character("\ufeff", "a byte-order mark", "Save the file as UTF-8 without BOM.")
        self._refuse_character("\t", "a tab", "Indent with spaces; in a quoted string write \\t.")

    def _refuse_character(self, character: str, called: str, remedy: str) -> None:
        at = self.text.find(character)
        if at >= 0:
            line = self.text.count("\n", 0, at) + 1
            column = at - self.text.rfind("\n", 0, at)
            self._stop(Mark(line, column, at, at + 1), f"{called} is not allowed here", remedy)

    def _document(self) -> None:
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.tree.data = self._value(next(self.events), (), 0)
            elif isinstance(event, yaml.StreamEndEvent | yaml.DocumentEndEvent):
                break
        if self.tree.data is None and not self.tree.findings:
            self._stop(Mark(1, 1, 0, 0), "the file is empty", "A workflow needs at least `workflow` and `steps`.")
        following = next(self.events, None)
        if isinstance(following, yaml.DocumentStartEvent):
            self._stop(_of(following), "a second document begins here", "Write one workflow a file.")

    def _value(self, event: Any, path: Path, depth: int) -> Any:
        self.tree.values[path] = _of(event)
        self.count += 1
        if self.count > MAX_VALUES:
            self._stop(
                _of(event), f"more than {MAX_VALUES:,} values", "Split the workflow, or let a tool read the data."
            )
        if isinstance(event, yaml.AliasEvent):
            return self._broken(event, path, f"alias *{event.anchor} is not allowed", "Write the value out.")
        self._refuse_decoration(event, path)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if depth >= MAX_DEPTH:
            self._stop(_of(event), f"more than {MAX_DEPTH} levels of nesting", "Split the value.")
        return (
            self._mapping(path, depth + 1) if isinstance(event, yaml.MappingStartEvent) else self._list(path, depth + 1)
        )

    def _refuse_decoration(self, event: Any, path: Path) -> None:
        if event.anchor is not None:
            self._broken(event, path, f"anchor &{event.anchor} is not allowed", "Write the value where it is used.")
        if event.tag is not None:
            self._broken(event, path, f"tag {event.tag} is not allowed", 'Write plain YAML; quote text with "...".')

    def _list(self, path: Path, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items)), depth))
        return items

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._key(event, path, depth)
            if key in found:
                first = self.tree.keys[(*path, key)].line
                self._fault(_of(event), f"`{key}` stands here twice (first in line {first})", "Remove one of them.")
                _Reader._value(self._scratch(), next(self.events), (*path, key), depth)
                continue
            self.tree.keys[(*path, key)] = _of(event)
            found[key] = self._value(next(self.events), (*path, key), depth)
            if len(found) > MAX_STEPS and path[-1:] == ("steps",):
                told = f"more than the {MAX_STEPS:,} steps that a workflow may have"
                self._stop(_of(event), told, "Split it into several workflows, or use a map.")
        return found

    def _scratch(self) -> _Reader:
        """Return a reader that goes on with the same events but leaves no positions behind."""
        other = _Reader(self.text, self.name)
        other.events = self.events
        other.tree.findings = self.tree.findings
        return other

    def _key(self, event: Any, path: Path, depth: int) -> str:
        if isinstance(event, yaml.ScalarEvent) and event.anchor is None and event.tag is None:
            value = event.value if event.style else _resolve(event.value)
            if isinstance(value, str) and value:
                return value
            told = f"the key `{event.value}` is not text"
            self._broken(event, (*path, event.value), told, f'Write "{event.value}" in quotes.')
            return event.value
        key = f"?{_of(event).start}"
        self._value(event, (*path, key), depth)
        self._broken(event, (*path, key), "only plain text can be a key", "Write the key as a word.")
        return key

    def _scalar(self, event: Any, path: Path) -> Any:
        if event.style:
            return event.value
        text: str = event.value
        if _LEADING_ZERO.fullmatch(text):
            remedy = f'Write "{text}" in quotes if it is text, or the number without leading zeros.'
            return self._broken(event, path, f"{text} could be octal, decimal or text", remedy)
        value = _resolve(text)
        if _NOT_JSON.fullmatch(text) or (isinstance(value, float) and not math.isfinite(value)) or _too_big(value):
            return self._broken(event, path, f"{text[:40]} is not a number that JSON can hold", "Use a smaller number.")
        return value

    def _broken(self, event: Any, path: Path, message: str, remedy: str) -> None:
        self.tree.broken.add(path)
        self._fault(_of(event), message, remedy)

    def _fault(self, at: Mark, message: str, remedy: str = "") -> None:
        self.tree.findings.append(Finding("yaml", f"{message}.", self.name, at.line, at.column, remedy))
        if len(self.tree.findings) >= MAX_FAULTS:
            raise _Stop

    def _stop(self, at: Mark, message: str, remedy: str) -> None:
        self._fault(at, message, remedy)
        raise _Stop


def _resolve(text: str) -> Any:
    """Return the value of a plain scalar by the YAML 1.2 core schema."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else _decimal(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _decimal(text: str, longest: int = 20) -> int | float:
    return int(text) if len(text) <= longest else math.inf


def _too_big(value: Any) -> bool:
    return isinstance(value, int) and not -_LIMIT <= value < _LIMIT


def _of(event: Any) -> Mark:
    return _mark(event.start_mark, event.end_mark)


def _mark(start: Any, end: Any) -> Mark:
    return Mark(start.line + 1, start.column + 1, start.index, end.index)
