"""What an agent's model is offered: its tools under names that providers take, described by whoever knows them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.ids import sha256
from shared.ports import Offer, Proposal
from shared.runtime.scopes import turn_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.manifest import StepPlan
    from shared.ports import Blobs
    from shared.runtime.journal import Snapshot

_OFFERED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names of tools that providers take back in a conversation. Source: Messages API, "Tool use"."""
_LONGEST_NAME = 64
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_PLAIN = re.compile(r"\w+\.\w+|mcp:[a-z0-9_]+/[\w-]+", re.ASCII)
"""Names of which no two become the same when what a provider does not take becomes a dash."""


def offers(tools: Mapping[str, StepPlan]) -> tuple[Offer, ...]:
    """Return the tools as a model reads about them."""
    return tuple(
        Offer(offered(name), tool.spec["description"], tool.spec["parameters"]) for name, tool in tools.items()
    )


def offered(name: str) -> str:
    """Return the name under which a model knows a tool: providers take no dots, and no name becomes another's.

    ``http.request`` is ``http-request``, since no function's name has a dash; ``mcp:crm/find`` is ``mcp-crm-find``.
    What else does not fit is shortened and marked with its digest.
    """
    if _OFFERED.fullmatch(name):
        return name
    plain = _OTHER.sub("-", name)
    if len(plain) <= _LONGEST_NAME and _PLAIN.fullmatch(name):
        return plain
    return f"{plain[: _LONGEST_NAME - 9]}-{sha256(name.encode())[:8]}"


def could_be(name: str) -> bool:
    """Tell whether a name is one that a tool can have, here or at a provider."""
    return bool(_OFFERED.fullmatch(name) or _PLAIN.fullmatch(name))


def called(proposals: Sequence[Proposal], tools: Mapping[str, StepPlan]) -> tuple[Proposal, ...]:
    """Return what a model proposes under the tools' own names."""
    names = {offered(name): name for name in tools}
    return tuple(Proposal(_own(names, one.tool), one.arguments) for one in proposals)


def _own(names: Mapping[str, str], given: Any) -> Any:
    return names.get(given, given) if isinstance(given, str) else given


def pinned(agent: str, number: int, seen: Snapshot, blobs: Blobs) -> Mapping[str, Any] | None:
    """Return how an earlier turn has described tools of servers: they stay as they were when the agent began."""
    for before in range(1, number):
        record = seen.step(turn_path(agent, before))
        if record and record.arguments:
            return values.load(record.arguments, blobs).get("offers")
    return None


def described(tools: Mapping[str, StepPlan], offers: Mapping[str, Any]) -> Mapping[str, StepPlan]:
    """Return the tools with what their servers say of them; a description of the author's own stands."""
    return {name: _described(tool, offers[name]) if name in offers else tool for name, tool in tools.items()}


def _described(tool: StepPlan, offer: Mapping[str, Any]) -> StepPlan:
    told = {"description": tool.spec["description"] or offer["description"], "parameters": offer["parameters"]}
    return replace(tool, spec={**tool.spec, **told})
