"""What a workflow must know of the others in its folder: their inputs, and whom they start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.definition.loader import load_file
from shared.definition.models import SubWorkflow
from shared.definition.scopes import scopes
from shared.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shared.definition.models import Workflow


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another workflow: the JSON Schema of its input, and the names of the workflows that it starts itself."""

    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    starts: frozenset[str] = frozenset()


def neighbour(workflow: Workflow) -> Neighbour:
    """Return what others must know of a workflow."""
    started = (place.step for scope in scopes(workflow) for place in scope.places())
    return Neighbour(workflow.input, frozenset(step.workflow for step in started if isinstance(step, SubWorkflow)))


def neighbours(folder: Path) -> dict[str, Neighbour]:
    """Return the workflows of a folder by name. Of a file that has faults only what can be read is known."""
    found: dict[str, Neighbour] = {}
    for file in sorted(folder.glob("*.yaml")):
        try:
            workflow = load_file(file, strict=False).workflow
        except DefinitionError:
            found[file.stem] = Neighbour()  # its own check tells what is wrong
        else:
            found[workflow.workflow] = neighbour(workflow)
    return found
