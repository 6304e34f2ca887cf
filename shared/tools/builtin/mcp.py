"""``mcp.call``: one tool of an MCP server; and the tools of such servers that agents' models call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from shared.errors import PermanentFailure, StepFailure
from shared.ids import sha256
from shared.settings import MCP_SERVERS
from shared.tools import client, guard, remote
from shared.tools.guard import Allowed
from shared.tools.mcp import Dialect, Mcp, Server
from shared.tools.registry import Call  # noqa: TC001 - checks read the annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from shared.tools.means import Means

LISTING = 10.0
"""Seconds within which a server must list its tools."""


class Place(NamedTuple):
    """Where a server is, and the tenant's secret with its bearer token."""

    url: str
    secret: str = ""


def tools(means: Means) -> dict[str, Callable[..., Any]]:
    """Return the tools of this room."""
    return {"mcp.call": Servers(means).call}


class Servers:
    """The deployment's servers. Raises StepFailure subclasses as ``client.send`` does, and UnclearAnswer for errors."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._dialects: dict[tuple[str, str, str], Dialect] = {}

    def call(self, *, server: str, tool: str, arguments: dict[str, Any] | None = None, call: Call) -> Any:
        """Call a tool of an MCP server that the deployment names."""
        if not isinstance(cast("Any", arguments or {}), dict):
            raise PermanentFailure("The `arguments` of mcp.call are no object.")

        def ask(speaking: Mcp) -> Any:
            return speaking.call(tool, arguments or {}, client.deadline_of(call.timeout), call.idempotency_key)

        return self._asked(server, call, ask)

    def offers(self, names: Collection[str], call: Call) -> dict[str, dict[str, Any]]:
        """Return what these tools do and take, as their servers say now; each server is asked once."""
        wanted: dict[str, set[str]] = {}
        for server, tool in map(remote.parted, names):
            wanted.setdefault(server, set()).add(tool)
        listed = {server: self._listed(server, tools, call) for server, tools in wanted.items()}
        return {name: remote.offer_of(name, listed[remote.parted(name)[0]]) for name in names}

    def _listed(self, server: str, wanted: Collection[str], call: Call) -> list[dict[str, Any]]:
        """Return what a server lists of the wanted tools; asking it changes nothing, so no failure leaves a doubt."""
        try:
            found = self._asked(server, call, lambda it: it.tools(wanted, client.deadline_of(LISTING)))
            return list(found.values())
        except RecursionError:
            raise PermanentFailure(f"What the MCP server {server} lists is nested too deeply.") from None
        except StepFailure as failure:
            failure.uncertain = False
            raise

    def _asked(self, name: str, call: Call, ask: Callable[[Mcp], Any]) -> Any:
        """Let a server be asked. Its token is nowhere in what comes back, nor in what is said about a failure."""
        place = places(call.settings).get(name)
        if place is None:
            told = f"This deployment names no MCP server {name}. Add it to mcp_servers in infra/settings.py"
            raise PermanentFailure(f"{told}; for a run of a file, to the tool setting {MCP_SERVERS}.")
        token = self._token(place, call)
        whose = place.url, call.tenant, sha256(token.encode(errors="surrogatepass"))  # a session is one tenant's
        speaking = Mcp(_net(self._means, call, place), Server(name, place.url, token), self._dialects.get(whose))
        from shared.runtime.secrets import Known  # noqa: PLC0415 - only where something is asked

        try:
            answer = Known(speaking, (token,) if token else ()).call(ask)
        except BaseException:
            self._dialects.pop(whose, None)  # what is still under way there is of no use to the next call
            raise
        if speaking.dialect is not None:
            self._dialects[whose] = speaking.dialect
        return answer

    def _token(self, place: Place, call: Call) -> str:
        if not place.secret:
            return ""
        secrets = self._means.secrets
        if secrets is None:
            raise PermanentFailure("This host has no secrets, and the MCP server wants a token.")
        try:
            return secrets.value(call.tenant, place.secret, secrets.version(call.tenant, place.secret)).strip()
        except StepFailure as failure:
            failure.uncertain = False  # the call has not begun
            raise


def _net(means: Means, call: Call, place: Place) -> client.Net:
    """Return the way to a server: the deployment has named it, so it may stand anywhere that a host may."""
    named = Allowed(frozenset((host, port) for host in (_host(place.url),) for port in (None, _port(place.url))))
    target = guard.target_of(place.url, named)
    return means.net(call, (target.host, target.port))


def _host(url: str) -> str:
    return (guard.split(url).hostname or "").rstrip(".")


def _port(url: str) -> int:
    return guard.port_of(guard.split(url))


def places(settings: Mapping[str, str]) -> dict[str, Place]:
    """Return the servers of a deployment by name. Raises PermanentFailure for a setting that cannot be read."""
    try:
        given = json.loads(settings.get(MCP_SERVERS) or "{}")
        return {str(name): _place(one) for name, one in cast("dict[str, Any]", given).items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        wanted = '{"crm": {"url": "https://...", "secret": "crm_token"}}'
        raise PermanentFailure(f"The tool setting {MCP_SERVERS} cannot be read: {error!r}. Write {wanted}.") from None


def _place(given: Any) -> Place:
    return Place(given) if isinstance(given, str) else Place(str(given["url"]), str(given.get("secret") or ""))
