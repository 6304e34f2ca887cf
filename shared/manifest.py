"""The manifest: what the compiler hands to the runtime about one definition, as frozen data.

The runtime never sees the workflow file. Everything it decides from (edges, conditions, policies, prompts) stands
here, resolved: durations are seconds, money is nano-USD, files are inlined, policies are filled in.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Risk = Literal["read", "reversible", "irreversible"]
OnError = Literal["fail", "pause", "continue"]
Merge = Literal["by_step", "shallow", "deep", "list", "first"]
StepType = Literal[
    "agent",
    "tool",
    "transform",
    "router",
    "human_gate",
    "sub_workflow",
    "map",
    "loop",
    "wait",
    "part",
    "turns",
    "turn",
]
"""As in the file, and: ``part``, the child execution that a large map or a long loop is split into; ``turns``, an agent
with tools; ``turn``, one request of it."""
ALONE = " alone"
"""What a map's or loop's path is followed by where the run of its own begins in the machine."""
YEAR = 31_536_000
"""Seconds; a standard execution lives no longer. Source: Step Functions quotas, "Maximum execution time"."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One ``needs`` relation. ``when`` is a CEL condition or None; ``optional`` is the source's own mark."""

    source: str
    when: str | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry policy of one step; delays in seconds."""

    max_retries: int
    backoff: Literal["exponential", "linear"] = "exponential"
    base_delay: float = 2.0
    max_delay: float = 60.0
    jitter: bool = True
    on: tuple[str, ...] = ("timeout", "rate_limit", "transient", "invalid_output")


@dataclass(frozen=True, slots=True)
class Limits:
    """Budget limits; None = no limit of its own. ``usd`` in nano-USD, ``active_time`` in seconds."""

    usd: int | None = None
    tokens: int | None = None
    steps: int | None = None
    active_time: float | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """The graph inside a map or a loop; ``order`` is topological. Its steps name each other only."""

    steps: Mapping[str, StepPlan]
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """How a map or a loop is split into child executions, each with a history of its own.

    Up to ``inline`` items run in the execution itself (a loop: none). A child takes at most ``size`` items or
    iterations; ``at_once`` children run together, each with ``inside`` items at once.
    """

    inline: int
    size: int
    at_once: int = 1
    inside: int = 1


MOST_CALLS = 8
"""Calls of one turn of an agent; what a model proposes beyond them is refused."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What an agent with tools does: at most ``most`` turns, each a request to its model and the calls it proposes.

    ``turn`` is the plan of every request, ``tools`` are those of its calls by tool, ``at_once`` of them run together.
    """

    turn: StepPlan
    tools: Mapping[str, StepPlan]
    most: int
    at_once: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step as the runtime needs it.

    ``join`` is ``"all"``, ``"any"`` or the number of a quorum. ``dependents`` are the steps that need this one.
    ``wakes`` are the steps whose await state listens to this step's settling. ``approved_by`` is the gate that names
    this step in ``approves``. ``spec`` holds the fields of the step's type, prompts inlined, as in the file:

    - agent: model (list), portable, system, prompt, max_tokens, temperature
    - turns: system, prompt; and turn: model, portable, max_tokens, temperature, keep_turns (0 = all)
    - tool: tool, with, cost (nano-USD), compensate {tool, with} or None,
      reconcile {tool, with, found, conclusive_after (s)} or None; of an agent: description, parameters (JSON Schema)
    - transform: set
    - router: strategy, routes [{to, when|above|description}], default, model, prompt, value
    - human_gate: approves, approvers, subject, show, on_expiry, not_initiator, channels; edit (JSON Schema), quorum
      (1), remind_after (s), escalate [{after (s), to}]
    - sub_workflow: workflow, version (None = the latest), with
    - map: over, as, max_concurrency (0 = unlimited), on_failure ("fail_fast", "collect_all" or {quorum}), collect,
      max_items (None until the compiler has set it: nothing bounds the list)
    - loop: until, max_iterations, collect
    - wait: one of for (s, or a template), until (a template), event {name, match, timeout (s)}

    ``turns`` is what an agent with tools does. ``body`` is the graph inside a map or a loop; ``split`` says how it is
    split where one execution cannot hold it. ``slot`` is above 0 where the step waits for one of ``max_parallel``
    slots; the highest goes first. ``apart`` = the map or loop has a ``timeout`` or a ``budget``, and therefore a run of
    its own.
    """

    id: str
    type: StepType
    needs: tuple[Edge, ...] = ()
    dependents: tuple[str, ...] = ()
    wakes: tuple[str, ...] = ()
    join: str | int = "all"
    merge: Merge = "by_step"
    when: str | None = None
    timeout: float = 60.0
    retry: Retry = field(default_factory=lambda: Retry(max_retries=0))
    fallback: str | None = None
    on_error: OnError = "pause"
    optional: bool = False
    risk: Risk = "read"
    output: Mapping[str, Any] | None = None
    budget: Limits = field(default_factory=Limits)
    approved_by: str | None = None
    spec: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Body | None = None
    split: Split | None = None
    turns: Turns | None = None
    slot: int = 0
    apart: bool = False


