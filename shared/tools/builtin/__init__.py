"""The built-in tools: typed functions like a user's, found by name and imported only where one is called.

Their names have a dot, which no function of a user has, so neither can stand for the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, cast
from urllib.parse import urlsplit

from shared.tools.mcp_tools import PREFIX
from shared.tools.means import Means
from shared.tools.registry import Tool

_ROOMS: Mapping[str, str] = {
    "http.request": "http",
    "slack.post": "slack",
    "mcp.call": "mcp",
    "s3.get": "s3",
    "s3.put": "s3",
    "dynamodb.query": "dynamodb",
    "sql.query": "sql",
    "sqs.send": "messages",
    "sns.publish": "messages",
    "events.put": "messages",
    "email.send": "email",
    "lambda.invoke": "functions",
}
_DEPENDS: Mapping[str, str] = {
    "http.request": "url",
    "mcp.call": "server",
    "lambda.invoke": "function",
    "sql.query": "cluster_arn",
}
"""The argument that says what a call depends on."""
_LONGEST = 200
NAMES = frozenset(_ROOMS)
NO_MEANS = Means()


def builtin(name: str, means: Means = NO_MEANS) -> Tool:
    """Return a built-in tool that calls with these means. Raises KeyError for any other name."""
    room = import_module(f"shared.tools.builtin.{_ROOMS[name]}")
    return Tool(name, room.tools(means)[name])


def service_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Return what a call of a built-in tool depends on: one host that fails says nothing about others."""
    field = _DEPENDS.get(name)
    given: Any = arguments.get(field) if field else None
    if isinstance(given, dict):  # text that holds secrets; what stands before the first is none
        parts: Any = cast("dict[str, Any]", given).get("$secret")
        given = cast("Any", parts)[0] if isinstance(parts, list) and parts else ""
    if not isinstance(given, str) or not given:
        return f"tool:{name}"
    found = _host(given) if name == "http.request" else given[:_LONGEST]
    if not found or "$" in found:
        return f"tool:{name}"
    return f"{PREFIX if name == 'mcp.call' else f'{name}:'}{found}"


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "")[:_LONGEST]
    except ValueError:
        return ""


def with_builtins(tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
    """Return a folder's tools together with the built-in ones, described but without means to call."""
    return _Both(tools)


class _Both(Mapping[str, Tool]):
    """Tools of a folder and built-in ones. Only what is asked for is imported: most workflows name none of these."""

    def __init__(self, own: Mapping[str, Tool]) -> None:
        self._own = own

    def __getitem__(self, name: str) -> Tool:
        return _described(name) if name in NAMES else self._own[name]

    def __contains__(self, name: object) -> bool:
        return name in NAMES or name in self._own

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._own if name not in NAMES)
        yield from _ROOMS

    def __len__(self) -> int:
        return len(NAMES | self._own.keys())


@cache
def _described(name: str) -> Tool:
    return builtin(name)
