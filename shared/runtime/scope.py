"""The names that expressions see: ``input``, ``steps``, ``run``, ``trigger``, loaded from a run's records."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from shared import values
from shared.definition.expressions import evaluate, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.ledger.records import Step
    from shared.manifest import StepPlan
    from shared.ports import Blobs
    from shared.runtime.journal import Snapshot

_STEP_NAME = re.compile(r"\bsteps\s*\.\s*([a-z][a-z0-9_]*)")


def mentioned(*templates: Any) -> frozenset[str]:
    """Return the steps that any expression inside ``templates`` may refer to (a superset is harmless: it is read)."""
    return frozenset(name for text in _texts(templates) for name in _STEP_NAME.findall(text))


def mentions(plan: StepPlan) -> frozenset[str]:
    """Return the steps whose records the plan's expressions and edges need."""
    conditions = [plan.when, *(edge.when for edge in plan.needs)]
    return mentioned(dict(plan.spec), conditions) | {edge.source for edge in plan.needs}


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("dict[str, Any]", value).values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("list[Any]", value):
            yield from _texts(inner)


class Scope:
    """Names for the expressions of one step instance, from a snapshot that holds the records it mentions."""

    def __init__(self, seen: Snapshot, blobs: Blobs, prefix: str = "", extra: Mapping[str, Any] | None = None) -> None:
        run = seen.run
        self._blobs = blobs
        self._names: dict[str, Any] = {
            "input": values.load(run.input, blobs),
            "steps": {step.path.removeprefix(prefix): self._seen(step) for step in seen.steps()},
            "run": {"id": run.id, "workflow": run.workflow, "version": run.version, "tenant": run.tenant},
            "trigger": {"kind": run.trigger, "initiator": run.initiator},
            **(extra or {}),
        }

    def _seen(self, step: Step) -> dict[str, Any]:
        failure = asdict(step.failure) if step.failure else None
        return {"output": values.load(step.output, self._blobs), "status": step.status, "error": failure}

    def evaluate(self, expression: str) -> Any:
        """Evaluate a bare expression. Raises PermanentFailure with the expression's position."""
        return evaluate(expression, self._names)

    def holds(self, condition: str | None) -> bool:
        """Tell whether a condition is true; no condition is."""
        return condition is None or self.evaluate(condition) is True

    def render(self, template: Any) -> Any:
        """Render every ``${...}`` inside a JSON template."""
        return render(template, self._names)
