"""States to text: the same bytes for the same machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.asl.states import Machine


def to_json(machine: Machine) -> dict[str, Any]:
    """Return a machine as plain JSON data."""
    return machine.to_json()


def render(asl: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Return the definition text: keys sorted, compact unless indented."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(asl, sort_keys=True, ensure_ascii=False, indent=indent, separators=separators)
