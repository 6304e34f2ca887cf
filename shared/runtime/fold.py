"""The event log folded: what it says of a run, of every step and gate, without looking at any other record.

Told are: how far the log goes, the run's epoch, whether and how it unwinds or has ended; for each step its attempts,
whether one is open, what it holds and has spent, the ledger entry of its call, how often it was retried, where it
stands and what it came to; for each gate what was decided, by whom, about which arguments. What an event of an earlier
release does not say is not told. Everything else on the records (values, failures, fences, leases, tokens) is not in
the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from shared.ledger.records import Amount
from shared.runtime.scopes import COMPENSATE, FALLBACK, around, is_part, whole_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shared.ledger.records import Ending, Event, StepStatus

FINAL = frozenset({"completed", "skipped", "cancelled", "compensated"})
"""Statuses in which a step has settled, whatever its policy."""
_NO_STEP = "call_refused"
"""The one event about a place where there is no step: what a model proposed there is not made."""
_COUNTED = ("usd", "tokens", "steps")

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToldStep:
    """What the log says of one step. None, or a name that is not in ``result`` or ``call`` = it does not say that.

    ``result`` is the output's digest, the route, and who gave it; ``call`` the ledger entry's key and dispatch.
    ``loose`` = it moves on without events: a map, a loop, an agent with tools.
    """

    attempt: int = 0
    open: bool = False
    hold: Amount = field(default_factory=Amount)
    spent: Amount = field(default_factory=Amount)
    status: StepStatus | None = None
    settled: bool | None = None
    retries: int | None = 0
    result: Mapping[str, Any] = field(default_factory=Data)
    call: Mapping[str, Any] = field(default_factory=Data)
    loose: bool = False


@dataclass(frozen=True, slots=True)
class ToldGate:
    """What the log says of one gate; ``status`` None = it does not say."""

    status: str | None
    digest: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What the log says of a run; ``ended_at`` in ms."""

    seq: int = 0
    epoch: int = 1
    began: int = 1
    unwinding: Ending | None = None
    reason: str | None = None
    ended: Ending | None = None
    ended_at: int | None = None
    steps: Mapping[str, ToldStep] = field(default_factory=dict[str, ToldStep])
    gates: Mapping[str, ToldGate] = field(default_factory=dict[str, ToldGate])


def fold(events: Iterable[Event]) -> Told:
    """Fold a whole log, in order."""
    told, steps, gates = Told(), dict[str, ToldStep](), dict[str, ToldGate]()
    for event in events:
        told = replace(_run(told, event), seq=event.seq)
        if event.type == "run_resumed":
            steps = {path: _renewed(path, step) for path, step in steps.items()}
            steps.update(_entered(steps, event.data))
            gates = {path: gate for path, gate in gates.items() if gate.status == "approved"}
        if event.path and event.type != _NO_STEP:
            known = steps.get(event.path, ToldStep())
            steps[event.path] = _step(known, event)
            steps.update(_beside(steps, event))
        gates.update(_gates(gates, event))
    return replace(told, steps=steps, gates=gates)


def _run(told: Told, event: Event) -> Told:
    if event.type == "run_unwinding":
        towards, reason = event.data["towards"], event.data.get("reason")
        return replace(told, unwinding=towards, reason=reason, ended=None, ended_at=None)
    if event.type == "run_resumed":
        return Told(epoch=event.data["epoch"], began=event.seq)
    if event.type.startswith("run_") and event.type != "run_started":
        return replace(told, ended=cast("Ending", event.type.removeprefix("run_")), ended_at=event.at)
    return told


def _renewed(path: str, step: ToldStep) -> ToldStep:
    """Return a step as a later epoch finds it: completed steps stay.

    What else stays by ``shared.runtime.epochs``, an agent's calls that failed and skips in doubt, is not told by the
    log alone: their status is then None, and not compared.
    """
    undoing = path.endswith(COMPENSATE)
    if step.status == "completed" and not undoing and not is_part(path):
        return step
    attempt = 0 if undoing else step.attempt
    return replace(step, status=None, settled=None, retries=None, result={}, attempt=attempt)


