"""How a definition will run: for its own graph and for every body in it, the tree with its jumps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.asl.jumps import Routed
    from shared.graph import Graph


@dataclass(frozen=True, slots=True)
class Layout:
    """One graph: its order, its tree with jumps, and by step id the layouts of the bodies of its maps and loops."""

    order: Graph
    routed: Routed
    bodies: Mapping[str, Layout] = field(default_factory=dict[str, "Layout"])
