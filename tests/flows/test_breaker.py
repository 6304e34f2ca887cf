"""Circuit breakers: a degraded service is left alone by all runs of its tenant until one probe says that it is back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from invariants import check
from machine import UNWIND
from test_other_runs import failing, task, tool
from test_other_runs import world as plain

from shared.errors import PermanentFailure, RateLimited, ServiceHeld, TransientFailure
from shared.ledger.records import Amount
from shared.manifest import Retry
from shared.runtime.breaker import FAILURES, FRESH, REST, WINDOW, Breaker, Breakers, tripped
from shared.runtime.ending import request
from shared.runtime.parking import Order, resume_step
from shared.runtime.protocol import Ask

RETRY = Retry(10, base_delay=1.0, max_delay=1.0, jitter=False, on=("transient", "rate_limit"))


def world(*plans, **more):
    return replace(plain(*plans, **more), breaks=True)


def failures(count, error=TransientFailure):
    """Return a tool that fails so often first."""
    calls = []

    def do(arguments, _):
        calls.append(1)
        if len(calls) <= count:
            raise error("503")
        return arguments["step"]

    return do


def events(w, kind):
    return [event for event in w.journal.events() if event.type == kind]


@pytest.mark.parametrize("error", [TransientFailure, RateLimited])
def test_a_degraded_service_is_left_alone_and_tried_by_one_probe(error):
    w = world(tool("a", retry=RETRY), do=failures(FAILURES, error))
    run = w.start({})
    assert run.status == "SUCCEEDED"
    held = events(w, "step_held")
    assert held
    assert len(w.tools.calls) == FAILURES + 1, "nothing was dispatched while it was open, and then one probe"
    step = w.records.step("a")
    assert (step.retries, step.attempt, step.held) == (FAILURES, FAILURES + 1, None)
    assert tripped(w.store, "acme", w.clock.now()) == []
    check(w)


def test_what_is_held_is_not_charged():
    w = world(tool("a", retry=RETRY), do=failures(10**6))
    w.start({})
    assert w.records.step("a").spent.steps == len(w.tools.calls)
    check(w)


def test_a_service_that_stays_degraded_is_for_a_person():
    w = world(tool("a", retry=RETRY))
    check_, w.steps.breakers.check = w.steps.breakers.check, hold
    run = w.start({})
    step = w.records.step("a")
    assert (step.status, step.reason, step.retries, w.tools.calls) == ("paused", "provider_degraded", 0, [])
    assert len(events(w, "step_held")) < 12, "each wait is longer than the one before"
    w.steps.breakers.check = check_
    resume_step(w.steps, task(w, "a"), Order("retry", "ops"), "machine:unwind")
    assert run.go().status == "SUCCEEDED"
    check(w)


def hold(_):
    raise ServiceHeld("tool:do is degraded", retry_after=REST / 1000)


def test_one_run_opens_it_for_the_others():
    w = world(tool("a"), do=failing("a", error=TransientFailure))
    for _ in range(FAILURES):
        w.start({})
    (breaker,) = tripped(w.store, "acme", w.clock.now())
    assert (breaker.service, breaker.state(w.clock.now())) == ("tool:do", "open")
    before = len(w.tools.calls)
    w.patient = True
    w.start({})
    assert len(w.tools.calls) == before
    assert events(w, "step_held")
    assert tripped(w.store, "other", w.clock.now()) == []


def test_failures_that_say_nothing_of_the_service_do_not_count():
    w = world(tool("a"), do=failing("a", error=PermanentFailure))
    for _ in range(2 * FAILURES):
        w.start({})
    assert not [key for key in w.store.items if key.pk.endswith("#BREAKERS")]


def test_a_closed_breaker_is_neither_written_nor_read_again_for_some_seconds():
    w = world(tool("a"))
    reads, read = [], w.store.read

    def reading(keys):
        reads.extend(key for key in keys if key.pk.endswith("#BREAKERS"))
        return read(keys)

    w.store.read = reading
    for _ in range(3):
        w.start({})
    assert len(reads) == 1
    w.clock.sleep(FRESH / 1000)
    w.start({})
    assert len(reads) == 2
    assert not [key for key in w.store.items if key.pk.endswith("#BREAKERS")]


def test_a_probe_that_is_answered_closes_it_whatever_the_answer():
    w = world(tool("a"), do=failing("a", error=TransientFailure))
    for _ in range(FAILURES):
        w.start({})
    w.tools._functions["do"] = failing("a", error=PermanentFailure)
    w.clock.sleep(REST / 1000)
    w.start({})
    assert tripped(w.store, "acme", w.clock.now()) == []


def opened(w):
    """Let five runs open the breaker, and its rest be over."""
    for _ in range(FAILURES):
        w.start({})
    w.clock.sleep(REST / 1000)
    w.tools._functions["do"] = lambda arguments, _: arguments["step"]


def asking(w):
    """Return what a process asks of its breakers before it calls, as step ``a`` does."""
    job, (breaker,) = task(w, "a"), tripped(w.store, "acme", w.clock.now())
    return Ask(job, w.unit.manifest.steps["a"], "a", Amount(), w.records.step("a").arguments, w.clock.now(),
               call=w.records.step("a").call, service=breaker.service)  # fmt: skip


def test_of_two_processes_that_find_it_half_open_one_probes():
    w = world(tool("a"), do=failing("a", error=TransientFailure))
    opened(w)
    ask, first, other = asking(w), Breakers(w.store, w.clock), Breakers(w.store, w.clock)

    def meanwhile(_):
        w.store.before_commit = lambda _: None
        other.check(ask)

    w.store.before_commit = meanwhile
    with pytest.raises(ServiceHeld) as held:
        first.check(ask)
    assert held.value.retry_after == REST / 1000
    with pytest.raises(ServiceHeld):
        other.check(replace(ask, now=w.clock.now() + 1))


def test_a_process_that_was_held_hears_at_once_that_another_ones_probe_was_answered():
    w = world(tool("a"), do=failing("a", error=TransientFailure))
    opened(w)
    ask, held, probe = asking(w), Breakers(w.store, w.clock), Breakers(w.store, w.clock)
    probe.check(ask)
    with pytest.raises(ServiceHeld):
        held.check(ask)
    probe.note(ask, None)
    held.check(ask)


def test_what_undoes_a_step_or_stands_in_for_it_passes():
    undo = {"compensate": {"tool": "do", "with": {"step": "undo"}}}
    steps = tool("a", risk="reversible", spec=undo), tool("b", "a", fallback="f", retry=Retry(FAILURES, jitter=False))
    w = world(*steps, tool("f"), tool("c", "b"), do=failing("b", error=TransientFailure))
    w.patient = True
    run = w.start({})
    while w.records.step("b/fallback") is None:
        run.go()
    (breaker,) = tripped(w.store, "acme", w.clock.now())
    assert (breaker.state(w.clock.now()), w.records.step("b").by) == ("open", "fallback")
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    w.unwind()
    assert [given["step"] for _, given, _ in w.tools.calls][-2:] == ["f", "undo"]
    assert w.records.step("a").status == "compensated"


# the rules


def test_failures_count_within_their_window_only():
    breaker = Breaker("s")
    for n in range(2 * FAILURES):
        breaker = breaker.failed(n * WINDOW)
    assert breaker.state(0) == "closed"
    for n in range(FAILURES - 1):
        breaker = breaker.failed(10**9 + n)
    assert breaker.wait(10**9) == 0
    opened = breaker.failed(10**9 + 9)
    assert opened.wait(10**9 + 9) == REST
    assert opened.state(10**9 + 9 + REST) == "half_open"


def test_while_one_probes_the_others_wait_and_its_failure_opens_it_anew():
    breaker = Breaker("s", opened_at=0, probe_until=REST + 60_000)
    assert breaker.wait(REST + 1) == REST
    assert breaker.wait(REST + 60_001) == 0
    assert breaker.failed(REST + 5).wait(REST + 5) == REST
