"""The people of a run, and what else comes from outside: decisions, words on paused steps, events, time that is over.

What they do is fixed by the seed, and when they do it by nothing: engines call ``act`` whenever they like.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from behaviour import comes, dice, order_of, result, undecided, word_of
from family import family
from graphs import plans_of
from machine import FINANCE

from shared.errors import Conflict, NotFound
from shared.runtime.gates import Word, decide_gate
from shared.runtime.host import plan_of
from shared.runtime.parking import Order, resume_step
from shared.runtime.probing import next_probe
from shared.runtime.scopes import COMPENSATE, FALLBACK
from shared.runtime.task import run_task
from shared.runtime.waits import Arrival, deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from family import Member

    from shared.ledger.records import Gate, Step
    from shared.runtime.host import Host
    from shared.runtime.journal import Journal

    Say = Callable[[], object]


def act(
    host: Host, journal: Journal, seed: int, unwind: str, held: Container[str] = (), *, timers: bool = False
) -> int:
    """Say everything that can be said now in a run and those below it, except about ``held`` steps.

    Returns how many words that were. An engine with ``timers`` of its own sees itself when a time is over.
    """
    outside = [_Outside(host, member, seed, unwind, timers) for member in family(host, journal)]
    words = [word for each in outside for word in each.words(held)]
    dice(seed, journal.read([]).head.seq).shuffle(words)
    said = 0
    for say in words:
        # Somebody else's word, or the end of the run, may have come between.
        with suppress(Conflict, NotFound):
            say()
            said += 1
    return said


@dataclass(frozen=True)
class _Outside:
    """Everybody who has something to say to one run of a family."""

    host: Host
    run: Member
    seed: int
    unwind: str
    timers: bool

    def words(self, held: Container[str]) -> Iterator[Say]:
        head = self.run.head
        if head.ended:
            return
        counts = Counter((event.type, event.path) for event in self.run.journal.events())
        if head.paused:
            yield from self._orders(counts, held)
        if not head.unwinding:
            yield from self._events(counts)
            yield from self._decisions(counts, held)

    def _decisions(self, counts: Counter[tuple[str, str]], held: Container[str]) -> Iterator[Say]:
        for gate in self.run.records.gates():
            if gate.status == "open" and gate.path not in held:
                nth = counts["gate_opened", gate.path]
                late = undecided(self.seed, gate.path, plan_of(self.run.manifest, gate.path).timeout, nth)
                yield (lambda gate=gate: self._expire(gate.token)) if late else self._decision(gate, nth)

    def _decision(self, gate: Gate, nth: int) -> Say:
        word = Word(word_of(self.seed, gate.path, nth), FINANCE[0].email)
        return lambda: decide_gate(self.host, self.run.journal, gate.path, word)

    def _expire(self, token: str) -> None:
        """Let a token's time be over, as the engine would report it."""
        if self.timers or not self.host.engine.fail(token, "States.Timeout", ""):
            raise Conflict("Nobody waits for it any more.")

    # --- paused steps ----------------------------------------------------------------------------------------------

    def _is_asked_about(self, step: Step) -> bool:
        """Tell whether the far side will be asked about the step's call before a person is."""
        if step.status != "unknown":
            return False
        found = next_probe(self.run.manifest, self.run.records, self.host.clock.now())
        asks = found is not None and found[0].path.startswith(step.path)
        return asks if self.run.head.unwinding else (step.action or {}).get("action") == "retry"

    def _orders(self, counts: Counter[tuple[str, str]], held: Container[str]) -> Iterator[Say]:
        for step in self.run.records.steps():
            waits = step.status in {"paused", "unknown"} and not step.settled and step.path not in held
            if waits and not self._is_asked_about(step):
                nth = counts["step_paused", step.path] + counts["step_unknown", step.path]
                yield lambda step=step, nth=nth: self._order(step, nth)

    def _order(self, step: Step, nth: int) -> None:
        ending = bool(self.run.head.unwinding)
        again = step.status == "paused" or (step.call is not None and step.call.risk == "reversible")
        retryable = step.type not in {"map", "loop"} and again and not ending
        action = order_of(self.seed, step.path, nth, retryable=retryable)
        try:
            self._say(step, "skip" if ending and action == "fail" else action)
        except Conflict:
            # An item that has failed meanwhile calls nothing any more; one word is as good as another then.
            self._say(step, "accept")

    def _say(self, step: Step, action: str) -> None:
        given = result(self.seed, step.path)
        plan = plan_of(self.run.manifest, step.path.removesuffix(COMPENSATE).removesuffix(FALLBACK))
        if step.type == "router":
            targets = {plan.spec["default"], *(route["to"] for route in plan.spec["routes"])}
            given["route"] = dice(self.seed, step.path).choice(sorted(targets))
        task = run_task(self.run.records.run, self.run.head.epoch, step.path)
        order = Order(action, "ops", result=given if action == "accept" else None)
        resume_step(self.host, task, order, self.unwind)

    # --- events ----------------------------------------------------------------------------------------------------

    def _events(self, counts: Counter[tuple[str, str]]) -> Iterator[Say]:
        known = {kept.id for kept in self.run.records.kept()}
        for plan in plans_of(self.run.manifest.steps.values()):
            early = f"early-{plan.id}"
            if plan.spec.get("event") and comes(self.seed, plan.id) == "early" and early not in known:
                yield lambda name=f"e{plan.id}", early=early: self._deliver(name, early, 7, times=2)
        for step in self.run.records.steps():
            waits = step.type == "wait" and step.status == "waiting"
            if waits and (event := plan_of(self.run.manifest, step.path).spec.get("event")):
                yield from self._for(step, event, counts["wait_started", step.path])

    def _for(self, step: Step, event: Mapping[str, Any], nth: int) -> Iterator[Say]:
        when = comes(self.seed, step.step)
        if when == "never" and nth == 1:
            park = self.run.records.park(step.path)
            if park and park.token:
                yield lambda: self._expire(park.token)
            return
        mine = [kept for kept in self.run.records.kept() if kept.id.startswith(f"{step.path}-")]
        if when == "others" and not mine:
            yield from self._others(step.path, event)
        elif all(kept.used_by for kept in mine if kept.id != f"{step.path}-other"):
            yield lambda: self._deliver(event["name"], f"{step.path}-{len(mine)}", 7, times=1 + (when == "twice"))

    def _others(self, path: str, event: Mapping[str, Any]) -> Iterator[Say]:
        """Yield an event that is for nobody: it has another name, or is none that the wait would take."""
        name, n = (event["name"], 1) if event["match"] else (f"{event['name']}x", 7)

        def say() -> None:
            assert not self._deliver(name, f"{path}-other", n), f"{path} took an event that is for nobody"

        yield say

    def _deliver(self, name: str, event: str, n: int, *, times: int = 1) -> bool:
        """Deliver an event, also more than once. Returns whether a wait took it."""
        task = run_task(self.run.records.run, self.run.head.epoch)
        taken = [deliver(self.host, task, Arrival(event, name, {"n": n})) for _ in range(times)]
        return any(taken)
