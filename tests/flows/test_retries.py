"""How long is waited before a retry, exactly: by the formula, and by whole runs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from invariants import check
from test_other_runs import called, tool, world

from shared.errors import RateLimited, TransientFailure
from shared.ledger.records import Failure
from shared.manifest import Retry
from shared.runtime.answers import delay

EXPONENTIAL = Retry(20, "exponential", base_delay=2.0, max_delay=10.0, jitter=False)
LINEAR = Retry(20, "linear", base_delay=2.0, max_delay=7.0, jitter=False)
UNEVEN = Retry(20, "exponential", base_delay=0.3, max_delay=60.0, jitter=False)


def waits(policy, times, failure=None, jitter=None):
    failure = failure or Failure("transient", "503")
    return [delay(policy, n, failure, jitter or (lambda _: 1 / 0)) for n in range(times)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (EXPONENTIAL, [2000, 4000, 8000, 10_000, 10_000]),
        (LINEAR, [2000, 4000, 6000, 7000, 7000]),
        (UNEVEN, [300, 600, 1200, 2400, 4800, 9600, 19_200, 38_400, 60_000]),
        (Retry(1, base_delay=90.0, max_delay=60.0, jitter=False), [60_000]),
        (Retry(1, base_delay=0.0, jitter=False), [0, 0]),
    ],
)
def test_a_retry_waits_by_its_policy_up_to_the_longest_delay(policy, expected):
    assert waits(policy, len(expected)) == pytest.approx(expected)


def test_jitter_is_up_to_one_base_delay_on_top_of_the_longest_too():
    policy, asked = Retry(20, "exponential", base_delay=2.0, max_delay=10.0), []

    def jitter(upper):
        asked.append(upper)
        return upper / 4

    assert waits(policy, 5, jitter=jitter) == [2500, 4500, 8500, 10_500, 10_500]
    assert set(asked) == {2.0}


@pytest.mark.parametrize(("wish", "expected"), [(None, 4000), (0, 4000), (3999, 4000), (4001, 4001), (99_000, 99_000)])
def test_a_retry_never_waits_less_than_the_far_side_asks_for(wish, expected):
    assert delay(EXPONENTIAL, 1, Failure("rate_limit", "429", wish), lambda _: 0.0) == expected


def retried(w):
    return [event.data for event in w.journal.events() if event.type == "step_retrying"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Retry(4, "exponential", base_delay=2.0, max_delay=10.0, jitter=False), [2000, 4000, 8000, 10_000]),
        (Retry(4, "linear", base_delay=2.0, max_delay=7.0, jitter=False), [2000, 4000, 6000, 7000]),
        (Retry(2), [3000, 5000]),
        (Retry(2, base_delay=1.5, jitter=False), [1500, 3000]),
    ],
)
def test_every_retry_of_a_run_waits_so_and_takes_a_step_of_the_budget(policy, expected):
    moments = []

    def down(*_):
        moments.append(w.clock.now())
        raise TransientFailure("503")

    w = world(tool("a", retry=policy), do=down)
    w.start({})
    assert [(data["delay_ms"], data["retry"]) for data in retried(w)] == [(ms, n) for n, ms in enumerate(expected, 1)]
    assert {data["jitter_ms"] for data in retried(w)} == {
        w.clock.jitter(policy.base_delay) * 1000 if policy.jitter else 0
    }
    passed = [after - before for before, after in pairwise(moments)]
    assert passed == [-(-ms // 1000) * 1000 for ms in expected], "machines wait whole seconds, never less"
    assert w.records.step("a").spent.steps == len(expected) + 1
    check(w)


def test_what_the_far_side_asks_for_holds_for_one_retry_only():
    errors = [RateLimited("429", retry_after=30.0), RateLimited("429", retry_after=1.0), None]

    def limited(arguments, _):
        error = errors.pop(0)
        if error:
            raise error
        return arguments["step"]

    w = world(tool("a", retry=Retry(2, jitter=False)), do=limited)
    assert w.start({}).status == "SUCCEEDED"
    assert [data["delay_ms"] for data in retried(w)] == [30_000, 4000]
    assert called(w) == ["a"] * 3
    check(w)
