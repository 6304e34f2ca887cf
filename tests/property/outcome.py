"""What a run came to, and whether two engines agree about it.

Where a failure cuts parallel work short, how far that work had come depends on timing and on nothing else: inside such
a scope only what both engines finished is compared; the end of the scope itself always is. A child run that was cut
short and goes on with its parent's retry tries once more what was under way, and nothing else: where two engines had
come to different steps, the far side and people answer another attempt, and everything after it may differ.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from shared import values
from shared.runtime.scopes import container_of, enclosing, graph_at, order_at, scope_of, whole_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from family import Member

    from shared.ledger.records import Step
    from shared.manifest import Manifest, StepPlan
    from shared.ports import Blobs
    from shared.runtime.journal import Snapshot

CONTAINERS = {"map", "loop", "item", "sub_workflow"}
VOLATILE = {"at", "error", "run"}
"""Fields of outputs in which two runs differ: times, run ids, and whose failure came first."""


Before = frozenset[tuple[tuple[str, str], int]]
"""How often a run has done what: event types with paths, and their counts."""


class Stuck(AssertionError):
    """A run that does not come to its end."""


@dataclass(frozen=True)
class Row:
    """One step's record, without what timing decides."""

    status: str
    settled: bool
    attempt: int
    route: str | None
    by: str | None
    reason: str
    failure: str
    output: str


@dataclass(frozen=True)
class Result:
    """A run at its end: its state, its steps by path, the scopes (path prefixes) in which timing decided.

    Child runs are in it as well, each with a row of its own, whose path ends with ``>``. ``resumed`` says of those that
    had been cut short and went on, by prefix, what they had done before.
    """

    state: str
    rows: Mapping[str, Row]
    racy: tuple[str, ...] = ()
    resumed: Mapping[str, Before] = field(default_factory=dict[str, Before])


def result_of(members: Iterable[Member], blobs: Blobs) -> Result:
    """Return what the records of a family of runs say; the first one is the run itself."""
    rows: dict[str, Row] = {}
    racy: list[str] = []
    states: list[str] = []
    resumed: dict[str, Before] = {}
    for member in members:
        states.append(member.head.state)
        rows |= {member.here(step.path): _row(step, blobs) for step in member.steps()}
        racy += [member.here(prefix) for prefix in _racy(member.manifest, member.records)]
        if member.prefix and not member.records.run.part:
            rows[member.prefix] = _state(member.head.state)
        if member.head.epoch > 1:
            resumed[member.prefix] = _before(member)
    return Result(states[0], rows, (*racy, *resumed), resumed)


def _before(member: Member) -> Before:
    """Return how often a run had done what before its last epoch."""
    events = [event for event in member.events() if event.seq < member.head.began]
    return frozenset(Counter((event.type, event.path or "") for event in events).items())


def _state(state: str) -> Row:
    return Row(state, True, 1, None, None, "", "", "")  # noqa: FBT003 - settled


def _row(step: Step, blobs: Blobs) -> Row:
    # Whose failure a container takes over depends on which came first.
    inner = step.type in CONTAINERS
    status = "failed" if inner and step.status == "timed_out" else step.status
    failure = "" if inner or step.failure is None else f"{step.failure.error_class}: {step.failure.message}"
    # Who sees that a wait is over, the engine or the handler, is no meaning either.
    failure = "timeout" if step.type == "wait" and failure.startswith("timeout") else failure
    # How many edges were active when a join had become impossible, and how many an engine names, is no meaning.
    reason = re.sub(r"^\d+ of (\d+) needed", r"some of \1 needed", step.reason or "")
    output = json.dumps(_plain(values.load(step.output, blobs)), sort_keys=True)
    return Row(status, step.settled, step.attempt, step.route, step.by, reason, failure, output)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if key not in VOLATILE}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _racy(manifest: Manifest, seen: Snapshot) -> Iterator[str]:
    part = seen.run.part
    if seen.head.ended not in {None, "completed"} and (part or not _one_by_one(manifest.steps, manifest.order)):
        yield f"{whole_of(part)}[" if part else ""
    for step in seen.steps():
        scope = f"{step.path}/"
        if step.type == "item" and step.failure:
            container = graph_at(manifest, scope_of(step.path))[container_of(scope).rpartition("/")[2]]
            if container.spec.get("on_failure") == "fail_fast" and container.spec["max_concurrency"] != 1:
                yield f"{container_of(scope)}["
            if not sequential(graph_at(manifest, scope), order_at(manifest, scope)):
                yield scope


def sequential(steps: Mapping[str, StepPlan], order: tuple[str, ...]) -> bool:
    """Tell whether every step but the first needs the one before it."""
    return all(steps[b].join == "all" and a in {edge.source for edge in steps[b].needs} for a, b in pairwise(order))


def _one_by_one(steps: Mapping[str, StepPlan], order: tuple[str, ...]) -> bool:
    """Tell whether never two steps are under way at once, in the bodies of maps and loops neither."""
    bodies = [(steps[name], steps[name].body) for name in order]
    inside = all(_one_by_one(body.steps, body.order) for _, body in bodies if body)
    alone = all(plan.spec.get("max_concurrency", 1) == 1 and not plan.turns for plan, _ in bodies)
    return sequential(steps, order) and inside and alone


def differences(one: Result, other: Result) -> list[str]:
    """Return what two engines do not agree about, in words."""
    if _cut_elsewhere(one, other):
        return []
    found = [] if one.state == other.state else [f"the run: {one.state} / {other.state}"]
    racy = {*one.racy, *other.racy}
    for path in sorted({*one.rows, *other.rows}):
        a, b = one.rows.get(path), other.rows.get(path)
        if any(path.startswith(prefix) for prefix in racy):
            a, b = _weak(a), _weak(b)
            if a is None or b is None:
                continue
        if a != b:
            found.append(f"{path}: {_words(a, b)}")
    return found


def _cut_elsewhere(one: Result, other: Result) -> bool:
    """Tell whether a run that was resumed had come to something else by then on the other engine."""
    return any(one.resumed[prefix] != other.resumed[prefix] for prefix in one.resumed.keys() & other.resumed.keys())


def _weak(row: Row | None) -> Row | None:
    """Return only how a step ended, if it has ended by itself."""
    if row is None or not row.settled or row.reason or row.status == "cancelled":
        return None
    return replace(row, status="completed" if row.status == "compensated" else row.status, attempt=0, output="")


def _words(a: Row | None, b: Row | None) -> str:
    if a is None or b is None:
        return f"{a.status if a else 'no record'} / {b.status if b else 'no record'}"
    names = [name for name in a.__dataclass_fields__ if getattr(a, name) != getattr(b, name)]
    return "; ".join(f"{name} {getattr(a, name)!r} / {getattr(b, name)!r}" for name in names)


def settled_for_sure(result: Result) -> frozenset[str]:
    """Return the steps that have settled and would have, whatever the timing."""
    paths = {path for path, row in result.rows.items() if row.settled}
    return frozenset(path for path in paths if not any(path.startswith(prefix) for prefix in result.racy))


def scopes_in(seen: Snapshot) -> set[str]:
    """Return all scopes in which something was recorded."""
    bodies = {scope_of(step.path) for step in seen.steps()}
    return {outer for scope in bodies if not scope or scope.endswith("]/") for outer in enclosing(scope)}
