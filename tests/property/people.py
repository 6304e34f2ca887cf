"""The people of a run: they decide open gates and resume paused steps, by rules that the seed fixes."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from behaviour import dice, order_of, result, word_of
from machine import FINANCE

from shared.errors import Conflict, NotFound
from shared.runtime.gates import Word, decide_gate
from shared.runtime.host import plan_of
from shared.runtime.parking import Order, resume_step
from shared.runtime.scopes import scope_of
from shared.runtime.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from shared.ledger.records import Step
    from shared.manifest import StepPlan
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal, Snapshot


def act(host: Host, journal: Journal, seed: int, unwind: str, held: Container[str] = ()) -> int:
    """Say everything that can be said now, except about ``held`` steps; return how many words that were."""
    seen = journal.read_all()
    if seen.head.ended or seen.head.unwinding or not (seen.head.waiting or seen.head.paused):
        return 0
    counts = Counter((event.type, event.path) for event in journal.events())
    words: list[Callable[[], object]] = []
    for gate in seen.gates():
        if gate.status == "open" and gate.path not in held:
            word = Word(word_of(seed, gate.path, counts["gate_opened", gate.path]), FINANCE[0].email)
            words.append(lambda path=gate.path, word=word: decide_gate(host, journal, path, word))
    for step in seen.steps():
        if step.status in {"paused", "unknown"} and not step.settled and step.path not in held:
            job = _task(seen, step)
            plan = plan_of(host.manifest(job), step.path)
            order = _order(step, plan, seed, counts["step_paused", step.path])
            words.append(lambda job=job, order=order: resume_step(host, job, order, unwind))
    dice(seed, seen.head.seq).shuffle(words)
    said = 0
    for say in words:
        # Somebody else's word, or the end of the run, may have come between.
        with suppress(Conflict, NotFound):
            say()
            said += 1
    return said


def _order(step: Step, plan: StepPlan, seed: int, nth: int) -> Order:
    retryable = step.type not in {"map", "loop"} and step.status == "paused"
    action = order_of(seed, step.path, nth, retryable=retryable)
    given = result(seed, step.path)
    if step.type == "router":
        targets = {plan.spec["default"], *(route["to"] for route in plan.spec["routes"])}
        given["route"] = dice(seed, step.path).choice(sorted(targets))
    return Order(action, "ops", result=given if action == "accept" else None)


def _task(seen: Snapshot, step: Step) -> Task:
    run, scope = seen.run, scope_of(step.path)
    name = step.path.removeprefix(scope)
    epoch = seen.head.epoch
    return Task("run", name, scope, run.id, run.tenant, run.workflow, run.version, epoch, "", "person", 0)
