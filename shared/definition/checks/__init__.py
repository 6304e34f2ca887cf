"""The checks: a registry of small rules. Every rule runs on every workflow; all findings come at once."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from shared.definition.checks import (
    agents,
    bodies,
    builtins,
    children,
    expressions,
    gates,
    graph,
    limits,
    risk,
    routers,
    schemas,
    secrets,
    size,
    times,
    triggers,
    truth,
)
from shared.definition.checks import tools as tool_rules
from shared.definition.checks.registry import RULES, Context
from shared.definition.loader import capped, in_order
from shared.definition.yaml_tree import MAX_FAULTS
from shared.tools.builtin import with_builtins

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from shared.definition.loader import Loaded
    from shared.definition.neighbours import Neighbour
    from shared.errors import Finding
    from shared.tools.registry import Tool

MOST_OF_A_KIND = MAX_FAULTS + 1
"""Findings of one rule. Nobody mends more at once, and each takes time to word."""
ROOMS = (
    *(agents, bodies, builtins, children, expressions, gates, graph, limits, risk, routers, schemas, secrets, size),
    *(times, tool_rules, triggers, truth),
)
"""The modules of rules. Importing one registers its rules."""

__all__ = ["ROOMS", "RULES", "Context", "check"]


def check(
    loaded: Loaded,
    tools: Mapping[str, Tool],
    models: frozenset[str],
    known_workflows: Mapping[str, Neighbour] | None = None,
    servers: frozenset[str] | None = None,
    today: date | None = None,
) -> tuple[Finding, ...]:
    """Return every finding about a loaded workflow, in the order of the file; none means that it may be compiled.

    Args:
        loaded: The workflow. The faults that reading it found are among the findings.
        tools: The tools that its steps may name besides the built-in ones.
        models: The names of the known models.
        known_workflows: The workflows that its steps may start (see ``neighbours``); None leaves them unchecked.
        servers: The MCP servers that its steps may name; None leaves them unchecked.
        today: The day from which times of schedules count; None = the one that it is, in UTC.
    """
    context = Context(loaded, with_builtins(tools), models, today or datetime.now(UTC).date(), known_workflows, servers)
    oversize = tuple(RULES["size"](context))
    found = oversize or (finding for rule in RULES.values() for finding in islice(rule(context), MOST_OF_A_KIND))
    return capped(in_order((*loaded.faults, *found), loaded.name))
