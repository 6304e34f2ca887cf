"""What the crash matrix knows of one kind of run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults import Tap
    from play import Play


@dataclass(frozen=True)
class Route:
    """One way through a workflow: ``make`` builds it, ``ends`` are the states it may end in without a cancel."""

    make: Callable[[Tap], tuple[Play, Any]]
    ends: str
