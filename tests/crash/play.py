"""Plays a run to its end: machines, streams, events of ended executions, and people who do what is asked of them.

Callers of the API never repeat a request here: what was committed must take its course all the same. Who sees to that
are the ``healers``: the table's stream with the finaliser, or, where neither ever hears anything, the sweeper alone.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from faults import Stalling, Tap
from invariants import check
from machine import LAMBDA_SECONDS, UNWIND, Execution, Killed, World
from stream import asks_again, wanted

from shared.compiler import unwind_machine
from shared.errors import Conflict
from shared.events.rules import announcement
from shared.manifest import YEAR
from shared.ports import Execution as Ended
from shared.runtime.children import living
from shared.runtime.ending import request
from shared.runtime.finalise import finalise
from shared.runtime.gates import decide_gate
from shared.runtime.host import plan_of
from shared.runtime.mailing import ask_again
from shared.runtime.mending import Finding
from shared.runtime.outbox import send
from shared.runtime.parking import Order, Raise, resume_step
from shared.runtime.probing import doubtful
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.scopes import COMPENSATE, is_part
from shared.runtime.sweep import Bounds, SweepHost, sweep
from shared.runtime.task import Task, placed
from shared.runtime.tiers import CLAIM, due, untold
from shared.runtime.tiers import PATIENCE as LETTERS_AFTER
from shared.runtime.waits import deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from shared.compiler import Unit
    from shared.ledger.nested import Failure
    from shared.ledger.records import Gate, Run, Step
    from shared.runtime.waits import Arrival

PATIENCE = 3
"""How often people let a step that is beyond a limit try again."""
PAUSE = 600
"""Seconds after which people look at a run again."""


@dataclass
class Play:
    """One run and everybody around it. ``act`` is what a person does once, at the first open gate.

    ``healers`` name the methods that do what dead processes have left; ``sends`` is the event that a wait waits for,
    sent ``early`` or when it is awaited; ``beside`` are the workflows of child runs.
    """

    world: World
    act: Callable[[Play], None]
    tap: Tap = field(default_factory=Tap)
    found: Callable[[Step], Any] = lambda _: None
    verdict: str = "retry"
    doubt: str = "skip"
    resumes: bool = False
    sends: Arrival | None = None
    early: bool = False
    beside: tuple[Unit, ...] = ()
    executions: dict[tuple[str, str], Execution] = field(default_factory=dict)
    acted: bool = False
    healers: tuple[str, ...] = ("stream", "finalise")
    _finalised: set[tuple[str, str]] = field(default_factory=set)
    _streamed: dict[Any, int] = field(default_factory=dict)
    _attending: bool = False
    _tried: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    _walking: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tap.cancel = self.cancel
        self.tap.onto(self.world)
        self.stalling = Stalling(self.world, self.tap) if self.tap.stalls else None
        sleep = self.world.before_retry = self.world.clock.sleep  # who is delivered once more waits for nobody

        def sleep_and_look(seconds: float) -> None:
            sleep(seconds)
            with self.tap.product(at_work=False):
                if seconds >= PAUSE:
                    self.attend()
                self.launch()  # the walker sleeps without giving way to other executions
                self.answer()

        self.world.clock.sleep = sleep_and_look

    def start(self, key: str | None = None) -> None:
        published = self.world.steps.definitions.published(self.world.unit.manifest.workflow)
        asked = StartRequest(self.world.tenant, "alex@example.test", "api", {"document": "Invoice"}, key)
        self.safely(lambda: start_run(self.world.steps, published, asked))
        self._find()

    def safely(self, call: Callable[[], Any]) -> bool:
        """Make a request whose caller never repeats it."""
        try:
            with self.tap.product():
                call()
        except (Killed, Exception):  # noqa: BLE001 - whatever it is, the caller only hears that it failed
            return False
        return True

    def to_the_end(self) -> World:
        self.start()
        if self.world.run:
            if self.early:
                self.heal()  # the stream begins with the run's first record
                self.send()
            for _ in range(40):
                self.settle()
                if self.over() and not (self.stalling and self.stalling.zombie):
                    break
                self.move()
            self.settle()
            for run in self.runs():
                check(self.seen(run))
                assert self.seen(run).head.ended, f"stuck: {self.seen(run).head}"
                self._within_budget(self.seen(run).records.run)
        return self.world

    def over(self) -> bool:
        """Tell whether the run has ended for good: people resume what has failed, also when a fault failed it again."""
        while self.resumes and self.world.head.ended == "failed" and self.world.head.epoch <= 2:
            # A person whose request has failed sees that the run has not gone on, and asks again.
            self.safely(lambda: resume_run(self.world.steps, self.world.journal, Resume("ops")))
            self.settle()
        return self.world.head.ended is not None

    def runs(self) -> list[str]:
        """Return the run and its children."""
        return [item["id"] for key, item in self.world.store.items.items() if key.sk == "RUN"]

    def seen(self, run: str) -> World:
        """Return the world as one of its runs sees it."""
        return replace(self.world, run=run)

    def move(self) -> None:
        """Do what only people and time can do."""
        open_gates = [gate for gate in self.world.records.gates() if gate.status == "open"]
        if self.stalling and self.stalling.zombie:
            self.world.clock.sleep(PAUSE)
        elif "sweep" in self.healers and (self.sweep_later() or self.world.head.ended):
            pass
        elif self.parked():
            self.attend()
        elif self.awaited():
            self.send()
        elif open_gates and (not self.acted or open_gates[0].dispatch > 1):
            self.acted = True
            self.act(self)
        elif open_gates:
            self.expire()
        elif limited := self.limited():
            self.time_out(limited)
        else:
            head, waiting = self.world.head, {name: each.waiting for name, each in self.executions.items()}
            raise AssertionError(f"nothing will ever move this run: {head}, waiting {waiting}")

    def awaited(self) -> bool:
        """Tell whether a step of the run waits for an event."""
        records = self.world.records
        steps = (records.step(park.path) for park in records.parks() if park.kind == "event")
        return any(step and not step.settled for step in steps)

    def send(self) -> None:
        """Send the event; who hears that this failed asks whether it has come, and sends it once more if not."""
        sends, task = self.sends, self.task(self.world.run, "")
        assert sends
        for _ in range(2):
            if not self.world.records.kept():
                self.safely(lambda: deliver(self.world.steps, task, sends))

    def _within_budget(self, run: Run) -> None:
        """What a map or a loop was given together is never more than its budget: nobody raises it here."""
        if not run.part or is_part(run.part):
            return
        most = plan_of(self.world.unit.manifest, run.part).budget.steps
        assert most is None or (run.limit_steps or 0) <= most

    def settle(self) -> None:
        for _ in range(100):
            if not (self.heal() | self.launch() | self.answer()):
                return
        raise AssertionError("the run never comes to rest")

    def heal(self) -> bool:
        """Let the healers do their work; tell whether there was any."""
        return sum(getattr(self, healer)() for healer in self.healers) > 0  # all of them, whatever the first has done

    def sweep_later(self) -> bool:
        """Sweep when no process of before can be alive any more."""
        self.world.clock.sleep(LAMBDA_SECONDS + 10)
        return self.sweep()

    def sweep(self) -> bool:
        """Go once round all runs, as the schedule does; tell whether anything had to be done."""
        for name, each in self.executions.items():
            if each.status != "RUNNING":
                status = "succeeded" if each.status == "SUCCEEDED" else "failed"
                self.world.engine.ended[name] = Ended(status, each.status)
        steps, done = self.world.steps, list[Finding]()
        ports = (steps.store, steps.blobs, steps.clock, steps.engine, steps.definitions)
        stores = {"tenants": steps.store, "catalogue": steps.store}
        host = SweepHost(*ports, **stores, machines=None, unwind_machine=UNWIND, events=self.world.bus)
        bounds = Bounds(self.world.clock.now() + 10**9)
        self.safely(lambda: done.extend(sweep(host, [self.world.tenant], None, bounds).findings))
        announced, self.world.bus.announced = self.world.bus.announced, []
        self.tell([one.detail for one in announced])
        return any(finding.done not in {"left", "reported"} for finding in done)

    def stream(self) -> bool:
        """Deliver what the table's stream filters let through, until it is taken."""
        items = self.world.store.items
        new = [key for key, item in items.items() if wanted(item) and item["rev"] != self._streamed.get(key)]
        for key in new:
            self._streamed[key], item = items[key]["rev"], dict(items[key])
            _ = any(self.safely(lambda item=item: send(self.world.steps, item, UNWIND)) for _ in range(3))
        return self.hear() or bool(new)

    def hear(self) -> bool:
        """Let the function that writes letters hear of what the table's stream announces."""
        items = self.world.store.items
        new = [key for key, item in items.items() if asks_again(key, item) and key not in self._streamed]
        self._streamed |= dict.fromkeys(new, 1)
        told = [announcement({**items[key], "pk": key.pk, "sk": key.sk}) for key in new]
        self.tell([one.detail for one in told if one])
        return bool(new)

    def tell(self, details: list[Any]) -> None:
        """Let the bus deliver these; it repeats what its target does not take."""
        for detail in details:
            _ = any(self.safely(lambda detail=detail: ask_again(self.world.gates, detail)) for _ in range(3))

    def let_come(self, moment: int) -> None:
        """Wait until ``moment`` (ms); then the sweeper goes round by its schedule, until it leaves nothing to do."""
        for _ in range(6):
            self.world.clock.sleep(max(moment - self.world.clock.now(), 0) / 1000)
            self.sweep()
            if "stream" in self.healers:
                self.hear()
            gate = self.asks()
            if gate is None or not (untold(gate) or (due(gate) or moment + 1) <= moment):
                return
            moment = self.world.clock.now() + LETTERS_AFTER + CLAIM

    def launch(self) -> bool:
        known = self.executions.keys() | self._walking
        new = [name for name in self.world.engine.executions if name not in known]
        for name in new:
            asl = self.machine(name[0])
            with self.walking(name):
                self.executions[name] = Execution(self.world, asl, self.world.engine.executions[name])
        return bool(new)

    def machine(self, arn: str) -> dict[str, Any]:
        """Return the compiled machine of that name."""
        if arn == UNWIND:
            return unwind_machine()
        units = {unit.manifest.workflow: unit for unit in (self.world.unit, *self.beside)}
        return units[arn.split(":")[1]].asl

    @contextmanager
    def walking(self, name: tuple[str, str]) -> Generator[None]:
        """Mark an execution as under way: nothing else moves it meanwhile."""
        self._walking.add(name)
        try:
            yield
        finally:
            self._walking.discard(name)

    def answer(self) -> bool:
        answered = {answer[0] for answer in self.world.engine.answers}
        still = {name: each for name, each in self.executions.items() if name not in self._walking}
        ready = [name for name, each in still.items() if each.status == "RUNNING" and answered & set(each.waiting)]
        for name in ready:
            with self.walking(name):
                still[name].go()
        return bool(ready)

    def finalise(self) -> bool:
        ended = [name for name, each in self.executions.items() if each.status != "RUNNING"]
        new = [name for name in ended if name not in self._finalised]
        for name in new:
            self._finalised.add(name)
            status = "SUCCEEDED" if self.executions[name].status == "SUCCEEDED" else "FAILED"
            data = json.dumps(self.world.engine.executions[name])
            detail = {"stateMachineArn": name[0], "status": status, "input": data, "name": name[1]}
            # The bus repeats what its target does not take.
            _ = any(self.safely(lambda detail=detail: finalise(self.world.steps, detail, UNWIND)) for _ in range(3))
        return bool(new)

    def parked(self) -> list[tuple[str, Step]]:
        """Return what waits for a person in the run and its children, each with its run."""
        steps = [(run, step) for run in self.runs() for step in self.seen(run).records.steps()]
        return [(run, each) for run, each in steps if each.status in {"paused", "unknown"} and not each.open]

    def limited(self) -> list[Step]:
        """Return the maps and loops of the run that wait for a run of their own, which a time-out ends."""
        steps = [step for step in self.world.records.steps() if living(step) and step.type != "part"]
        return [step for step in steps if plan_of(self.world.unit.manifest, step.path).timeout < YEAR]

    def time_out(self, steps: list[Step]) -> None:
        """Let the time of these steps be over."""
        plans = [(step, plan_of(self.world.unit.manifest, step.path)) for step in steps]
        late = max((step.opened or 0) + plan.timeout * 1000 for step, plan in plans) - self.world.clock.now() + 5000
        self.world.clock.sleep(max(late, 0) / 1000)
        parks = (self.world.records.park(step.path) for step in steps)
        self._let_pass({park.token for park in parks if park})

    def attend(self) -> None:
        """A person looks at what is paused."""
        if self._attending or not self.world.run:
            return
        self._attending = True
        for run, step in self.parked():
            if not step.settled:
                self.safely(lambda run=run, step=step: self.resume(run, step))
        self._attending = False

    def resume(self, run: str, step: Step) -> None:
        order = Order(self.verdict, "ops")
        if step.failure and step.failure.level:
            order = self._beyond((run, step.path), order, step.failure)
        if step.status == "unknown":
            result = self.found(doubtful(self.seen(run).records, step))
            order = Order(self.doubt, "ops") if result is None else Order("accept", "ops", result=result)
        elif step.path.endswith(COMPENSATE):
            order = Order("retry", "ops")
        resume_step(self.world.steps, self.task(run, step.path), order, UNWIND)

    def _beyond(self, step: tuple[str, str], order: Order, failure: Failure) -> Order:
        """Return what a person says of a step that would exceed a limit."""
        if failure.level == "step":  # lost attempts have used up what the step may cost
            return replace(order, more=Raise(usd=Decimal("0.10"), tokens=10_000))
        if failure.dimension == "active_time":  # slow ones have used up the run's time
            return replace(order, more=Raise(active_time=600_000))
        # Steps are not raised here. The whole may have some for its part when that asks again; else it is given up.
        self._tried[step] += 1
        return order if self._tried[step] <= PATIENCE else replace(order, action="fail")

    def task(self, run: str, path: str) -> Task:
        world = self.seen(run)
        scope, step = placed(path)
        where = (scope, world.run, world.tenant, world.records.run.workflow, 1, world.head.epoch)
        return Task("resume", step, *where, "", "person", 0)

    def cancel(self) -> None:
        if not (self.world.run or self._find()):
            return
        self.acted = True
        for _ in range(2):  # a person whose request has failed sees that the run goes on
            if not self.world.head.unwinding:
                self.safely(lambda: request(self.world.steps, self.world.journal, "cancelled", "by ops", UNWIND))

    def _find(self) -> bool:
        self.world.run = next(iter(self.runs()), "")
        return bool(self.world.run)

    def asks(self) -> Gate | None:
        """Return the gate that waits for people."""
        return next((gate for gate in self.world.records.gates() if gate.status == "open"), None)

    def decide(self, word: Any, path: str = "", run: str = "") -> None:
        """Say a word about the gate at ``path`` of a run; "" = the one that is open, and the run itself."""
        seen = self.seen(run or self.world.run)
        found = (gate for gate in seen.records.gates() if gate.status == "open" and path in {"", gate.path})
        gate = next(found, None)
        for _ in range(2 if gate else 0):  # a person looks at the page that failed, and tries again where it lets them
            try:
                self.safely(lambda: decide_gate(self.world.steps, seen.journal, gate.path, word))
            except Conflict:
                return
            if seen.records.gate(gate.path).status != "open":
                return

    def expire(self) -> None:
        gates = [gate for gate in self.world.records.gates() if gate.status == "open"]
        late = max(gate.expires for gate in gates) - self.world.clock.now() + 5000
        self.world.clock.sleep(max(late, 0) / 1000)
        self._let_pass({gate.token for gate in gates})

    def _let_pass(self, waiting: set[str]) -> None:
        for name, each in list(self.executions.items()):
            if waiting & set(each.waiting):
                with self.walking(name):
                    each.expire()
