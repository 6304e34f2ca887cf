"""The workflows whose processes are killed, and what must hold of their runs in the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bodies import linked
from sink import PRICE

from shared.ledger.records import Amount
from shared.manifest import Edge, Limits, Manifest, Retry, StepPlan
from shared.runtime.fold import fold
from shared.runtime.gates import Word
from shared.runtime.rebuild import compare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sink import Sink

    from shared.ledger.records import Event
    from shared.runtime.journal import Journal, Snapshot

APPROVED = Word("approved", "fatima@example.test")
AT_REST = ("completed", "failed", "stopped", "cancelled", "timed_out", "paused", "waiting_for_human")
"""Where a run may be in the end: it is over, or a person is named who has to act."""
_FIND = {"tool": "find", "with": {"key": "${ call.idempotency_key }"}, "found": "result.count > 0"}
_VOID = {"tool": "void", "with": {}}
_RETRY = Retry(max_retries=3, base_delay=0.05, jitter=False)


def _call(name: str, *needs: str, risk: Any = "reversible", probe: bool = True, **more: Any) -> StepPlan:
    """Return a step that calls the tool of its name, up to a figure at the end."""
    undo = _VOID if risk == "reversible" else None
    ask = {**_FIND, "conclusive_after": 0} if probe and risk != "read" else None
    spec = {"tool": name.rstrip("2"), "with": {}, "cost": PRICE, "compensate": undo, "reconcile": ask}
    edges = tuple(Edge(need) for need in needs)
    return StepPlan(name, "tool", edges, risk=risk, timeout=2.0, retry=_RETRY, spec=spec, **more)


def _manifest(name: str, *plans: StepPlan, steps: int = 40) -> Manifest:
    limits = Limits(usd=steps * PRICE, tokens=100, steps=steps, active_time=3600.0)
    order = tuple(plan.id for plan in plans)
    return Manifest(name, f"hash of {name}", {"type": "object"}, limits, linked(plans), order)


def _gate() -> StepPlan:
    spec = {"approves": "pay", "approvers": ["finance"], "on_expiry": "reject"}
    return StepPlan("review", "human_gate", (Edge("look"),), timeout=3600.0, on_error="fail", spec=spec)


_PLAIN = (
    _call("look", risk="read"),
    _call("post", "look"),
    _call("note", "look", probe=False),
    _call("look2", "post", "note", risk="read"),
    _call("note2", "look2"),
)
PLAIN = _manifest("plain", *_PLAIN)
TIGHT = _manifest("tight", *_PLAIN, steps=4)
"""Its limit is too low for all of it."""
GATED = _manifest(
    "gated",
    _call("look", risk="read"),
    _gate(),
    _call("pay", "review", risk="irreversible", approved_by="review"),
    _call("note", "pay", probe=False),
)
MANIFESTS = {made.workflow: made for made in (PLAIN, GATED, TIGHT)}


def workflow_of(number: int) -> str:
    """Return which workflow the run of this number is one of: half are gated, a few short of money."""
    return "tight" if number % 10 == 9 else "gated" if number % 2 else "plain"


def violations(journal: Journal, sink: Sink) -> list[str]:
    """Return what is wrong with a run that no process drives any more."""
    seen, events = journal.read_all(), journal.events()
    manifest = MANIFESTS[seen.run.workflow]
    found = [
        *_at_rest(seen),
        *inconsistent(seen, events),
        *_repeated(events),
        *_doubled(seen, manifest, sink.effects(seen.run.id)),
    ]
    return [f"{seen.run.workflow} {seen.run.id} ({seen.head.state}): {what}" for what in found]


def _at_rest(seen: Snapshot) -> Iterator[str]:
    if seen.head.state not in AT_REST:
        yield f"is neither over nor waits for a person; {seen.head}"
    held = [step.path for step in seen.steps() if step.open or step.hold != Amount()]
    if held or seen.head.open:
        yield f"reserves something in the end: {held}"


def inconsistent(seen: Snapshot, events: Sequence[Event]) -> Iterator[str]:
    """Yield how a run's records, at any moment, break what its log says, or its limits."""
    if [event.seq for event in events] != list(range(1, seen.head.seq + 1)):
        yield "the log has gaps"
    yield from (f"is not what its log says: {one}" for one in compare(seen, events).differences if one.record != "RUN")
    run = seen.run
    limit = Amount(usd=run.limit_usd or 0, tokens=run.limit_tokens or 0, steps=run.limit_steps or 0)
    for end in range(1, len(events) + 1):
        steps = fold(events[:end]).steps.values()
        taken = sum((step.spent + step.hold for step in steps), Amount())
        if taken.usd > limit.usd or taken.tokens > limit.tokens or taken.steps > limit.steps:
            yield f"has taken {taken} of {limit} at event {end}"


def _repeated(events: Sequence[Event]) -> Iterator[str]:
    """Yield what happened once more though it had been done: a step completed, or its gate decided, twice.

    A gate is decided again where the run was resumed before the call that it approves had a result.
    """
    once, epoch = Counter[tuple[str, str | None, int]](), 1
    for event in events:
        epoch += event.type == "run_resumed"
        if event.type in {"step_completed", "gate_decided", "run_completed"}:
            once[event.type, event.path, epoch if event.type == "gate_decided" else 0] += 1
    yield from (f"{path or 'the run'}: {kind} {count} times" for (kind, path, _), count in once.items() if count > 1)


def _doubled(seen: Snapshot, manifest: Manifest, effects: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the calls whose effect came twice, or is missing though they completed, or came without approval."""
    keys, calls = Counter(one["key"] for one in effects), Counter(one["path"] for one in effects)
    yield from (f"{count} effects of key {key}" for key, count in keys.items() if count > 1)
    yield from (f"{count} effects of call {path}" for path, count in calls.items() if count > 1)
    for plan in manifest.steps.values():
        step, done = seen.step(plan.id), calls[plan.id]
        if plan.risk != "read" and step and step.status == "completed" and done != 1:
            yield f"{plan.id} has completed with {done} effects"
        if done and not (step and step.call):
            yield f"{plan.id} has an effect that nobody recorded before"


@dataclass
class Tally:
    """What was played, and what went wrong. ``interrupted`` are calls whose process died."""

    kills: int = 0
    stops: int = 0
    runs: int = 0
    effects: int = 0
    interrupted: int = 0
    states: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])

    def add(self, journal: Journal, sink: Sink) -> None:
        """Look at a run that is at rest."""
        seen = journal.read(["RUN"])
        self.runs += 1
        self.effects += len(sink.effects(seen.run.id))
        self.interrupted += sum(event.type == "attempt_lost" for event in journal.events())
        self.states[seen.head.state] += 1
        self.violations += violations(journal, sink)
