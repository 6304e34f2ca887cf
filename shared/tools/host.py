"""The tools of a deployment behind the runtime's port."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.errors import PermanentFailure
from shared.ports import Tools
from shared.tools.registry import invoke

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.tools.registry import Call, Tool


class ToolBox(Tools):
    """Tools by name, with the deployment's ``settings`` for them."""

    def __init__(self, tools: Mapping[str, Tool], settings: Mapping[str, str]) -> None:
        self._tools = tools
        self._settings = settings

    def cost(self, name: str) -> int:
        """Return what one call costs at most, in nano-USD."""
        return self._tool(name).cost

    def invoke(self, name: str, arguments: Mapping[str, Any], call: Call) -> Any:
        """Call the tool. Raises StepFailure subclasses."""
        return invoke(self._tool(name), dict(arguments), replace(call, settings=self._settings))

    def _tool(self, name: str) -> Tool:
        if name not in self._tools:
            raise PermanentFailure(f"This deployment has no tool {name}. Deploy the version that contains it.")
        return self._tools[name]
