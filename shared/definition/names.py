"""Names: which are allowed, and the nearest one to a misspelt one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

STEP_ID = re.compile(r"[a-z][a-z0-9_]{0,62}")
WORKFLOW_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
TENANT_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}", re.ASCII)
SECRET_NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)

CEL_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"}
    | {"namespace", "null", "package", "return", "true", "var", "void", "while"}
)
"""Words that CEL cannot read, or may one day not read, as a field: ``steps.in`` is a syntax error."""

STEP_TYPES = ("agent", "tool", "transform", "router", "human_gate", "sub_workflow", "map", "loop", "wait")


_MOST_SHOWN = 12
_LONGEST = 80


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``Did you mean ...?`` for the closest known name, or an empty text."""
    import difflib  # noqa: PLC0415 - functions read the forms of names above, and word nothing

    name = name[:_LONGEST]
    close = difflib.get_close_matches(name, _near(name, known), n=1, cutoff=0.6)
    return f"Did you mean `{close[0]}`?" if close else ""


def listed(names: Iterable[str]) -> str:
    """Return the names as one readable list."""
    found = list(names)
    shown = ", ".join(f"`{name}`" for name in found[:_MOST_SHOWN]) or "none"
    return f"{shown} and {len(found) - _MOST_SHOWN:,} more" if len(found) > _MOST_SHOWN else shown


def _near(name: str, known: Iterable[str]) -> list[str]:
    """Leave out cheaply what cannot be close: comparing thousands of names in earnest would take seconds."""
    letters, least, most = {*name}, len(name) // 2, 2 * len(name) + 1
    half = len(letters) / 2
    return [one for one in known if least <= len(one) <= most and len(letters.intersection(one)) >= half]
