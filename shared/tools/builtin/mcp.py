"""``mcp.call``: one tool of an MCP server; and the tools of such servers that agents' models call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from typing_extensions import Doc

from shared.errors import PermanentFailure
from shared.ids import sha256
from shared.redaction import Known
from shared.settings import MCP_SERVERS, McpServer
from shared.tools import client, guard, mcp_tools
from shared.tools.mcp import Dialect, Mcp, Server, before_the_call
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from shared.tools.means import Means

LISTING = 10.0
"""Seconds within which a server must list its tools."""


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"mcp.call": Servers(means).call}


class Servers:
    """The deployment's servers. Raises StepFailure subclasses as ``client.send`` does, and UnclearAnswer for errors."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._dialects: dict[tuple[str, str, str], Dialect] = {}

    def call(
        self,
        *,
        server: Annotated[str, Doc("Name of the server, as the deployment calls it.")],
        tool: Annotated[str, Doc("Name of the tool, as the server lists it.")],
        arguments: Annotated[dict[str, Any] | None, Doc("The tool's arguments by name.")] = None,
        call: Call,
    ) -> Any:
        """Call a tool of an MCP server that the deployment names."""
        if not isinstance(cast("Any", arguments or {}), dict):
            raise PermanentFailure("The `arguments` of mcp.call are no object.")

        def ask(speaking: Mcp) -> Any:
            return speaking.call(tool, arguments or {}, client.deadline_of(call.timeout), call.idempotency_key)

        return self._asked(server, call, ask)

    def offers(self, names: Collection[str], call: Call) -> dict[str, dict[str, Any]]:
        """Return what these tools do and take, as their servers say now; each server is asked once."""
        wanted: dict[str, set[str]] = {}
        for server, tool in map(mcp_tools.parted, names):
            wanted.setdefault(server, set()).add(tool)
        listed = {server: self._listed(server, tools, call) for server, tools in wanted.items()}
        return {name: mcp_tools.offer_of(name, listed[mcp_tools.parted(name)[0]]) for name in names}

    def _listed(self, server: str, wanted: Collection[str], call: Call) -> list[dict[str, Any]]:
        """Return what a server lists of the wanted tools; asking it changes nothing, so no failure leaves a doubt."""
        try:
            with before_the_call():
                found = self._asked(server, call, lambda it: it.tools(wanted, client.deadline_of(LISTING)))
        except RecursionError:
            raise PermanentFailure(f"What the MCP server {server} lists is nested too deeply.") from None
        return list(found.values())

    def _asked(self, name: str, call: Call, ask: Callable[[Mcp], Any]) -> Any:
        """Let a server be asked. Its token is nowhere in what comes back, nor in what is said about a failure."""
        server = _server(name, call.settings)
        token, target = self._token(server, call), guard.named(server.url)
        net = self._means.net(call, (target.host, target.port))  # the deployment has named it: it may stand anywhere
        whose = server.url, call.tenant, sha256(token.encode(errors="surrogatepass"))  # a session is one tenant's
        speaking = Mcp(net, Server(name, server.url, token), self._dialects.get(whose))
        try:
            answer = Known(speaking, (token,) if token else ()).call(ask)
        except BaseException:
            self._dialects.pop(whose, None)  # what is still under way there is of no use to the next call
            raise
        if speaking.dialect is not None:
            self._dialects[whose] = speaking.dialect
        return answer

    def _token(self, server: McpServer, call: Call) -> str:
        if not server.secret:
            return ""
        if self._means.secrets is None:
            raise PermanentFailure("This host has no secrets, and the MCP server wants a token.")
        with before_the_call():
            return self._means.secrets.newest(call.tenant, server.secret).strip()


def _server(name: str, settings: Mapping[str, str]) -> McpServer:
    """Return a server of the deployment. Raises PermanentFailure when it is none, or the setting cannot be read."""
    try:
        found = McpServer.told_in(settings).get(name)
    except ValueError as error:
        raise PermanentFailure(str(error)) from None
    if found is None:
        told = f"This deployment names no MCP server {name}. Add it to mcp_servers in infra/settings.py"
        raise PermanentFailure(f"{told}; for a run of a file, to the tool setting {MCP_SERVERS}.")
    return found
