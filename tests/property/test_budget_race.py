"""Fifty attempts race for the limits of their steps, runs and tenant, and answers are lost all the time.

At every instant, which is after every transaction: spent + reserved is within the limit of every step, run and tenant.
At the end nothing is reserved anywhere, and the tenant has paid exactly what the runs have used.
"""

from __future__ import annotations

import itertools
import threading
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from shared.budget import tenant
from shared.errors import BudgetExceeded, StoreConflict, TenantBudgetExceeded
from shared.ledger.record import replace
from shared.ledger.records import Amount, Failure
from shared.manifest import Limits, Manifest, StepPlan
from shared.runtime import protocol
from shared.runtime.children import Birth, ChildEnd, decide_end
from shared.runtime.host import Host, Published
from shared.runtime.journal import Change, Journal, Note
from shared.runtime.protocol import Ask, Opened, Outcome
from shared.runtime.raising import fund, raised
from shared.runtime.runs import NewRun, StartRequest
from shared.runtime.steps import NotOpened
from shared.runtime.task import run_task
from shared.testing import FakeEngine, FixedDefinitions, FrozenClock, MemoryBlobs, MemoryStore
from shared.values import Value

NOTHING = Value("d", 2, text="{}")
RUNS, STEPS = ("A", "B", "C"), 16
CHILD = "child-of-A"
RUN_LIMITS, CHILD_LIMITS, STEP_LIMITS = Limits(100, 100, 30), Limits(40, 40, 8), Limits(usd=50, steps=3)
TENANT = {"usd": 330, "tokens": 330, "steps": 75}
FAULTS = (None, None, "fails", "answer lost", "own write")
DIMENSIONS = ("usd", "tokens", "steps")


class Lost(Exception):
    """The connection broke; whether the transaction arrived is not known."""


class Shaken(MemoryStore):
    """A store whose next transaction meets ``fault``; what is true is looked at after every one that is applied."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = lambda: None
        self.whole = threading.RLock()

    def commit(self, writes):
        fault = self.fault()
        if fault == "fails":
            raise Lost
        with self.whole:
            super().commit(writes)
            within_limits(self)
        if fault == "answer lost":
            raise Lost
        if fault == "own write":
            raise StoreConflict("a repetition meets its own write")


def within_limits(store):
    for key in [key for key in store.items if key.sk == "RUN"]:
        seen = Journal.at(store, FrozenClock(), key.pk).read_all()
        for name in DIMENSIONS:
            used = sum(getattr(step.spent, name) + getattr(step.hold, name) for step in seen.steps())
            left = getattr(seen.head, f"left_{name}")
            assert 0 <= left == getattr(seen.run, f"limit_{name}") - used
        for step in seen.steps():
            if step.type == "tool":
                assert step.spent.usd + step.hold.usd <= STEP_LIMITS.usd + (step.raised or Amount()).usd
    account = tenant.read(store, "acme")
    for name in account.set.limits:
        assert all(shard.left.get(name, 0) >= 0 for shard in account.shards)
        assert account.left[name] + account.held[name] + account.spent[name] == TENANT[name]
        assert account.spent[name] >= 0


class House:
    """One tenant with its runs, and what a process does with them."""

    def __init__(self) -> None:
        self.store, self.clock = Shaken(), FrozenClock()
        tenant.set_limits(self.store, "acme", TENANT, monthly=False, now=self.clock.now())
        child = Manifest("child", "h", {}, CHILD_LIMITS, {}, ())
        self.host = Host(self.store, MemoryBlobs(), self.clock, FakeEngine(), FixedDefinitions(child))
        self.published = Published("w", 1, "h", "m", Manifest("w", "h", {}, RUN_LIMITS, {}, ()))
        self.attempts = itertools.count()

    def journal(self, run):
        return Journal(self.store, self.clock, "acme", run)

    def look(self, run, path):
        """Return what a process reads before it decides; None = there is no such run."""
        seen = self.journal(run).read(["RUN", f"STEP#{path}"])
        return seen if "HEAD" in seen.records else None

    def start(self, run):
        new = NewRun(run, self.published, StartRequest("acme", "i", "api", {}), NOTHING, 0, RUN_LIMITS)
        try:
            self.store.commit(new.writes(self.store))
        except (StoreConflict, TenantBudgetExceeded):
            return

    def open(self, run, path, seen, hold, attempt):
        task = replace_task(run_task(seen.run, 1, path), attempt)
        ask = Ask(task, StepPlan(path, "tool", budget=STEP_LIMITS), path, hold, NOTHING, self.clock.now())
        return self.journal(run).transact(seen, lambda again: protocol.open_attempt(ask, again))[0]

    def close(self, run, seen, opened, outcome):
        self.journal(run).transact(seen, lambda again: protocol.close_attempt(opened, outcome, 0, again))

    def more(self, run, path, amounts):
        """Raise the limits of a run, as a person does who resumes one of its steps."""

        def decide(seen):
            step = seen.step(path)
            if step is None or seen.head.ended:
                return Change(None)
            runs, head, step = raised(seen.run, seen.head, step, amounts)
            return Change(None, (*runs, head, step), (Note("step_resumed", path),), fund(self.host, seen.run, amounts))

        self.journal(run).transact(self.journal(run).read(["RUN", f"STEP#{path}"]), decide)

    def bear(self, seen):
        task = run_task(seen.run, 1, "sub")
        birth = Birth(task, StepPlan("sub", "sub_workflow"), self.host.definitions.published("child"), NOTHING, 0)
        return self.journal("A").transact(seen, birth.decide)[0].child

    def end(self, run):
        """End a run of which nothing is open, its child's step included."""

        def decide(seen):
            waits = any(step.hold != Amount() for step in seen.steps())
            if seen.head.ended or seen.head.open or waits:
                return Change(None)
            ended = replace(seen.head, ended="stopped", ended_at=1)
            facts, back = tenant.give_back(self.store, seen.run, ended)
            return Change(None, (ended, *facts), (Note("run_stopped"),), back)

        self.journal(run).transact(self.journal(run).read_all(), decide)

    def answer(self, child):
        """Return what an ended child has not used to its parent."""
        below = self.journal(child).read_all()
        if below.head.ended:
            used = sum((step.spent for step in below.steps()), Amount())
            end = ChildEnd(child, Outcome(used=used), 0, 0)
            seen = self.journal("A").read(["RUN", "STEP#sub"])
            self.journal("A").transact(seen, lambda again: decide_end(again, "sub", end))


