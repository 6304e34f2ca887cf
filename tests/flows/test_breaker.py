"""Circuit breakers: a degraded service is left alone by all runs of its tenant until one probe says that it is back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from invariants import check
from test_other_runs import failing, task, tool
from test_other_runs import world as plain

from shared.errors import PermanentFailure, RateLimited, ServiceHeld, TransientFailure
from shared.manifest import Retry
from shared.runtime.breaker import FAILURES, FRESH, REST, WINDOW, Breaker, tripped
from shared.runtime.parking import Order, resume_step

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
