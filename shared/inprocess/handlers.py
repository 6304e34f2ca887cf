"""What the functions do on AWS, for one process: every operation leads to the same handler of ``shared.runtime``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.runtime.gates import run_gate
from shared.runtime.host import plan_of
from shared.runtime.operations import control
from shared.runtime.steps import run_step

if TYPE_CHECKING:
    from shared.manifest import StepPlan
    from shared.runtime.host import StepHost
    from shared.runtime.mailing import GateHost
    from shared.runtime.task import Task

UNWIND = "unwind"
"""Name of the unwind machine in this process."""
_STEP_FUNCTION = frozenset({"fallback", "compensate", "probe"})


@dataclass(frozen=True, slots=True)
class Handlers:
    """The ports of the steps' handlers and of the gates'."""

    steps: StepHost
    gates: GateHost

    def perform(self, task: Task) -> Any:
        """Perform one operation. Raises whatever the handler raises."""
        if task.op in _STEP_FUNCTION:
            return run_step(self.steps, task)
        if task.op != "run":
            return control(self.steps, task, UNWIND)
        plan = plan_of(self.steps.manifest(task), task.path)
        if plan.type == "human_gate":
            return run_gate(self.gates, task)
        return run_step(self.steps, task) if calls(plan) else control(self.steps, task, UNWIND)


def calls(plan: StepPlan) -> bool:
    """Tell whether a step calls a model or a tool."""
    return plan.type in {"agent", "turn", "tool"} or (plan.type == "router" and plan.spec["strategy"] == "llm")
