"""Tools of MCP servers as an agent's model may call them: named by the author, described by the server.

Which there are is the author's to say: a server that lists more adds nothing, and what it says about a tool's risk is
not read. Descriptions and schemas come from the server, so they are bounded and checked before a model reads them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

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
_TOLD = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
"""Keywords that only say something about a value."""
_OF_NAMES = frozenset({"properties"})
_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_OF_ONE = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"})
_KEPT = frozenset(
    {"type", "enum", "const", "required", "dependentRequired", "multipleOf", "uniqueItems"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"}
    | {*_TOLD, *_OF_NAMES, *_OF_SCHEMAS, *_OF_ONE}
)
"""Keywords that are read. A hostile server could make others expensive, or have something fetched by them."""
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
    schema = _Plain(name, given).of(given)
    if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("type") != "object":
        raise PermanentFailure(f"The schema of {name} is not that of an object.")
    found = cast("dict[str, Any]", schema)
    _check(name, found)
    return found


class _Plain:
    """A schema of a server without references, which take time and could lead anywhere, and what else is not kept."""

    def __init__(self, name: str, root: Any) -> None:
        self._name, self._root = name, root
        self._left = LARGEST_SCHEMA

    def of(self, schema: Any, depth: int = 0, within: tuple[str, ...] = ()) -> Any:
        """Return a part of it, every reference replaced by what it refers to. Raises PermanentFailure."""
        if depth > _DEEPEST:
            raise self._too_deep()
        if not isinstance(schema, dict):
            return self._paid(schema)
        given = cast("dict[str, Any]", schema)
        self._paid({})
        kept = {key: self._inside(key, one, depth + 1, within) for key, one in given.items() if key in _KEPT}
        if "$ref" not in given:
            return kept
        meant = self._referred(given["$ref"], depth, within)
        if isinstance(meant, dict) and kept.keys() <= _TOLD:
            return {**cast("dict[str, Any]", meant), **kept}
        return {**kept, "allOf": [*_items(kept.get("allOf")), cast("Any", meant)]}

    def _inside(self, key: str, value: Any, depth: int, within: tuple[str, ...]) -> Any:
        """Return what a keyword says."""
        if key in _OF_NAMES and isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            return {self._paid(name): self.of(one, depth, within) for name, one in fields.items()}
        if key in _OF_SCHEMAS and isinstance(value, list):
            return [self.of(one, depth, within) for one in cast("list[Any]", value)]
        return self.of(value, depth, within) if key in _OF_ONE else self._paid(value)

    def _referred(self, reference: Any, depth: int, within: tuple[str, ...]) -> Any:
        told = f"The schema of {self._name} refers to {str(reference)[:80]!r}"
        if reference in within or reference == "#":
            raise PermanentFailure(f"{told} in itself, which has no end. Describe it to some depth.")
        try:
            found = _pointed(self._root, str(reference))
        except (KeyError, IndexError, ValueError, TypeError):
            raise PermanentFailure(f"{told}, which is not part of it.") from None
        return self.of(found, depth + 1, (*within, str(reference)))

    def _paid(self, value: Any) -> Any:
        """Return what is kept as it is. Raises PermanentFailure when all that is kept is too much."""
        if _is_deep(value, _DEEPEST):
            raise self._too_deep()
        self._left -= len(json.dumps(value).encode())
        if self._left < 0:
            told = f"The schema of {self._name} has more than {LARGEST_SCHEMA:,} bytes"
            raise PermanentFailure(f"{told} with its references replaced by what they refer to.")
        return value

    def _too_deep(self) -> PermanentFailure:
        return PermanentFailure(f"The schema of {self._name} is nested too deeply.")


def _is_deep(value: Any, most: int) -> bool:
    inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else _items(value)
    return most < 0 or any(_is_deep(one, most - 1) for one in inner)


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _pointed(root: Any, reference: str) -> Any:
    """Return what a JSON pointer in a fragment points to. Raises KeyError, IndexError, ValueError, TypeError."""
    if not reference.startswith("#/"):
        raise KeyError(reference)
    found: Any = root
    for step in unquote(reference[2:]).split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        inner = cast("list[Any]", found)[int(name)] if isinstance(found, list) else found[name]
        found = inner
    return found


def _check(name: str, schema: dict[str, Any]) -> None:
    import jsonschema  # noqa: PLC0415 - 0.2 s that only agents with such tools pay

    library = cast("Any", jsonschema)
    try:
        library.Draft202012Validator.check_schema(schema)
    except library.exceptions.SchemaError as error:
        raise PermanentFailure(f"The schema of {name} is no JSON Schema: {str(error.message)[:200]}") from None