def _entered(steps: Mapping[str, ToldStep], data: Mapping[str, Any]) -> dict[str, ToldStep]:
    """Return the map or loop that a part has entered again with its epoch: its own, completed or not.

    Earlier releases only tell whose child goes on (``<run>|<path of the part>``), not what it enters.
    """
    part = str(data["by"]).rpartition("|")[2]
    path = data.get("entered") or (whole_of(part) if is_part(part) else None)
    if path is None:
        return {}
    told = replace(steps.get(path, ToldStep()), status=None, settled=None, result={})
    return {path: replace(told, status="running", settled=False) if "entered" in data else told}


# --- steps --------------------------------------------------------------------------------------------------------


def _step(step: ToldStep, event: Event) -> ToldStep:
    if event.type == "gate_decided" and step.status == "waiting":
        return replace(step, status=None)  # where an expiry fails the run, no event says that its step has failed
    if event.type.startswith("gate_") and event.attempt is None:
        return step  # a gate that is decided, or asked once more: its step says for itself how it goes on
    step = replace(step, attempt=event.attempt or step.attempt)
    if "used" in event.data:
        step = replace(step, open=False, hold=Amount(), spent=step.spent + Amount(**event.data["used"]), status=None)
    change = _CHANGES.get(event.type)
    step = change(step, event.data) if change else step
    if step.loose and step.status not in {*FINAL, "paused", "unknown"}:
        return replace(step, status=None, retries=None)
    if event.type == "step_failed" and (event.path or "").endswith(COMPENSATE):
        return replace(step, status=None, retries=None)  # an earlier release tries it again without an event
    return step


def _beside(steps: Mapping[str, ToldStep], event: Event) -> dict[str, ToldStep]:
    """Return the steps that a completed compensation has undone, or for which a completed fallback stands in."""
    path = event.path or ""
    if event.type == "step_compensated":
        return {one: _settled(steps[one], "compensated") for one in _around(steps, path)}
    if event.type == "step_resumed":
        return _answered(steps, f"{path}{FALLBACK}")
    if event.type == "call_probed" and event.data["conclusive"] and path.endswith(FALLBACK):
        own = path.removesuffix(FALLBACK)
        return {own: replace(steps.get(own, ToldStep()), status=None)}
    if event.type != "step_completed":
        return {}
    if path.endswith(COMPENSATE):
        return _undone(steps, path.removesuffix(COMPENSATE))
    return _stood_in_for(steps, path) if path.endswith(FALLBACK) else {}


def _answered(steps: Mapping[str, ToldStep], stand_in: str) -> dict[str, ToldStep]:
    """Return a fallback after a person's word on its step: its call was in doubt, or it begins anew."""
    known = steps.get(stand_in)
    if known is None or known.status in FINAL:
        return {}
    return {stand_in: replace(known, status=None, retries=None, result={}, call={})}


def _undone(steps: Mapping[str, ToldStep], path: str) -> dict[str, ToldStep]:
    every = dict.fromkeys((path, path.removesuffix(FALLBACK), *_around(steps, path)))
    return {one: _settled(steps.get(one, ToldStep()), "compensated") for one in every}


def _stood_in_for(steps: Mapping[str, ToldStep], path: str) -> dict[str, ToldStep]:
    own, result = path.removesuffix(FALLBACK), steps[path].result
    stood_in = {**result, "by": "fallback"} if "by" in result else result
    return {own: replace(_settled(steps.get(own, ToldStep()), "completed"), result=stood_in)}


def _around(steps: Mapping[str, ToldStep], path: str) -> list[str]:
    """Return the completed maps and loops around a step that was undone."""
    return [one for one in around(path) if one in steps and steps[one].status == "completed"]


def _settled(step: ToldStep, status: str) -> ToldStep:
    return replace(step, status=cast("StepStatus", status), settled=True)


