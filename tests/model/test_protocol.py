"""The protocol of the design, explored exhaustively; and simpler protocols, which must be found wanting.

``SIGNALBOX_MODEL_FAULTS=2`` (or more) explores everything to that bound; it takes minutes.
"""

import os
from itertools import product

import pytest

from shared.budget.rules import admitted, refusals, release
from shared.ledger.records import Amount, Head
from tests.model.explorer import explore
from tests.model.gates import APPROVER, CANCEL, ESCALATION, LEAD, REJECTER, SECOND, NaiveGate, SoundGate
from tests.model.skips import Skips
from tests.model.steps import Naive, Sound

FAULTS = int(os.environ.get("SIGNALBOX_MODEL_FAULTS", "1"))
RISKS = ("read", "reversible", "irreversible")
EVERYBODY = [frozenset({APPROVER, REJECTER}), frozenset({APPROVER, CANCEL}), frozenset({REJECTER, CANCEL})]


def holds(model, faults=1):
    found = explore(model, max(faults, FAULTS))
    assert found.violations == {}
    assert found.complete
    assert found.resting


def finds(model, faults, violation):
    return violation in explore(model, faults, until=violation).violations


@pytest.mark.parametrize("risk", RISKS)
def test_step_protocol_with_an_await(risk):
    holds(Sound(risk))


def test_step_protocol_with_two_sources_and_an_await():
    holds(Sound("irreversible", sources=2))


def test_an_irreversible_step_survives_two_faults():
    holds(Sound("irreversible"), faults=2)


@pytest.mark.parametrize("limit", [1, 2])
def test_step_protocol_keeps_a_limit_that_only_just_fits(limit):
    holds(Sound("reversible", limit=limit))


@pytest.mark.parametrize("risk", RISKS)
def test_separate_writes_are_found_wanting(risk):
    found = explore(Naive(risk), 1)
    assert set(found.violations) >= {
        "released twice",
        "reserved at rest",
        "open at rest",
        "gap in the log",
        "await asleep although all has settled",
    }
    assert found.violations["reserved at rest"]


class LooksBeforeItRegisters(Sound):
    def run_await(self, actor):
        if (yield ("all settled",)):
            yield ("send", actor.attempt)
        yield ("register",)
        return "parked"


class TrustsItsLease(Sound):
    def call(self, world, actor, fence):
        return super(Sound, self).call(world, actor, fence)


def test_an_await_that_looks_first_sleeps_forever():
    assert finds(LooksBeforeItRegisters("read"), 0, "await asleep although all has settled")


def test_a_call_without_a_lease_of_its_own_repeats_the_effect():
    assert finds(TrustsItsLease("irreversible"), 2, "irreversible effect twice")


@pytest.mark.parametrize("people", EVERYBODY, ids=lambda people: "+".join(sorted(people)))
def test_gate(people):
    holds(SoundGate(people))


def test_gate_without_conditional_writes_is_found_wanting():
    assert finds(NaiveGate(frozenset({APPROVER, REJECTER})), 0, "decision overwritten")
    assert finds(NaiveGate(frozenset({APPROVER, CANCEL})), 0, "approved after cancel")
    assert finds(NaiveGate(frozenset({APPROVER})), 1, "decided but asleep")


@pytest.mark.parametrize(("other", "faults"), [(set(), 1), ({REJECTER}, 0), ({CANCEL}, 0)], ids=str)
def test_gate_with_two_who_must_approve(other, faults):
    found = explore(SoundGate(frozenset({APPROVER, SECOND, *other}), quorum=2), max(faults, FAULTS - 1))
    assert (found.violations, found.complete) == ({}, True)
    assert found.resting


@pytest.mark.parametrize(("other", "quorum"), [(REJECTER, 1), (CANCEL, 1), (APPROVER, 2)])
def test_an_escalation_neither_loses_nor_doubles_a_decision(other, quorum):
    holds(SoundGate(frozenset({ESCALATION, LEAD, other}), quorum))


def test_an_escalation_that_writes_what_it_has_read_loses_decisions():
    assert finds(NaiveGate(frozenset({ESCALATION, APPROVER})), 0, "escalated after the decision")
    assert finds(NaiveGate(frozenset({ESCALATION, APPROVER, SECOND}), quorum=2), 0, "an approval is not counted")


def test_one_of_two_approves_nothing_alone():
    found = explore(SoundGate(frozenset({APPROVER}), quorum=2), 1)
    assert (found.violations, found.complete) == ({}, True)


def test_approvals_counted_by_separate_writes_are_lost():
    assert finds(NaiveGate(frozenset({APPROVER, SECOND}), quorum=2), 0, "an approval is not counted")


def test_skips_are_recorded_once_and_wake():
    holds(Skips())


def test_skips_without_propagation_or_repetition_are_found_wanting():
    assert finds(Skips(propagates=False), 0, "skipped steps have no record")
    assert finds(Skips(repeats=False), 1, "await asleep")


LIMIT = 5
JOBS = [(arrives, timeout, takes) for arrives in range(5) for timeout in (1, 2, 3) for takes in range(1, timeout + 1)]


def play(jobs):
    """Admit jobs (arrival, time-out, duration) by the real rules; return the intervals that ran, and the last head."""
    head, running, ran = Head(active_left=LIMIT), [], []
    for arrives, timeout, takes in jobs:
        head, running = closed_until(head, running, arrives)
        if not any(refusals(head, Amount(), timeout, arrives)):
            head = admitted(head, Amount(), arrives)
            running.append(arrives + takes)
            ran.append((arrives, arrives + takes))
    return ran, closed_until(head, running, 99)[0]


def closed_until(head, running, now):
    for end in sorted(end for end in running if end <= now):
        head = release(head, Amount(), Amount(), end)
    return head, [end for end in running if end > now]


def busy(intervals):
    return len({moment for start, end in intervals for moment in range(start, end)})


def test_active_time_is_the_time_in_which_anything_is_open_and_never_exceeded():
    refused = 0
    for jobs in product(JOBS, repeat=3):
        if list(jobs) == sorted(jobs, key=lambda job: job[0]):
            ran, head = play(jobs)
            assert busy(ran) <= LIMIT
            assert head.open == 0
            assert head.active_left == LIMIT - busy(ran)
            refused += len(ran) < len(jobs)
    assert refused
