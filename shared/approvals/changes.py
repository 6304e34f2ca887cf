"""The fields in which a person changes arguments on the page, and what of them was changed by what they typed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from shared import values
from shared.approvals.show import visible
from shared.errors import PermanentFailure
from shared.patch import difference, same

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "change."
"""What the names of these fields in the form begin with."""
_LONG_LINE = 60


@dataclass(frozen=True, slots=True)
class Field:
    """One argument that may be changed: its name, what the form shows of it, and how that is read.

    ``text`` = it is read as it is; else as JSON. ``long`` = it needs more than a line.
    """

    name: str
    shown: str
    text: bool
    long: bool
    hint: str


def fields(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[Field]:
    """Return the fields of a form, in the schema's order."""
    return [_field(name, inner, arguments) for name, inner in schema["properties"].items()]


def _field(name: str, schema: Any, arguments: Mapping[str, Any]) -> Field:
    now = arguments.get(name)
    kind = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
    # What a form would send back otherwise than it was is shown, and read, as JSON.
    text = (now is None or isinstance(now, str)) and kind == "string" and now == (now and visible(now))
    shown = (now or "") if text else "" if name not in arguments else json.dumps(now, ensure_ascii=not _plain(now))
    hint = "" if text else f"As JSON{f', {kind}' if isinstance(kind, str) else ''}. Empty removes it."
    return Field(name, shown, text, len(shown) > _LONG_LINE or "\n" in shown, hint)


def _plain(value: Any) -> bool:
    text = json.dumps(value, ensure_ascii=False)
    return text == visible(text)


def read(
    schema: Mapping[str, Any], arguments: Mapping[str, Any], typed: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the changes that were typed (RFC 7396), and what cannot be read, by argument."""
    changes, faults = dict[str, Any](), dict[str, str]()
    for field in fields(schema, arguments):
        given = typed.get(field.name, field.shown)
        if given == field.shown:
            continue
        try:
            value = given if field.text else _json(given)
        except ValueError as error:
            faults[field.name] = str(error)
            continue
        if not same(arguments.get(field.name), value):
            changes |= difference({field.name: arguments.get(field.name)}, {field.name: value})
    return changes, faults


def _json(text: str) -> Any:
    if not text.strip():
        return None
    try:
        value = json.loads(text)
        values.canonical(value)
    except (ValueError, RecursionError, PermanentFailure):
        raise ValueError("This is not JSON: write numbers as 1250.5, texts in double quotes.") from None
    return value
