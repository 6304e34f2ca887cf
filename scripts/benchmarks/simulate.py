"""When a compiled machine ends if states cost no time and steps take what they take."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.benchmarks.graphs import Flow, task
from shared.compiler import Unit

_ROUNDING = 1e-6


def makespan(unit: Unit, flow: Flow) -> float:
    """Return the seconds until the last state of a happy run has ended.

    Raises AssertionError when the machine starts a step before something that it depends on has ended.
    """
    machine = _Machine(flow)
    last = machine.enter(unit.asl, machine.moment(), {}, {})
    for moment, number in machine.parked.items():
        machine.before[moment] += [machine.ended[source] for source in flow.needs[number]]
    ends = _ends(machine.before, machine.seconds)
    for number, sources in enumerate(flow.needs):
        begun = ends[machine.ended[number]] - flow.seconds[number]
        if any(ends[machine.ended[source]] > begun + _ROUNDING for source in sources):
            raise AssertionError(f"{flow.name}: the machine starts task {number} too early")
    return ends[last]


@dataclass(slots=True)
class _Machine:
    """Moments of a run, each at the earliest so many seconds after all those before it."""

    flow: Flow
    before: list[list[int]] = field(default_factory=list[list[int]])
    seconds: list[float] = field(default_factory=list[float])
    ended: dict[int, int] = field(default_factory=dict[int, int])
    parked: dict[int, int] = field(default_factory=dict[int, int])

    def moment(self, *before: int, seconds: float = 0.0) -> int:
        """Add a moment."""
        self.before.append(list(before))
        self.seconds.append(seconds)
        return len(self.before) - 1

    def enter(self, machine: Mapping[str, Any], at: int, lanes: Mapping[str, Any], lane: Mapping[str, str]) -> int:
        """Walk through a machine's happy path; return the moment of its end."""
        name: str | None = machine["StartAt"]
        while name is not None:
            state = machine["States"][name]
            match state["Type"]:
                case "Task":
                    at = self._task(state["Parameters"]["Payload"], at, lane)
                case "Parallel":
                    given = state.get("Parameters", {}).get("lanes", lanes)
                    at = self.moment(*(self.enter(branch, at, given, lane) for branch in state["Branches"]))
                case "Map":
                    items = lanes[state["ItemsPath"].rpartition(".")[2]]
                    at = self.moment(*(self.enter(state["ItemProcessor"], at, lanes, item) for item in items))
                case _:
                    pass
            name = state.get("Next")
        return at

    def _task(self, payload: Mapping[str, Any], at: int, lane: Mapping[str, str]) -> int:
        if payload["op"] not in {"run", "await"}:
            return at
        number = task(lane[payload["step.$"].rpartition(".")[2]] if "step.$" in payload else payload["step"])
        if payload["op"] == "await":
            parked = self.moment(at)
            self.parked[parked] = number
            return parked
        self.ended[number] = self.moment(at, seconds=self.flow.seconds[number])
        return self.ended[number]


def _ends(before: list[list[int]], seconds: list[float]) -> list[float]:
    """Return when every moment is: its own time after the last of those before it."""
    ends = [-1.0] * len(before)
    stack = list(range(len(before)))
    while stack:
        moment = stack[-1]
        open_ = [other for other in before[moment] if ends[other] < 0]
        if not open_:
            ends[stack.pop()] = seconds[moment] + max((ends[other] for other in before[moment]), default=0.0)
        else:
            stack += open_
    return ends