def _opened(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    call = {name: data[name] for name in ("key", "dispatch") if name in data}
    return replace(step, open=True, hold=Amount(**data["hold"]), status="running", settled=False, call=call)


def _begun(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    return replace(step, hold=Amount(**data["hold"]), status="waiting", settled=False)


def _raised(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    dimension = data.get("dimension")
    if dimension is None:  # a person has raised several at once
        return replace(step, hold=step.hold + Amount(**{name: data["by"].get(name, 0) for name in _COUNTED}))
    more = Amount() if dimension == "active_time" else Amount(**{dimension: data["by"]})
    return replace(step, hold=step.hold + more)


def _completed(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    """Where the event says what came out, it says all of it; those of earlier releases only name a chosen route."""
    told = {name: data[name] for name in ("output", "route") if name in data}
    if "output" in data:
        told |= {"route": data.get("route"), "by": data.get("by", "step")}
    return replace(_settled(step, "completed"), result=told)


def _retrying(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    """What waits goes on waiting while its handler is tried again; an event whose time is over is waited for anew."""
    late = None if data["class"] == "timeout" else "waiting"
    return replace(step, status=late if step.status == "waiting" else "retrying", retries=data.get("retry"))


def _gave_up(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    status = "timed_out" if data.get("class") == "timeout" else "failed"
    return replace(step, status=status, settled=data.get("on_error") == "continue")


def _paused(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    return replace(step, status="unknown" if data["reason"] == "unknown_outcome" else "paused")


def _resumed(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    """Return a step after a person's word. What did not happen is made anew as another call, or asked for first."""
    if data["action"] == "did_not_happen":
        return replace(step, status=None, retries=None, call={})
    if data.get("asks"):  # for an approval: the step waits for it
        return replace(step, status="waiting", retries=0)
    if data["action"] == "retry":
        return replace(step, status="retrying", retries=0)
    return replace(step, status="failed" if data["action"] == "fail" else None)


def _probed(step: ToldStep, data: Mapping[str, Any]) -> ToldStep:
    return replace(step, status="failed") if data["conclusive"] else step


def _loose(step: ToldStep, _: Mapping[str, Any]) -> ToldStep:
    return replace(step, status=None, settled=None, loose=True)


def _given_up(step: ToldStep, _: Mapping[str, Any]) -> ToldStep:
    return replace(step, status="unknown", settled=True)


def _is(status: StepStatus | None) -> Callable[[ToldStep, Mapping[str, Any]], ToldStep]:
    return lambda step, _: replace(step, status=status, settled=status in FINAL)


_CHANGES: dict[str, Callable[[ToldStep, Mapping[str, Any]], ToldStep]] = {
    "step_opened": _opened,
    "child_started": _begun,
    "child_resumed": _begun,
    "child_raised": _raised,
    "call_probed": _probed,
    "call_given_up": _given_up,
    "step_paused": _paused,
    "step_completed": _completed,
    "step_retrying": _retrying,
    "step_gave_up": _gave_up,
    "step_resumed": _resumed,
    "step_fallback": lambda step, data: replace(step, retries=data.get("retry")),
    **dict.fromkeys(("map_entered", "loop_iteration", "agent_entered"), _loose),
    "step_compensated": lambda step, _: replace(step, status="compensated"),  # a part that had failed stays unsettled
    # Its letters are tried again without an event.
    "gate_opened": lambda step, _: replace(step, status="waiting", retries=None),
    "wait_started": _is("waiting"),
    "step_held": _is("retrying"),
    "call_proposed": _is("ready"),
    **dict.fromkeys(("step_failed", "budget_refused", "item_failed"), _is("failed")),
    **{f"step_{status}": _is(cast("StepStatus", status)) for status in ("unknown", "skipped", "cancelled")},
}


# --- gates --------------------------------------------------------------------------------------------------------


def _gates(gates: Mapping[str, ToldGate], event: Event) -> dict[str, ToldGate]:
    """Return the gates that an event says something of."""
    path, data = event.path or "", event.data
    if event.type == "gate_opened":
        return {path: ToldGate("open", data["digest"])}
    if event.type in {"run_unwinding", "item_failed"}:
        # Logs of earlier releases do not tell of every gate that is not asked any more.
        still = [one for one, gate in gates.items() if gate.status == "open" and one.startswith(path)]
        return {one: replace(gates[one], status=None) for one in still}
    known = gates.get(path)
    if known is None:
        return {}
    if event.type == "gate_decided":
        return {path: ToldGate(data["decision"], data.get("digest", known.digest), data["by"])}
    if event.type == "gate_edited":
        return {path: replace(known, digest=data["digest"])}
    cancelled = event.type == "step_cancelled" and known.status in {"open", "approved", None}
    return {path: replace(known, status="cancelled")} if cancelled or event.type == "gate_cancelled" else {}
