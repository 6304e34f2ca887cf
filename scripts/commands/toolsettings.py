"""What tools are told on this machine: variables `SIGNALBOX_TOOL_NAME`, and `--set-tool`."""

import os
from collections.abc import Mapping, Sequence

import typer

from scripts.commands.output import Refused

PREFIX = "SIGNALBOX_TOOL_"


def tool_settings(given: Sequence[str] = ()) -> dict[str, str]:
    """Return the settings by name; those that are given go before those of the environment. Raises BadParameter."""
    told = {name[len(PREFIX) :]: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    return told | given_settings(given)


def given_settings(given: Sequence[str]) -> dict[str, str]:
    """Return the settings that options name. Raises BadParameter."""
    found = dict[str, str]()
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{one!r}: give KEY=VALUE", param_hint="--set-tool")
        found[name] = value
    return found


def servers_told(settings: Mapping[str, str]) -> frozenset[str] | None:
    """Return the names of the MCP servers that settings tell of; None = they say nothing of any. Raises Refused."""
    from shared.settings import MCP_SERVERS, McpServer  # noqa: PLC0415 - keeps `--help` fast

    if MCP_SERVERS not in settings:
        return None
    try:
        return frozenset(McpServer.told_in(settings))
    except ValueError as error:
        remedy = f"Correct --set-tool {MCP_SERVERS}=... or the variable {PREFIX}{MCP_SERVERS}."
        raise Refused(str(error), remedy, code="tool_settings") from None
