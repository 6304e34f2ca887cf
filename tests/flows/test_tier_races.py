"""Reminders and tiers of gates while others decide, processes die and mail is down: each once, and nobody forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from invariants import check
from machine import FINANCE, UNWIND
from patience import (
    ASKED,
    BEN,
    FATIMA,
    HOUR,
    LEAD,
    REMINDED,
    asking,
    hear,
    letters,
    passes,
    says,
    sweep,
    told,
)

from shared.errors import PermanentFailure, TransientFailure
from shared.runtime.ending import request
from shared.runtime.journal import Change
from shared.runtime.mailing import ask_again, look, mail_approvers
from shared.runtime.mending import mend
from shared.runtime.tiers import CLAIM, PATIENCE

# --- races and deaths -------------------------------------------------------------------------------------------------


def test_a_decision_that_comes_first_leaves_nothing_to_escalate():
    w, run = asking()
    w.clock.sleep(9 * HOUR)
    w.store.before_commit = lambda writes: _decide_first(w, writes)
    assert sweep(w) == []
    assert w.records.gate("g").tier == 1
    assert letters(w) == ASKED
    assert run.go().status == "SUCCEEDED"
    check(w)


def _decide_first(w, writes):
    if any(write.key.sk == "GATE#g" for write in writes):
        w.store.before_commit = list
        says(w, FATIMA)


def test_a_decision_that_comes_second_reads_again_and_counts():
    w, run = asking()
    w.clock.sleep(9 * HOUR)

    def escalate(writes):
        if any(write.key.sk == "GATE#g" for write in writes):
            w.store.before_commit = list
            sweep(w)

    w.store.before_commit = escalate
    assert says(w, FATIMA).status == "approved"
    gate = w.records.gate("g")
    assert (gate.tier, gate.by) == (2, FATIMA)
    assert run.go().status == "SUCCEEDED"
    check(w)


def test_two_sweepers_and_a_repeated_announcement_write_to_nobody_twice():
    w, _ = asking()
    w.clock.sleep(9 * HOUR)
    before = w.head.seq
    sweep(w)
    sweep(w)
    hear(w, before)
    assert letters(w) == ASKED + LEAD
    assert len(told(w, "gate_escalated")) == 1


def test_of_two_processes_at_once_one_writes_the_letters():
    w, _ = asking()
    w.clock.sleep(5 * HOUR)
    about = {"tenant": w.tenant, "run": w.run, "path": "g"}
    send = w.mail.send

    def beside(message):
        w.mail.send = send
        ask_again(w.gates, about)
        send(message)

    w.mail.send = beside
    sweep(w)
    assert letters(w) == ASKED + REMINDED


def test_a_tier_that_begins_while_letters_are_written_is_told_by_the_same_process():
    w, _ = asking()
    w.clock.sleep(7.99 * HOUR)
    send = w.mail.send

    def meanwhile(message):
        w.mail.send = send
        w.clock.sleep(60)
        mend(w.steps, w.tenant, w.run, UNWIND, w.bus)
        send(message)

    w.mail.send = meanwhile
    sweep(w)
    assert sorted(letters(w)) == sorted(ASKED + REMINDED + LEAD)


def test_letters_whose_announcement_was_lost_are_announced_by_the_next_sweep():
    w, _ = asking()
    w.clock.sleep(9 * HOUR)
    mend(w.steps, w.tenant, w.run, UNWIND, w.bus)  # and no stream hears of it
    assert sweep(w) == [("letters_unsent", "announced")]
    assert letters(w) == ASKED + LEAD
    assert sweep(w) == []


def test_a_process_that_dies_between_letters_leaves_the_rest_to_who_comes_later():
    w, _ = asking()
    w.clock.sleep(5 * HOUR)
    send = w.mail.send

    def dies(message):
        if message.to == FATIMA:
            raise KeyboardInterrupt
        send(message)

    w.mail.send = dies
    with pytest.raises(KeyboardInterrupt):
        sweep(w)
    w.mail.send = send
    assert sweep(w) == [], "it may be alive"
    w.clock.sleep((CLAIM + PATIENCE) / 1000)
    assert sweep(w) == [("letters_unsent", "announced")]
    assert letters(w) == ASKED + REMINDED


def test_mail_that_is_down_is_tried_again_and_an_address_that_is_refused_is_not():
    w, _ = asking()
    w.clock.sleep(5 * HOUR)
    w.mail.failure = TransientFailure("down")
    with pytest.raises(TransientFailure):
        sweep(w)
    assert sweep(w) == []
    w.clock.sleep(PATIENCE / 1000)
    w.mail.failure = PermanentFailure("no such address")
    with pytest.raises(TransientFailure):
        sweep(w)
    w.mail.failure = None
    w.clock.sleep(PATIENCE / 1000)
    assert sweep(w) == []
    assert letters(w) == ASKED
    assert len(told(w, "gate_mail_failed")) == 4


def test_mail_that_is_down_from_the_opening_on_reaches_everybody_of_every_tier_in_the_end():
    w, _ = asking()
    gate = w.records.gate("g")
    w.journal.transact(w.records, lambda seen: Change(None, (replace(seen.gate("g"), mailed=()),)))
    w.mail.messages.clear()
    w.clock.sleep(9 * HOUR)
    mend(w.steps, w.tenant, w.run, UNWIND, w.bus)
    w.mail.failure = TransientFailure("down")
    with pytest.raises(TransientFailure):
        mail_approvers(w.gates, w.journal, w.records.gate("g"))
    w.mail.failure = None
    mail_approvers(w.gates, w.journal, w.records.gate("g"))
    assert letters(w) == ASKED
    assert sweep(w) == [("letters_unsent", "announced")]
    assert letters(w) == ASKED + LEAD
    assert w.records.gate("g").expires == gate.expires


def test_who_is_no_approver_any_more_gets_no_letter_and_keeps_nobody_waiting():
    w, _ = asking()
    object.__setattr__(w.gates, "approvers", {"finance": FINANCE[:1], "finance_lead": ()})
    passes(w, 5)
    passes(w, 4)
    assert letters(w) == [*ASKED, (FATIMA, "reminder")]
    assert passes(w, 1) == []


def test_nothing_is_reminded_or_escalated_once_the_run_ends_or_the_gate_has_expired():
    w, _ = asking()
    w.clock.sleep(9 * HOUR)
    request(w.steps, w.journal, "cancelled", "by ops", UNWIND)
    assert look(w.gates, w.journal, "g").tier == 1
    w, _ = asking()
    assert passes(w, 25) == []
    assert letters(w) == ASKED


def test_one_of_several_who_could_not_be_written_to_at_the_opening_is_later(monkeypatch):
    w, _ = asking(remind_after=None, escalate=())
    w.journal.transact(w.records, lambda seen: Change(None, (replace(seen.gate("g"), mailed=()),)))
    w.mail.messages.clear()
    send = w.mail.send

    def busy(message):
        if message.to == BEN:
            raise TransientFailure("his mailbox is busy")
        send(message)

    monkeypatch.setattr(w.mail, "send", busy)
    mail_approvers(w.gates, w.journal, w.records.gate("g"))
    assert (letters(w), w.records.gate("g").to_ask) == ([(FATIMA, "asked")], (BEN,))
    assert sweep(w) == [], "not at once"
    monkeypatch.setattr(w.mail, "send", send)
    w.clock.sleep(PATIENCE / 1000)
    assert sweep(w) == [("letters_unsent", "announced")]
    assert sorted(letters(w)) == ASKED
