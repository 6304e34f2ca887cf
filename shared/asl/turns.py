"""The states of an agent with tools: what comes next, a turn, the calls that it proposes, and again what comes next.

Every tool of the agent has a task of its own, so each call has its tool's time-out from the machine, whoever proposed
it; a call of a tool that has none cannot be expressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.asl import names
from shared.asl.states import Choice, Machine, Map, State, Succeed
from shared.asl.tasks import Steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.manifest import StepPlan, Turns

_CALL: Mapping[str, Any] = {
    "run.$": "$.run",
    "scope.$": "$.scope",
    "routes": {},
    "call.$": "$$.Map.Item.Value",
}
_STEP = "step"


def turn_states(turns: Turns, label: str, after: str, failed: str, taken: set[str]) -> dict[str, State]:
    """Return the states behind the task of an agent, the first one first.

    ``label`` names that task, ``after`` is what follows the agent, ``failed`` the way out of the machine or branch.
    """
    own = names.unique(names.turn(label), taken, names.MAX_STEP_ID)
    turn = _one(turns.turn, own, "$.turns.step")
    cases = (("turn", turn.entry(_STEP)), ("calls", names.calls(label)))
    return {
        names.next_of(label): Choice("$.turns.next", cases, after),
        **_states(turn, own, label, failed),
        names.calls(label): Map("$.turns.calls", _CALL, _call(turns, label, taken), turns.at_once, label),
    }


def _one(plan: StepPlan, label: str, path: str, tool: str = "") -> Steps:
    """Return what makes the states of the step that stands at ``path`` in the data."""
    return Steps({_STEP: plan}, {_STEP: label}, frozenset(), {_STEP: path}, tool)


def _states(one: Steps, label: str, after: str, failed: str) -> dict[str, State]:
    slot = {names.slot(label): one.slot(_STEP)} if one.plans[_STEP].slot else {}
    return {label: one.task(_STEP, after), **one.trouble(_STEP, after, failed), **slot}


def _call(turns: Turns, label: str, taken: set[str]) -> Machine:
    """Return what is done for one call: the task of its tool, chosen by name."""
    done, failed, which = names.call_done(label), names.call_failed(label), names.which(label)
    tools = dict(_tools(turns, label, taken))
    states: dict[str, State] = {}
    if len(tools) > 1:
        states[which] = Choice("$.call.tool", tuple((tool, one.entry(_STEP)) for tool, one in tools.items()), failed)
    for one in tools.values():
        states.update(_states(one, one.labels[_STEP], done, failed))
    start = which if len(tools) > 1 else next(one.entry(_STEP) for one in tools.values())
    return Machine(start, {**states, done: Succeed(), failed: Succeed()})


def _tools(turns: Turns, label: str, taken: set[str]) -> Iterator[tuple[str, Steps]]:
    for tool, plan in turns.tools.items():
        yield tool, _one(plan, names.unique(names.tool(label, tool), taken, names.MAX_STEP_ID), "$.call.step", tool)
