"""Probes: what the far side says about a call that may have happened, by a step's declared ``reconcile``.

A probe is asked only after the process that made the call is surely dead, or has said itself how the call ended.
*Found* completes the step with what was found. *Not found* proves that the call did not happen, once
``conclusive_after`` has passed since then; before, it proves nothing, and what the far side said is kept for a person.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.errors import PermanentFailure, StepFailure, UnknownOutcome
from shared.ledger.records import Amount, Failure
from shared.redaction import redacted, redacted_text
from shared.runtime import protocol, secrets
from shared.runtime.host import plan_of
from shared.runtime.journal import Change, Note
from shared.runtime.notes import completed
from shared.runtime.outputs import checked, route_in
from shared.runtime.protocol import Outcome
from shared.runtime.scopes import FALLBACK
from shared.tools.registry import Call as ToolContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Head, Step
    from shared.manifest import Manifest, StepPlan
    from shared.runtime.host import StepHost
    from shared.runtime.journal import Journal, Snapshot
    from shared.runtime.task import Task

MOST = 4
"""How often a far side is asked that does not answer, or has not found the call yet, before a person is."""
FIRST_PAUSE = 2_000
"""Milliseconds between the first two probes; it doubles."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the probe returned. ``conclusive`` = not found now means that the call did not happen."""

    value: Any
    found: bool
    conclusive: bool


def ask(host: StepHost, plan: StepPlan, arguments: Mapping[str, Any], call: ToolContext, since: int) -> Answer | None:
    """Ask the far side about a call; None = no probe is declared. ``since`` (ms) = when it was surely over.

    Raises StepFailure when the far side does not answer.
    """
    probe = plan.spec.get("reconcile")
    if not probe:
        return None
    from shared.definition.expressions import evaluate, render  # noqa: PLC0415 - only after an interruption

    names = {"call": {"idempotency_key": call.idempotency_key, "arguments": dict(arguments)}}
    given = secrets.rendered(probe["with"], lambda template: render(template, names), host.secrets, call.tenant)
    known = secrets.resolved(probe["with"], given, host.secrets, call.tenant)
    value = known.call(lambda filled: host.tools.invoke(probe["tool"], filled, call))
    found = evaluate(probe["found"], {**names, "result": value}) is True
    return Answer(value, found, host.clock.now() >= since + conclusive_after(plan))


def conclusive_after(plan: StepPlan) -> int:
    """Return the milliseconds after which a probe that finds nothing is believed."""
    probe: dict[str, Any] = plan.spec.get("reconcile") or {}
    return int((probe.get("conclusive_after") or 0) * 1000)


def pause_before(plan: StepPlan, step: Step, now: int) -> int | None:
    """Return the milliseconds until the far side is asked again; None = it is not: a person has to say.

    A few times in a row, since it may be slow to know of the call, or out of order itself.
    """
    if not plan.spec.get("reconcile") or step.call is None or step.probes >= MOST:
        return None
    if not step.probes:
        return 0
    return max(0, (step.probed or 0) + FIRST_PAUSE * 2 ** (step.probes - 1) - now)


def patient_pause(plan: StepPlan, step: Step, now: int) -> int | None:
    """Return ``pause_before``, with one more probe when "not found" has become conclusive."""
    soon, proof = pause_before(plan, step, now), (step.ended or 0) + conclusive_after(plan)
    if soon is not None or not plan.spec.get("reconcile") or step.call is None or (step.probed or 0) >= proof:
        return soon
    return max(0, proof - now)


def next_probe(manifest: Manifest, seen: Snapshot, now: int) -> tuple[Step, int] | None:
    """Return the call in doubt that is asked about next, and in how many milliseconds; None = only people can say."""
    found = [
        (step, pause)
        for step in seen.steps()
        if step.status == "unknown" and not step.settled
        for step in [doubtful(seen, step)]
        if (pause := patient_pause(plan_of(manifest, step.path, _template(manifest, step)), step, now)) is not None
    ]
    return min(found, key=lambda one: one[1], default=None)


def doubtful(seen: Snapshot, step: Step) -> Step:
    """Return whose call is in doubt: that of the step itself, or of its fallback."""
    stand_in = seen.step(f"{step.path}{FALLBACK}")
    return stand_in if stand_in and protocol.in_doubt(stand_in) else step


def _template(manifest: Manifest, step: Step) -> str:
    if step.tool:
        return step.tool
    own = step.path.removesuffix(FALLBACK)
    return plan_of(manifest, own).fallback or "" if own != step.path else ""