def replace_task(task, attempt):
    return type(task)(**{name: getattr(task, name) for name in task.__slots__} | {"attempt": attempt})


holds = st.builds(Amount, st.integers(0, 30), st.integers(0, 30), st.just(1))
shares = st.one_of(st.none(), st.integers(0, 100))
workers = st.integers(0, 3 * STEPS + 1)
faults = st.sampled_from(FAULTS)


class Race(RuleBasedStateMachine):
    """Processes read at one time and write at another; who hears of a broken connection repeats what he did."""

    @initialize()
    def begin(self):
        self.house = House()
        self.house.start("A")
        self.house.start("B")
        self.seen, self.opened, self.child = {}, {}, None
        self.unsure = []

    def attempt(self, do, fault):
        """Do something whose first transaction meets ``fault``; whoever hears of it does it again some time."""
        pending = [fault]
        self.house.store.fault = lambda: pending.pop() if pending else None
        try:
            do()
        except Lost:
            self.unsure.append(do)
        except (BudgetExceeded, TenantBudgetExceeded, NotOpened):
            pass
        finally:
            self.house.store.fault = lambda: None

    def place(self, worker):
        """Return the run and the step of a worker: the last two work in the child."""
        if worker >= 3 * STEPS:
            return self.child, f"s{worker}"
        return RUNS[worker // STEPS], f"s{worker % STEPS}"

    @rule(run=st.sampled_from(RUNS), fault=faults)
    def start(self, run, fault):
        self.attempt(partial(self.house.start, run), fault)

    @rule(worker=workers)
    def look(self, worker):
        run, path = self.place(worker)
        self.seen[worker] = self.house.look(run, path) if run else None

    @rule(worker=workers, hold=holds, fault=faults, other=st.booleans())
    def open(self, worker, hold, fault, other):
        """Open an attempt, or take over the one that is open."""
        if self.seen.get(worker) is None or (worker in self.opened and not other):
            self.look(worker)
        if self.seen.get(worker):
            self.attempt(partial(self._open, worker, hold, str(next(self.house.attempts))), fault)

    def _open(self, worker, hold, attempt):
        opening = self.house.open(*self.place(worker), self.seen[worker], hold, attempt)
        if isinstance(opening, Opened):
            self.opened[worker] = opening.step

    @rule(worker=workers, share=shares, failed=st.booleans(), fault=faults)
    def close(self, worker, share, failed, fault):
        if worker in self.opened:
            self.attempt(partial(self._close, worker, self.opened.pop(worker), share, failed), fault)

    def _close(self, worker, opened, share, failed):
        hold = opened.hold
        used = None if share is None else Amount(hold.usd * share // 100, hold.tokens * share // 100, 1)
        outcome = Outcome(used, failure=Failure("transient", "no") if failed else None)
        run, path = self.place(worker)
        self.house.close(run, self.seen[worker] or self.house.look(run, path), opened, outcome)

    @rule(worker=workers, usd=st.integers(1, 20))
    def more(self, worker, usd):
        """Raise limits. A raise is not repeated blindly: a step that was resumed is not paused any more."""
        run, path = self.place(worker)
        if run and self.house.look(run, path):
            self.attempt(partial(self.house.more, run, path, {"usd": usd, "steps": 1}), None)

    @rule(fault=faults)
    def bear(self, fault):
        if self.house.look("A", "sub"):
            self.attempt(self._bear, fault)

    def _bear(self):
        self.child = self.house.bear(self.house.look("A", "sub")) or self.child

    @rule(run=st.sampled_from(RUNS), fault=faults)
    def end(self, run, fault):
        if self.house.look(run, "sub"):
            self.attempt(partial(self.house.end, run), fault)

    @rule(fault=faults)
    def end_child(self, fault):
        if self.child:
            self.attempt(partial(self.house.end, self.child), fault)
            self.attempt(partial(self.house.answer, self.child), fault)

    @rule(fault=faults)
    def again(self, fault):
        if self.unsure:
            self.attempt(self.unsure.pop(0), fault)

    @invariant()
    def everything_is_within_its_limits(self):
        within_limits(self.house.store)

    def teardown(self):
        if not hasattr(self, "house"):
            return
        while self.unsure:
            self.attempt(self.unsure.pop(0), None)
        for worker in range(3 * STEPS + 2):
            self._finish(worker)
        self.end_child(None)
        for run in RUNS:
            self.end(run, None)
        self._at_rest()

    def _finish(self, worker):
        """Charge an attempt of which nobody has heard, as after the death of its process."""
        run, path = self.place(worker)
        seen = self.house.look(run, path) if run else None
        step = seen and seen.step(path)
        if step and step.open:
            self.house.close(run, seen, step, Outcome())

    def _at_rest(self):
        account, spent = tenant.read(self.house.store, "acme"), Amount()
        for run in RUNS:
            if self.house.look(run, "sub"):
                seen = self.house.journal(run).read_all()
                assert seen.head.ended
                assert all(step.hold == Amount() for step in seen.steps())
                spent += sum((step.spent for step in seen.steps()), Amount())
        assert not any(account.held.values())
        assert account.spent == {name: getattr(spent, name) for name in DIMENSIONS}


def test_nothing_ever_exceeds_a_limit_and_nothing_stays_reserved():
    effort = settings(max_examples=25, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Race, settings=effort)


@pytest.mark.parametrize("seed", range(2))
def test_fifty_threads_share_one_envelope(seed):
    house = House()
    house.start("A")
    random, admitted = Random(seed), list[Amount]()  # noqa: S311 - chooses faults
    house.store.fault = lambda: random.choice((None, None, None, "own write", "fails", "answer lost"))

    def work(number):
        path, attempt = f"s{number}", f"a{number}"
        opening = until_sure(lambda: house.open("A", path, house.look("A", path), Amount(5, 5, 1), attempt))
        if isinstance(opening, Opened):
            admitted.append(Amount(3, 3, 1))
            outcome = Outcome(Amount(3, 3, 1))
            until_sure(lambda: house.close("A", house.look("A", path), opening.step, outcome))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    until_sure(lambda: house.end("A"))
    account = tenant.read(house.store, "acme")
    assert not any(account.held.values())
    assert account.spent["usd"] == 3 * len(admitted)
    assert len(admitted) >= 20


def until_sure(do):
    while True:
        try:
            return do()
        except Lost:
            continue
