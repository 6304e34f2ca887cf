"""The in-process engine: calls, timers and tokens around the interpreter's walks.

All walks move on one thread, the hub's; a walk goes on until it parks, sleeps or ends, and its successor goes on right
there. Only calls have threads of their own. When nothing of a run moves, it is dropped from memory but for its id, and
its records say how it goes on. So waking a run and taking it over after a crash are the same thing.

Time-outs come from outside: a call that outlasts its step's time-out by a margin is given up, another thread takes its
thread's place, and what it still returns fails on the fence. But a thread cannot be killed: a call that may change
something is alive as long as its thread is, and waited for until the process ends. Tools bound their calls by
``call.timeout``.
"""

from __future__ import annotations

import gc
import itertools
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.errors import Conflict, NotFound
from shared.inprocess.handlers import UNWIND
from shared.inprocess.hub import Hub
from shared.inprocess.live import Walk
from shared.inprocess.places import Places
from shared.inprocess.seats import Seats
from shared.inprocess.tasks import begin, make_task, takes_place
from shared.inprocess.tick import Ticks
from shared.inprocess.tiers import Tiers
from shared.inprocess.timers import Timers
from shared.inprocess.walks import Walks
from shared.inprocess.watch import POKE, Watch
from shared.interpreter import Do, Sleep, TaskFailed, Within, walk_finish
from shared.ports import Engine, Execution
from shared.runtime.ending import request
from shared.runtime.settle import over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.inprocess.handlers import Handlers
    from shared.inprocess.live import Live
    from shared.interpreter import Effect
    from shared.manifest import StepPlan

LOG = logging.getLogger("signalbox")
NAP = 5.0
"""Shorter sleeps (s) keep a run in memory."""
_CHILDREN = frozenset({"child", "apart"})
_TIMED = _CHILDREN | {"run", "event"}
"""Operations that park for at most a time: children, gates, events."""
Outcome = Any
_ELSEWHERE = object()
"""Outcome of an operation whose walk goes on later, or has gone on without it."""


