"""The tools of a deployment behind the runtime's port."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shared.errors import PermanentFailure
from shared.ports import Tools
from shared.tools.mcp_tools import is_remote, parted
from shared.tools.means import Means
from shared.tools.registry import invoke

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.tools.builtin.mcp import Servers
    from shared.tools.registry import Call, Tool


class ToolBox(Tools):
    """Tools by name, with the deployment's ``settings`` for them, and the built-in ones, which call by ``means``."""

    def __init__(self, tools: Mapping[str, Tool], settings: Mapping[str, str], means: Means | None = None) -> None:
        self._tools = tools
        self._settings = settings
        self._means = means or Means()
        self._builtins: dict[str, Tool] = {}

    def cost(self, name: str) -> int:
        """Return what one call costs at most, in nano-USD."""
        if is_remote(name):
            return 0
        return self._tool(name).cost

    def service(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return what a call depends on: for a built-in tool often a host, which others do not share."""
        name, arguments = _as_call(name, arguments)
        if not is_builtin(name):
            return super().service(name, arguments)
        from shared.tools.builtin import service_of  # noqa: PLC0415 - only where a built-in tool is called

        return service_of(name, arguments)

    def offers(self, names: Sequence[str], call: Call) -> Mapping[str, Mapping[str, Any]]:
        """Return what tools of MCP servers do and take, as their servers say. Raises StepFailure subclasses."""
        return self._servers.offers(names, replace(call, settings=self._settings))

    def invoke(self, name: str, arguments: Mapping[str, Any], call: Call) -> Any:
        """Call the tool. Raises StepFailure subclasses."""
        name, arguments = _as_call(name, arguments)
        return invoke(self._tool(name), dict(arguments), replace(call, settings=self._settings))

    def _tool(self, name: str) -> Tool:
        found = self._builtin(name) if is_builtin(name) else self._tools.get(name)
        if found is None:
            raise PermanentFailure(f"This deployment has no tool {name}. Deploy the version that contains it.")
        return found

    def _builtin(self, name: str) -> Tool | None:
        from shared.tools.builtin import NAMES, builtin  # noqa: PLC0415 - only where one is called

        if name in NAMES and name not in self._builtins:
            self._builtins[name] = builtin(name, self._means)
        return self._builtins.get(name)

    @cached_property
    def _servers(self) -> Servers:
        from shared.tools.builtin.mcp import Servers  # noqa: PLC0415 - only where an agent has such tools

        return Servers(self._means)


def _as_call(name: str, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return a call of a server's tool as the ``mcp.call`` that it is; any other as it stands."""
    if not is_remote(name):
        return name, arguments
    server, tool = parted(name)
    return "mcp.call", {"server": server, "tool": tool, "arguments": dict(arguments)}


def is_builtin(name: str) -> bool:
    """Tell whether a name is one that no function of a user can have."""
    return "." in name
