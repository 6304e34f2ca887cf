"""Small manifests, written down as graphs, and what their tools do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from house import House

from shared.errors import TransientFailure
from shared.manifest import Body, Edge, Limits, Manifest, Retry, StepPlan
from shared.testing import FakeModels, FakeTools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def step(name: str, *needs: str | Edge, **more: Any) -> StepPlan:
    """A step that calls the tool of its name, unless ``more`` says otherwise."""
    edges = tuple(need if isinstance(need, Edge) else Edge(need) for need in needs)
    spec = {"tool": name, "with": {}, "cost": 0} | more.pop("spec", {})
    return StepPlan(id=name, type=more.pop("type", "tool"), needs=edges, spec=spec, **more)


def graph(*steps: StepPlan) -> dict[str, StepPlan]:
    """The steps by name, each with its dependents."""
    return {
        plan.id: replace(plan, dependents=tuple(o.id for o in steps if plan.id in {edge.source for edge in o.needs}))
        for plan in steps
    }


def body(*steps: StepPlan) -> Body:
    return Body(graph(*steps), tuple(plan.id for plan in steps))


def manifest(*steps: StepPlan, templates: tuple[StepPlan, ...] = (), **more: Any) -> Manifest:
    order = tuple(plan.id for plan in steps)
    known = {"workflow": "w", "hash": "h", "input": {}, "budget": Limits(), "on_error": "pause"}
    return Manifest(**{**known, **more}, steps=graph(*steps, *templates), order=order)


def house(*steps: StepPlan, tools: Mapping[str, Callable[..., Any]] | None = None, **more: Any) -> House:
    """A house for these steps; a tool that is not given returns its call's path."""

    class Tools(FakeTools):
        def invoke(self, name: str, arguments: Mapping[str, Any], call: Any) -> Any:
            self._functions.setdefault(name, lambda _, made: {"from": made.path})
            return super().invoke(name, arguments, call)

    return House((manifest(*steps, **more),), FakeModels(lambda _: "x"), Tools(dict(tools or {})))


def failing(times: int = 1000, error: type[Exception] = TransientFailure) -> Callable[..., Any]:
    """A tool that fails so many times, then works."""
    left = [times]

    def tool(_: dict[str, Any], call: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise error("down")
        return {"from": call.path}

    return tool


ONCE = Retry(max_retries=1, base_delay=2.0, jitter=False)
