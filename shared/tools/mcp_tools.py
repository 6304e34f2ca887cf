"""Tools of MCP servers as an agent's model may call them: named by the author, described by the server.

Which there are is the author's to say: a server that lists more adds nothing, and what it says about a tool's risk is
not read. Descriptions and schemas come from the server, so they are bounded and checked before a model reads them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from shared.errors import PermanentFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "mcp:"
"""What the name of such a tool begins with: ``mcp:server/tool``."""
LONGEST_DESCRIPTION = 2_000
"""Characters of a description."""
LARGEST_SCHEMA = 16 * 1024
"""Bytes of a schema."""
_DEEPEST = 32
_DROPPED = frozenset({"pattern", "patternProperties", "format", "$schema", "$id", "$comment", "x-mcp-header"})
"""Keywords that a hostile server could make expensive, or that mean nothing here."""
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""What nobody can see: a text could say something else to a model than to a person who reads it."""


def named(server: str, tool: str) -> str:
    """Return the name of a server's tool."""
    return f"{PREFIX}{server}/{tool}"


def is_remote(name: str) -> bool:
    """Tell whether a name is that of a server's tool."""
    return name.startswith(PREFIX)


def parted(name: str) -> tuple[str, str]:
    """Return the server and the tool that a name is made of."""
    server, _, tool = name.removeprefix(PREFIX).partition("/")
    return server, tool


def offer_of(name: str, listed: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return description and parameters of a tool that its server lists. Raises PermanentFailure."""
    server, tool = parted(name)
    for one in listed:
        if one["name"] == tool:
            text = one.get("description")
            told = _CONTROLS.sub("", text)[:LONGEST_DESCRIPTION] if isinstance(text, str) else ""
            return {"description": told, "parameters": _schema(name, one.get("inputSchema"))}
    raise PermanentFailure(f"The MCP server {server} has no tool {tool}. Correct the agent's `tools`.")


def _schema(name: str, given: Any) -> dict[str, Any]:
    schema = _plain(name, given, 0)
    if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("type") != "object":
        raise PermanentFailure(f"The schema of {name} is not that of an object.")
    found = cast("dict[str, Any]", schema)
    size = len(json.dumps(found).encode())
    if size > LARGEST_SCHEMA:
        raise PermanentFailure(f"The schema of {name} has {size:,} bytes; at most {LARGEST_SCHEMA:,} are possible.")
    _check(name, found)
    return found


def _plain(name: str, value: Any, depth: int, *, names: bool = False) -> Any:
    """Return a schema without what is dropped; ``names`` tells that keys here are names of fields, not keywords."""
    if depth > _DEEPEST:
        raise PermanentFailure(f"The schema of {name} is nested too deeply.")
    if isinstance(value, list):
        return [_plain(name, one, depth + 1) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    given = cast("dict[str, Any]", value)
    reference = given.get("$ref")
    if not names and isinstance(reference, str) and not reference.startswith("#"):
        raise PermanentFailure(f"The schema of {name} refers to {reference[:80]!r}, which is not part of it.")
    return {
        key: _plain(name, one, depth + 1, names=not names and key in {"properties", "$defs", "definitions"})
        for key, one in given.items()
        if names or key not in _DROPPED
    }


def _check(name: str, schema: dict[str, Any]) -> None:
    import jsonschema  # noqa: PLC0415 - 0.2 s that only agents with such tools pay

    library = cast("Any", jsonschema)
    try:
        library.Draft202012Validator.check_schema(schema)
    except library.exceptions.SchemaError as error:
        raise PermanentFailure(f"The schema of {name} is no JSON Schema: {str(error.message)[:200]}") from None
