"""How facts are shown to people in letters and on the page: values, times, money, names."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shared.runtime.views import iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.ledger.records import Gate
    from shared.settings import Person

RISKS = {
    "read": "Only reads. Nothing is changed.",
    "reversible": "Changes something and can be undone.",
    "irreversible": "Cannot be undone.",
}
_KEPT = frozenset("\n\t")


def visible(text: str) -> str:
    """Return ``text`` with control and invisible characters spelt out, so that nothing looks like what it is not."""
    return "".join(sign if sign in _KEPT or not _hidden(sign) else f"\\u{ord(sign):04x}" for sign in text)


def _hidden(sign: str) -> bool:
    return unicodedata.category(sign) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def one_line(text: str, limit: int = 200) -> str:
    """Return ``text`` as one line of at most ``limit`` characters: a header cannot be broken out of."""
    return visible(" ".join(text.split()))[:limit]


def rows(value: Any) -> list[tuple[str, str]]:
    """Return an object as names and values; anything else as one nameless value."""
    if isinstance(value, dict):
        return [(visible(str(name)), text_of(inner)) for name, inner in cast("dict[str, Any]", value).items()]
    return [] if value is None else [("", text_of(value))]


def groups(shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a gate shows as tables: plain values together, each object under its own title."""
    plain = {name: value for name, value in shown.items() if not isinstance(value, dict)}
    nested = [{"title": title(name), "rows": rows(value)} for name, value in shown.items() if name not in plain]
    return ([{"title": "", "rows": rows(plain)}] if plain else []) + nested


def title(name: str) -> str:
    """Return a field's name as a title."""
    return visible(name).replace("_", " ")


def text_of(value: Any) -> str:
    """Return one value as text: strings as they are, everything else as JSON."""
    return visible(value) if isinstance(value, str) else exact(value)


def exact(value: Any) -> str:
    """Return a value as indented JSON."""
    return visible(json.dumps(value, indent=2, ensure_ascii=False))


def moment(milliseconds: int | None) -> dict[str, str] | None:
    """Return a time for a ``time`` element: its machine form and its text, in UTC."""
    if not milliseconds:
        return None
    when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return {"iso": iso(milliseconds) or "", "text": f"{when.day} {when:%B %Y, %H:%M} UTC"}


def remaining(milliseconds: int) -> str:
    """Return a duration in its two largest units."""
    minutes = max(0, milliseconds) // 60_000
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "day"), (hours, "hour"), (rest, "minute")]
    named = [f"{number} {unit}{'' if number == 1 else 's'}" for number, unit in parts if number]
    return " ".join(named[:2]) or "less than a minute"


def money(text: str | None) -> str:
    """Return an exact amount of USD as people write it."""
    return "unlimited" if text is None else f"USD {text}"


def counted(gate: Gate) -> str:
    """Return how many of the needed approvals a gate has."""
    return f"{len(gate.votes)} of {gate.quorum} approvals"


def person_of(email: str, people: Mapping[str, Iterable[Person]]) -> Person | None:
    """Return the person with this address."""
    return next((person for group in people.values() for person in group if person.email == email), None)


def asked(gate: Gate, people: Mapping[str, Iterable[Person]]) -> list[str]:
    """Return the names of those who were asked."""
    found = ((address, person_of(address, people)) for address in gate.recipients)
    return [person.name if person else address for address, person in found]


@cache
def templates() -> Any:
    """Return the environment of the templates: everything is escaped, and an unknown name is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape  # noqa: PLC0415 - only where a page is made

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        # Not escaped are text letters and the style sheet, which nobody's words go into.
        autoescape=select_autoescape(enabled_extensions=("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