def probe_step(host: StepHost, task: Task) -> dict[str, Any]:
    """Ask about the call in doubt of the step at hand, while the run ends."""
    manifest, journal = host.manifest(task), host.journal(task)
    seen = journal.read([f"STEP#{task.path}"])
    step = seen.step(task.path)
    if step and protocol.in_doubt(step) and not step.open:
        probe(host, task, plan_of(manifest, step.path, _template(manifest, step)), step, journal)
    return {"status": "probed", "route": ""}


def probe(host: StepHost, task: Task, plan: StepPlan, step: Step, journal: Journal) -> Step | None:
    """Ask about the step's call and record what that says. Returns the step as it then is."""
    arguments: dict[str, Any] = values.load(step.arguments, host.blobs) or {}
    call = ToolContext(step.call.key if step.call else "", task.tenant, task.run, step.path, step.attempt, plan.timeout)
    try:
        answer = ask(host, plan, arguments, call, step.ended or 0)
        told = _told(host, task, plan, answer)
    except StepFailure as failure:
        told = _Told(None, None, f"The far side was asked and gave no answer: {redacted_text(str(failure))}")
    now = host.clock.now()
    keys = [f"STEP#{one}" for one in (step.path, step.path.removesuffix(FALLBACK))]
    return journal.transact(journal.read(keys), lambda seen: decide_probe(seen, step, told, now))[0]


@dataclass(frozen=True, slots=True)
class _Told:
    """What a probe says: the outcome that was found, that it did not happen (``certain``), or nothing."""

    outcome: Outcome | None
    certain: bool | None
    text: str


def _told(host: StepHost, task: Task, plan: StepPlan, answer: Answer | None) -> _Told:
    if answer is None:
        raise PermanentFailure(f"Step {plan.id} declares no `reconcile`.")
    if answer.found:
        output = checked(host, task, plan, answer.value)
        found = Outcome(used=Amount(), output=output, route=route_in(plan, answer.value), by="reconcile")
        return _Told(found, None, "The call was found.")
    shown = values.canonical(redacted(answer.value))[:300].decode(errors="ignore")
    text = f"{plan.spec['reconcile']['tool']} did not find the call: {shown}"
    return _Told(None, answer.conclusive, text)


def decide_probe(seen: Snapshot, asked: Step, told: _Told, now: int) -> Change[Step | None]:
    """Record a probe: found completes the step, a conclusive "not found" ends its doubt, anything else is kept."""
    step = seen.step(asked.path)
    if step is None or not protocol.in_doubt(step) or step.open or step.fence != asked.fence:
        return Change(step)
    probed = replace(step, probes=step.probes + 1, probed=now)
    data = {"found": told.outcome is not None, "conclusive": bool(told.certain), "answer": told.text[:500]}
    note = Note("call_probed", step.path, step.attempt, data)
    if told.outcome:
        return _found(seen, probed, told.outcome, now, note)
    failure = Failure("unknown_outcome", told.text[:2000], uncertain=True)
    if not told.certain:
        return Change(probed, (replace(probed, failure=failure),), (note,))
    failure = Failure("transient", f"It did not happen. {told.text}"[:2000])
    failed = replace(probed, status="failed", failure=failure, reason=None)
    others = _main(seen, step)
    return Change(failed, (_unparked(seen, failed, *others), failed, *others), (note,))


def _found(seen: Snapshot, step: Step, outcome: Outcome, now: int, note: Note) -> Change[Step | None]:
    closed = replace(protocol.finished(step, outcome, now, seen.head.seq + 2), reason=None)
    others = protocol.beside(closed, seen)
    return Change(closed, (_unparked(seen, closed, *others), closed, *others), (note, completed(closed)))


def _main(seen: Snapshot, step: Step) -> tuple[Step, ...]:
    """Return the step for which a fallback stood whose call did not happen: it is in doubt no more either."""
    main = seen.step(step.path.removesuffix(FALLBACK))
    if main is None or main.path == step.path or main.status != "unknown":
        return ()
    return (replace(main, status="failed", reason=None),)


def _unparked(seen: Snapshot, *steps: Step) -> Head:
    """Return the head when these steps wait for a person's word no more: a call's own, and what it stood in for."""
    before = (seen.step(step.path) for step in steps)
    freed = sum(step is not None and step.status in protocol.PARKED for step in before)
    return replace(seen.head, paused=seen.head.paused - freed)


def check_conclusive(answer: Answer, plan: StepPlan) -> None:
    """Raise UnknownOutcome for a "not found" that proves nothing yet."""
    if not (answer.found or answer.conclusive):
        raise UnknownOutcome(
            f"{plan.spec['reconcile']['tool']} did not find the interrupted call, which proves nothing so early."
        )