class InProcess(Engine):
    """Drives runs in this process. ``workers`` = calls at a time; 0 = no threads, the caller drives with ``drain``.

    ``acquire`` and ``release`` are the lease of a run; ``changed`` tells whether another process wrote to the store.
    """

    slots = False  # seats bound what is at work (``shared.inprocess.seats``)

    def __init__(
        self,
        *,
        workers: int = 8,
        tenant: str = "local",
        acquire: Callable[[str], bool] = lambda _: True,
        release: Callable[[str], None] = lambda _: None,
        changed: Callable[[], bool] = lambda: False,
        ticks: Ticks | None = None,
    ) -> None:
        self.handlers: Handlers
        self.failure: BaseException | None = None
        self.stopped = False
        self.ticks = ticks or Ticks()
        self.hub = Hub(self.ticks, workers, self._stand_still)
        self.calls: dict[Walk, tuple[int, Live, int]] = {}
        self._working: set[str] = set()
        self.timers = Timers()
        self.tiers = Tiers(self)
        self.places = Places(self, tenant, release)
        self._walks = Walks(self)
        self._watch = Watch(self, changed)
        self._seats = Seats(workers)
        self._acquire, self._workers = acquire, workers
        self._threads: list[threading.Thread] = []
        self._count = itertools.count(1)

    # --- the port -----------------------------------------------------------------------------------------------

    def start(self, machine: str, name: str, data: Mapping[str, Any]) -> None:  # noqa: ARG002 - a run has one execution
        """Drive a run, or unwind one: also a child whose driver has died. Starting again is harmless."""
        run = str(data["run"]["id"])
        if machine != UNWIND or run not in self.places.runs():
            self.host(run)
            return
        with self.places.awake(run) as live:
            if live:
                self.launch(live, live.unwind())

    def describe(self, machine: str, name: str) -> Execution | None:  # noqa: ARG002 - a run has one execution
        """Return that the run is driven here; another process's lock tells nobody whose it is."""
        return Execution("running") if name.partition(".")[0] in self.places.runs() else None

    def succeed(self, token: str, output: Mapping[str, Any]) -> bool:
        """Answer a token. The answer stands in the records too: whoever drives the run elsewhere finds it there."""
        return self.answer(token, dict(output))

    def fail(self, token: str, error: str, cause: str) -> bool:
        """Fail a token."""
        return self.answer(token, TaskFailed(error, cause))

    def works(self, attempt: str) -> bool:
        """Tell whether a thread of this process is at work for the attempt."""
        return attempt in self._working

    # --- driving ------------------------------------------------------------------------------------------------

    def open(self, handlers: Handlers) -> None:
        """Begin to work with these handlers."""
        self.handlers = handlers
        if self._workers:
            gc.freeze()  # what is loaded by now stays: looking through it for garbage again and again takes a quarter
            for work in (self.hub.run, self._watch.run):
                self._threads.append(threading.Thread(target=work, name="signalbox", daemon=True))
                self._threads[-1].start()

    def host(self, run: str) -> bool:
        """Drive a run from where its records say it stands. False = another process drives it."""
        if not self._acquire(run):
            return False
        self.places.take(run)
        return True

    def close(self) -> None:
        """Stop: nothing new begins; what is under way is left as after a crash. The records know how to go on."""
        self.stopped = True
        self.hub.stop()
        self._watch.ring()
        for thread in self._threads:
            thread.join()
        self.hub.join(1.0)

    def drain(self, *, patience: float = 0.0) -> None:
        """Without threads: drive everything until all waits for answers, jumping over sleeps up to ``patience`` s."""
        clock = self.handlers.steps.clock
        end = clock.now() + int(patience * 1000)
        while True:
            self.hub.drain()
            due = self.timers.next()
            if due is None or due > end:
                return
            clock.sleep(max(0, due - clock.now()) / 1000)
            self._watch.ring_timers()

    def put(self, live: Live, walk: Walk | None, outcome: Outcome = None) -> None:
        """Let a walk go on (None = the whole run)."""
        self.hub.put(partial(self._job, live, walk, outcome))

    def launch(self, live: Live, walks: list[Walk]) -> None:
        """Let these walks begin."""
        live.active += len(walks)
        for walk in walks:
            self.put(live, walk)

    def now(self) -> int:
        """Return the time (ms)."""
        return self.handlers.steps.clock.now()

    def number(self) -> int:
        """Return a number that is unique in this process."""
        return next(self._count)

    def _stand_still(self, error: Exception) -> None:
        """Leave every run that is under way as after a crash: what they have decided could not be written."""
        self.failure = error
        for live in self.places.under_way():
            self.places.drop(live)

    def _job(self, live: Live, walk: Walk | None, outcome: Outcome) -> None:
        """Take one walk as far as it goes."""
        try:
            walks = [(walk, outcome)] if walk else [(each, None) for each in self.places.adopted(live)]
            while walks:
                for extra in walks[1:]:
                    self.put(live, *extra)
                walks = [(each, None) for each in self._advance(live, *walks[0])]
        except Exception as error:
            LOG.exception("run %s stands still", live.id)
            self.failure = error
            self.places.drop(live)

    def _advance(self, live: Live, walk: Walk, outcome: Outcome) -> list[Walk]:
        """Go on with a walk until it stops; return those that begin thereby."""
        while not live.closed:
            try:
                effect = walk.do if outcome is POKE else _send(walk, outcome)
            except StopIteration as end:
                return self._walks.ended(live, walk, goes_on=bool(end.value))
            except TaskFailed as error:
                return self.died(live, error)
            if isinstance(effect, Within):
                return self._walks.enter(live, walk, effect)
            outcome = self._do(live, walk, effect) if isinstance(effect, Do) else self._sleep(live, walk, effect)
            if outcome is _ELSEWHERE:
                return []
        return []

    def _do(self, live: Live, walk: Walk, do: Do) -> Outcome:
        """Perform an operation, and park if it asks for that. Returns its outcome, if there is one."""
        begin(walk, do)
        if self._queued(live, walk):
            return _ELSEWHERE
        ticket, outcome = self._perform(live, walk, do)
        if ticket != walk.ticket:  # it was given up, and has ended after all
            self.hub.dismiss()
            return _ELSEWHERE
        if do.token and not isinstance(outcome, TaskFailed):
            return self._park(live, walk, do)
        return outcome

    def _queued(self, live: Live, walk: Walk) -> bool:
        """Let a walk that will call wait, while as many call as may: in this process, and of its run."""
        if not takes_place(walk):
            return False
        if not self._seats.take(live, walk):
            return True
        with live.lock:
            placed = live.take_place(walk)
        if not placed:
            self._free_seat()
        return not placed

    def _free_seat(self) -> None:
        self._seats.free()
        self.call_next()

    def call_next(self) -> None:
        """Let who waits for a seat try again, if one is free: after a call, and when a run is dropped that was to."""
        following = self._seats.next()
        if following:
            self.put(*following, POKE)

    def _perform(self, live: Live, walk: Walk, do: Do) -> tuple[int, Outcome]:
        """Perform an operation. Returns its ticket, which is void by now if it took too long."""
        task = make_task(live, walk, do, self.now(), self.number())
        ticket, timed = walk.ticket, walk.limit is not None
        if do.token:
            with live.lock:
                live.expected.add(do.token)
                live.early.pop(do.token, None)
        if timed:
            self.calls[walk] = (task.deadline, live, ticket)
        self._working.add(task.attempt)
        try:
            outcome = self.handlers.perform(task)
        except Exception as error:  # noqa: BLE001 - as an engine sees it: any error is a failed task, by its name
            outcome = TaskFailed(type(error).__name__, str(error))
        finally:
            self._working.discard(task.attempt)
        if timed:
            with live.lock:
                if self.calls.pop(walk, None):
                    walk.ticket = ticket = walk.ticket + 1
                    self.free(live, walk)
        return ticket, {} if outcome is None else outcome

    def free(self, live: Live, walk: Walk) -> None:
        """Give the place of a step that called to the next one."""
        if takes_place(walk):
            self._free_seat()
            following = live.free_place()
            if following:
                self.put(live, following, POKE)

    # --- waiting ------------------------------------------------------------------------------------------------

    def _sleep(self, live: Live, walk: Walk, effect: Sleep | None) -> Outcome:
        seconds = effect.seconds if effect else 0.0
        token = f"{'nap' if seconds < NAP else 'sleep'}:{self.number()}"
        with live.lock:
            live.parked[token] = walk
            live.naps += token.startswith("nap")
            self.timer(live.id, token, self.now() + int(seconds * 1000))
            self.rest(live)
        return _ELSEWHERE

    def _park(self, live: Live, walk: Walk, do: Do) -> Outcome:
        """Wait for the token's answer, unless it has come already, or its time is over."""
        until = self.until(live, walk)
        with live.lock:
            live.expected.discard(do.token)
            if do.token in live.early:
                return live.early.pop(do.token)
            if until and until <= self.now():
                return TaskFailed("States.Timeout")
            live.parked[do.token] = walk
            if until:
                self.timer(live.id, do.token, until)
            self.tiers.watch(live, walk)
            self.rest(live)
        return _ELSEWHERE

    def until(self, live: Live, walk: Walk) -> int | None:
        """Return when (ms) the time of a walk's parked operation itself is over."""
        do = walk.do
        if do is None or do.op not in _TIMED:
            return None
        seen = self.places.journal(live.id).read([f"GATE#{do.path}", f"STEP#{do.path}"])
        gate, step = seen.gate(do.path), seen.step(do.path)
        if do.op in _CHILDREN:
            return step.opened + int(walk.plan.timeout * 1000) if walk.plan and step and step.opened else None
        return gate.expires if gate else step.due if step else None

    def rest(self, live: Live) -> None:
        """Count a walk as waiting, and keep no more than the run's id when nothing of it moves."""
        live.active -= 1
        if live.still:
            self.places.park(live)

    def answer(self, token: str, outcome: Outcome) -> bool:
        """Send an answer to the walk that waits for it, or will in a moment. False = nobody does."""
        run, _, name = token.split("|", 2)
        with self.places.awake(run) as live:
            if live is None:
                return False
            walk = live.parked.pop(name, None)
            if walk is None:
                if name in live.expected:
                    live.early[name] = outcome
                return name in live.expected
            live.active += 1
        self.put(live, walk, outcome)
        return True

    def timer(self, run: str, token: str, due: int) -> None:
        """Answer ``token`` at ``due`` (ms)."""
        if self.timers.add(due, run, token) and self._workers:
            self._watch.ring()

    def join_over(self, live: Live, scope: str, plan: StepPlan) -> bool:
        """Tell from the records whether a step need not wait for the rest of its sources."""
        host, do = self.handlers.steps, Do("await", plan.id, scope)
        task = make_task(live, Walk(walk_finish()), do, self.now(), 0)
        return over(host, task, plan, self.places.journal(live.id).read(host.keys(task, plan)))

    # --- the ends -----------------------------------------------------------------------------------------------

    def died(self, live: Live, error: TaskFailed) -> list[Walk]:
        """End a run of which a walk cannot go on as stopped, with every result kept."""
        with live.lock:
            live.active -= 1
        host = self.handlers.steps
        try:
            request(host, self.places.journal(live.id), "stopped", f"the run cannot go on: {error}"[:400], UNWIND)
        except (Conflict, NotFound):
            self.hub.saved()
            self.places.drop(live)
        return []


def _send(walk: Walk, outcome: Outcome) -> Effect:
    return walk.steps.throw(outcome) if isinstance(outcome, TaskFailed) else walk.steps.send(outcome)