def route_schema(routes: Sequence[str]) -> dict[str, Any]:
    """Return what stands in for a router has to return: which of its routes is taken."""
    return {"type": "object", "required": ["route"], "properties": {"route": {"enum": [*routes]}}}


def part_plan(name: str) -> StepPlan:
    """Return the plan of one part of a map or a loop, ``each[300-599]``. What becomes of it, the whole judges."""
    retry = Retry(max_retries=2, on=("transient",))
    return StepPlan(name, "part", timeout=float(YEAR), retry=retry, on_error="continue")


@dataclass(frozen=True, slots=True)
class Trigger:
    """What starts runs besides the API. ``id`` is its name in the file, ``input`` a template over ``trigger``.

    ``spec`` holds the fields of its kind as in the file: scheme and secret (a name); cron and timezone; pattern; for a
    queue, tenant_by_group.
    """

    kind: Literal["webhook", "schedule", "event", "queue"]
    id: str
    tenant: str
    input: Any
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One immutable definition. ``hash`` is the SHA-256 of definition and ASL; ``order`` is topological.

    ``on_error`` is the workflow's; a step's own, or this one, is already resolved in the step's plan.
    Steps used only as a fallback template are in ``steps`` but not in ``order``. Where there are no ``triggers``, its
    JSON does not name them. ``deadline`` is wall-clock (s).
    ``slots`` tells whether any step waits for a slot.
    """

    workflow: str
    hash: str
    input: Mapping[str, Any]
    budget: Limits
    steps: Mapping[str, StepPlan]
    order: tuple[str, ...]
    max_parallel: int = 10
    on_error: OnError = "pause"
    description: str = ""
    deadline: float | None = None
    slots: bool = False
    triggers: tuple[Trigger, ...] = ()
    format: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        steps = {name: _slim(plan) for name, plan in self.steps.items()}
        whole = {**asdict(replace(self, steps={})), "steps": steps}
        return whole if self.triggers else {name: value for name, value in whole.items() if name != "triggers"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Rebuild a manifest from ``to_json``'s data. Raises KeyError or TypeError on foreign data."""
        steps = {name: _step(plan) for name, plan in data["steps"].items()}
        rest = {key: value for key, value in data.items() if key not in {"steps", "budget", "order", "triggers"}}
        triggers = tuple(Trigger(**each) for each in data.get("triggers", ()))
        limits, order = Limits(**data["budget"]), tuple(data["order"])
        return cls(**rest, steps=steps, budget=limits, order=order, triggers=triggers)

    def trigger(self, name: str) -> Trigger | None:
        """Return the trigger of this name, if there is one."""
        return next((one for one in self.triggers if one.id == name), None)


def _slim(plan: StepPlan) -> dict[str, Any]:
    """Return a step's plan without what is as by default: manifests have a size limit, and most fields are."""
    usual = StepPlan(plan.id, plan.type)
    given = {one.name: getattr(plan, one.name) for one in fields(plan) if one.name not in {"body", "turns"}}
    kept = {name: value for name, value in given.items() if name in {"id", "type"} or value != getattr(usual, name)}
    slim: dict[str, Any] = {name: _plain(value) for name, value in kept.items()}
    if plan.body:
        slim["body"] = {
            "order": plan.body.order,
            "steps": {name: _slim(step) for name, step in plan.body.steps.items()},
        }
    if plan.turns:
        tools = {name: _slim(tool) for name, tool in plan.turns.tools.items()}
        slim["turns"] = {**asdict(replace(plan.turns, tools={})), "turn": _slim(plan.turns.turn), "tools": tools}
    return slim


def _plain(value: Any) -> Any:
    """Return data classes (alone, or in a tuple) as plain data; everything else is plain already."""
    if isinstance(value, tuple):
        return [_plain(one) for one in cast("tuple[Any, ...]", value)]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _body(data: Mapping[str, Any]) -> Body:
    return Body({name: _step(plan) for name, plan in data["steps"].items()}, tuple(data["order"]))


def _turns(data: Mapping[str, Any]) -> Turns:
    tools = {name: _step(tool) for name, tool in data["tools"].items()}
    return Turns(_step(data["turn"]), tools, data["most"], data["at_once"])


def _step(data: Mapping[str, Any]) -> StepPlan:
    plain = dict(data)
    if "needs" in data:
        plain["needs"] = tuple(Edge(**edge) for edge in data["needs"])
    if "retry" in data:
        retry: dict[str, Any] = dict(data["retry"])
        retry["on"] = tuple(retry["on"])
        plain["retry"] = Retry(**retry)
    if "budget" in data:
        plain["budget"] = Limits(**data["budget"])
    for name in {"dependents", "wakes"} & set(data):
        plain[name] = tuple(cast("list[str]", data[name]))
    if data.get("body"):
        plain["body"] = _body(data["body"])
    if data.get("split"):
        plain["split"] = Split(**data["split"])
    if data.get("turns"):
        plain["turns"] = _turns(data["turns"])
    return StepPlan(**plain)
