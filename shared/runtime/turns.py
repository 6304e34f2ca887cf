"""Agents with tools: a turn asks the model, the calls that it proposes are made, and so on until it replies.

This is the agent's own part: it says what comes next, from the records alone, so a redelivery gives the same answer.
Turns (``research/turn[3]``) and calls (``research/turn[3]/call[0]``) are step instances like all others, with their own
reservation, ledger entry, retries and cascade; they run in the scope that the agent stands in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.errors import InvalidOutput, StepFailure, failure_named
from shared.ledger.records import revive
from shared.runtime import protocol
from shared.runtime.conversation import reply_of
from shared.runtime.host import plan_of
from shared.runtime.joins import verdict
from shared.runtime.journal import Change, Note
from shared.runtime.outputs import check_attested
from shared.runtime.protocol import Outcome
from shared.runtime.scopes import has_turns, turn_number, turn_path
from shared.runtime.settle import settle
from shared.runtime.steps import NotOpened, check_open, record_failure, skipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.ledger.records import Step
    from shared.manifest import StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.task import Task

Next = dict[str, Any]
"""What an agent does next: ``next`` is ``turn`` (with its ``step``), ``calls`` (with each one's step and tool) or
``done``."""


def next_turn(host: Host, task: Task) -> Next:
    """Say what the agent does next; called before its first turn, after each turn and after the calls of each.

    Raises StepFailure after recording it: a turn failed, or the last one brought no reply.
    """
    plan, journal = plan_of(host.manifest(task), task.path), host.journal(task)
    seen = _read(host, journal, task, plan)
    known = seen.step(task.path)
    found = known if known and known.settled else _decided(host, task, plan, journal, seen)
    if isinstance(found, dict):
        return found
    settle(host, task, found)
    return _next("done")


def _next(what: str, step: str = "", calls: Sequence[Mapping[str, str]] = ()) -> Next:
    return {"next": what, "step": step, "calls": list(calls)}


def _read(host: Host, journal: Journal, task: Task, plan: StepPlan) -> Snapshot:
    seen = journal.read(host.keys(task, plan))
    found = map(revive, host.store.query(journal.pk, f"STEP#{task.path}/turn["))
    return seen.with_({one.sk: one for one in found})


def _decided(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot) -> Next | Step:
    known = seen.step(task.path)
    stop = protocol.stopped(seen, known or protocol.new_step(plan, task.path, task.epoch), task)
    if stop:
        raise NotOpened(f"Agent {task.path} opens nothing: {stop.why}.")
    try:
        if known is None or known.status == "ready" or known.arguments is None:
            known = _enter(host, task, plan, journal, seen)
        return known if known.settled else _after(host, task, plan, known, seen)
    except StepFailure as failure:
        record_failure(host, task, plan, task.path, failure)
        raise


def _enter(host: Host, task: Task, plan: StepPlan, journal: Journal, seen: Snapshot) -> Step:
    """Freeze the instruction: every turn begins with it, whatever is said later, and in a later epoch too."""
    scope = host.names(task, seen)
    entry = verdict(plan, task.scope, seen, scope)
    if entry.kind == "skip":
        return skipped(host, plan, task.path, entry.reason, journal, seen)
    fresh = seen.step(task.path) or protocol.new_step(plan, task.path, task.epoch)
    begun = fresh.arguments if has_turns(fresh, seen) else None
    stored, now = begun or _instruction(host, task, plan, seen), host.clock.now()
    frozen = replace(fresh, status="running", failure=None, attempt=1, started=now, arguments=stored)

    def decide(again: Snapshot) -> Change[Step]:
        known = again.step(task.path)
        if known and known.status != "ready" and (known.settled or known.arguments):
            return Change(known)
        check_open(again)
        return Change(frozen, (frozen,), (Note("agent_entered", task.path, 1, {"tools": list(_tools(plan))}),))

    return journal.transact(seen, decide)[0]


def _instruction(host: Host, task: Task, plan: StepPlan, seen: Snapshot) -> values.Value:
    scope = host.names(task, seen, plan)
    instruction = {name: str(scope.render(plan.spec.get(name) or "")) for name in ("system", "prompt")}
    return values.store(instruction, host.blobs, task.tenant)


def _tools(plan: StepPlan) -> Mapping[str, StepPlan]:
    return plan.turns.tools if plan.turns else {}


def _after(host: Host, task: Task, plan: StepPlan, agent: Step, seen: Snapshot) -> Next | Step:
    """Return what follows the turn that was begun last, or the calls that a turn before it still waits for.

    Those are the ones that have been undone: in a later epoch they are made again, before their model is asked again.
    """
    turns = {turn_number(one.path): one for one in _turns(task, seen)}
    calls = next((found for number in sorted(turns) if (found := _waiting(turns[number], seen))), ())
    if calls:
        return _next("calls", calls=calls)
    number = max(turns, default=0)
    turn = turns.get(number)
    if turn is None or number < agent.iteration:
        return _following(task, plan, number)
    if turn.settled and turn.status != "completed" and agent.status == "retrying":
        _go_on(host, task, agent, number + 1)
        return _following(task, plan, number)
    if not turn.settled:
        return _next("turn", turn_path(task.step, number))
    return _after_turn(host, task, plan, agent, turn)


def _after_turn(host: Host, task: Task, plan: StepPlan, agent: Step, turn: Step) -> Next | Step:
    """Return what follows a turn that has settled, and whose calls have."""
    if turn.status != "completed" or turn.by == "person":
        return _without_reply(host, task, agent, turn)
    reply = reply_of(turn, host.blobs) or {}
    if "reply" in reply:
        return _finish(host, task, agent, Outcome(output=values.store(reply["reply"], host.blobs, task.tenant)))
    return _following(task, plan, turn_number(turn.path))


def _turns(task: Task, seen: Snapshot) -> list[Step]:
    return [one for one in seen.steps() if one.type == "turn" and one.path.startswith(f"{task.path}/")]


def _waiting(turn: Step, seen: Snapshot) -> list[dict[str, str]]:
    """Return the calls of a completed turn that have not settled; what undoes one is no call that was proposed."""
    if turn.status != "completed":
        return []
    waiting = [one for one in seen.steps() if one.path.startswith(f"{turn.path}/") and one.tool and not one.settled]
    return [{"step": one.step, "tool": one.tool or ""} for one in sorted(waiting, key=lambda one: one.path)]


def _following(task: Task, plan: StepPlan, number: int) -> Next:
    most = plan.turns.most if plan.turns else 0
    if number >= most:
        told = f"{task.path} has had all its {most} turns and gave no reply. Raise `max_turns`, or ask for less."
        raise InvalidOutput(told)
    return _next("turn", turn_path(task.step, number + 1))


def _go_on(host: Host, task: Task, agent: Step, number: int) -> None:
    """Note that the agent goes on with another turn after one that failed: a person lets it."""
    onward, journal = replace(agent, status="running", iteration=number), host.journal(task)
    seen = journal.read([f"STEP#{task.path}"])
    journal.transact(seen, lambda again: Change(None, (onward,) if again.step(task.path) == agent else ()))


def _without_reply(host: Host, task: Task, agent: Step, turn: Step) -> Step:
    """End with a turn that has no reply of the model: a person gave one, or skipped it, or it failed."""
    if turn.status == "completed":
        check_attested(turn)
        return _finish(host, task, agent, Outcome(output=turn.output, by="person"))
    if turn.status == "skipped":
        return _skip(host, task, agent, turn)
    failure = turn.failure
    told = f"Turn {turn_number(turn.path)} failed: {failure.message if failure else turn.status}"
    raise failure_named(failure.error_class if failure else "permanent", told)


def _finish(host: Host, task: Task, agent: Step, outcome: Outcome) -> Step:
    now, journal = host.clock.now(), host.journal(task)
    seen = journal.read([f"STEP#{task.path}"])
    return journal.transact(seen, lambda again: protocol.settle_entered(agent, outcome, now, again))[0]


def _skip(host: Host, task: Task, agent: Step, turn: Step) -> Step:
    """Skip the agent: a person has skipped its turn."""
    reason, now, journal = f"{turn.path} was skipped", host.clock.now(), host.journal(task)

    def decide(again: Snapshot) -> Change[Step]:
        known = again.step(task.path) or agent
        if known.settled:
            return Change(known)
        check_open(again)
        over = replace(known, status="skipped", settled=True, ended=now, reason=reason)
        over = replace(over, settled_seq=again.head.seq + 1)
        return Change(over, (over,), (Note("step_skipped", task.path, None, {"reason": reason}),))

    return journal.transact(journal.read([f"STEP#{task.path}"]), decide)[0]
