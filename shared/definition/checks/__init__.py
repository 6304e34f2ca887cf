"""The checks: a registry of small rules. Every rule runs on every workflow; all findings come at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.definition.checks import expressions, gates, graph, later, limits, risk, routers, schemas
from shared.definition.checks import tools as tool_rules
from shared.definition.checks.registry import RULES, Context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.definition.loader import Loaded
    from shared.errors import Finding
    from shared.tools.registry import Tool

ROOMS = (expressions, gates, graph, later, limits, risk, routers, schemas, tool_rules)
"""The modules of rules. Importing one registers its rules."""

__all__ = ["ROOMS", "RULES", "Context", "check"]


def check(loaded: Loaded, tools: Mapping[str, Tool], models: frozenset[str]) -> tuple[Finding, ...]:
    """Return every finding about a loaded workflow, in the order of the file; none means that it may be compiled.

    ``tools`` are the tools that its steps may name, ``models`` the names of the known models.
    """
    context = Context(loaded, tools, models)
    found = dict.fromkeys(finding for rule in RULES.values() for finding in rule(context))
    return tuple(sorted(found, key=lambda one: (one.file != loaded.name, one.file, one.line, one.column, one.rule)))
