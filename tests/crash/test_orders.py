"""Every kind of run with everybody at once, in orders drawn by lot: others every day, and as many as you like.

``SIGNALBOX_ORDERS=102`` plays 10,000: so many of each kind and mood.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import get_args

import pytest
from crowd import Mood, violation
from routes import ROUTES
from test_pairs import SHARE

from shared.runtime import gates, parking, protocol, waits

ORDERS = int(os.environ.get("SIGNALBOX_ORDERS") or 8)
MOODS = get_args(Mood)


@pytest.mark.parametrize("mood", MOODS)
@pytest.mark.parametrize("route", ROUTES)
def test_whatever_the_order_nobody_waits_for_ever_and_nothing_is_done_twice(route, mood):
    for seed in range(SHARE * ORDERS, SHARE * ORDERS + ORDERS):
        assert violation(route, mood, seed) is None, f"{route}, {mood}, seed {seed}"


# --- a check that cannot fail would be none: what is found where the product forgets something? -----------------------


def found(route: str, mood: Mood) -> str:
    """Return the first violation that some orders find."""
    return next(filter(None, (violation(route, mood, seed) for seed in range(200))), "nothing")


def test_who_registers_without_looking_again_is_found(monkeypatch):
    register = parking.register

    def blind(journal, park, others):
        seen = journal.read({park.sk, *others})
        return register(journal, park, others)[0], seen

    monkeypatch.setattr(parking, "register", blind)
    assert "ended by their time-out" in found("await", "calm")


def test_a_decision_that_is_not_sent_is_found(monkeypatch):
    monkeypatch.setattr(gates, "answer", lambda *_: True)
    assert "ended by their time-out" in found("approve", "calm")


def test_an_early_event_that_is_overlooked_is_found(monkeypatch):
    monkeypatch.setattr(waits, "matches", lambda *_: False)
    assert found("early event", "calm") != "nothing"


def test_who_takes_over_from_a_process_that_may_be_alive_is_found(monkeypatch):
    open_attempt = protocol.open_attempt

    def hasty(ask, seen):
        step = seen.step(ask.path)
        return open_attempt(ask, seen.with_({step.sk: replace(step, lease=0)}) if step and step.lease else seen)

    monkeypatch.setattr(protocol, "open_attempt", hasty)
    assert found("pay, denied", "late") == "2 effects, by the records 1"
