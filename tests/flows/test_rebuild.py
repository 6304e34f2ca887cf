"""Records recomputed from the log. That they agree after every run is checked everywhere, by invariants.py."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
from bodies import each, loop
from bodies import tool as step
from invariants import check
from machine import UNWIND
from test_doubt import given_up
from test_other_runs import failing, gated, task, tool, world
from town import Town, task_in

from shared.errors import Conflict, PermanentFailure, TransientFailure
from shared.ids import sha256
from shared.ledger.records import Amount
from shared.manifest import Retry, StepPlan
from shared.ports import Key
from shared.runtime.ending import request
from shared.runtime.fold import fold
from shared.runtime.gates import Word, decide_gate
from shared.runtime.journal import Change, Note
from shared.runtime.mending import mend
from shared.runtime.parking import Order, resume_step
from shared.runtime.rebuild import compare, rebuild
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.runs import StartRequest, start_run
from shared.testing import FrozenClock
from shared.values import Value


def finished():
    w = world(tool("a"), tool("b", "a"))
    w.start({})
    mend(w.steps, w.tenant, w.run, "machine:unwind")  # which also brings the list up to date
    return w


class Ticking(FrozenClock):
    """A clock that never says the same twice."""

    def now(self):
        self.time += 1
        return self.time


@pytest.mark.parametrize("ending", ["completed", "cancelled"])
def test_the_log_and_the_records_say_the_same_end_though_the_clock_goes_on(ending):
    w = world(tool("a"), clock=Ticking())
    if ending == "completed":
        w.start({})
    else:
        w.run, _ = start_run(w.steps, w.steps.definitions.published("w"), StartRequest("acme", "a", "api", {}))
        request(w.steps, w.journal, "cancelled", "for a test", UNWIND)
        w.unwind()
    assert w.head.ended == ending
    assert not [one for one in rebuild(w.journal).differences if one.record != "RUN"]


def spoil(w, *records):
    w.journal.transact(w.records, lambda _: Change(None, records))


def told(found):
    return {(one.record, one.field): (one.known, one.told) for one in found.differences}


def test_records_that_agree_with_the_log_are_left_alone():
    w = finished()
    before = dict(w.store.items)
    assert rebuild(w.journal, repair=True).differences == ()
    assert w.store.items == before


def test_what_differs_is_told_and_only_repaired_on_demand():
    w = finished()
    good = w.records
    spoil(
        w,
        replace(good.head, left_usd=1, open=3, ended="failed"),
        replace(good.step("a"), spent=Amount(usd=5, steps=4), status="failed", settled=False),
    )
    differences = told(rebuild(w.journal))
    assert differences["HEAD", "left_usd"] == (1, good.head.left_usd)
    assert differences["HEAD", "open"] == (3, 0)
    assert differences["HEAD", "ended"] == ("failed", "completed")
    assert differences["STEP#a", "spent"] == ({"usd": 5, "tokens": 0, "steps": 4}, {"usd": 0, "tokens": 0, "steps": 1})
    assert differences["STEP#a", "status"] == ("failed", "completed")
    assert told(rebuild(w.journal, repair=True)) == differences
    assert rebuild(w.journal).differences == ()
    assert replace(w.head, rev=good.head.rev) == good.head
    check(w)


def test_a_list_that_says_something_else_is_brought_back():
    w = finished()
    spoil(w, replace(w.records.run, state="paused", tenant_state="TENANT#acme#STATE#paused"))
    assert told(rebuild(w.journal, repair=True))["RUN", "state"] == ("paused", "completed")
    assert w.records.run.tenant_state == "TENANT#acme#STATE#completed"


def test_a_record_that_is_gone_is_told_and_not_invented():
    w = finished()
    del w.store.items[Key(w.journal.pk, "STEP#b")]
    found = told(rebuild(w.journal, repair=True))
    assert found["STEP#b", "record"] == (None, "completed")
    assert w.records.step("b") is None


def test_a_run_that_moves_meanwhile_is_not_repaired():
    w = gated()
    w.start({})
    spoil(w, replace(w.head, waiting=7))
    moved = []

    def move(writes):
        if not moved:
            moved.append(1)
            w.journal.transact(w.journal.read([]), lambda seen: Change(None, (seen.head,), (Note("gate_mailed", "g"),)))

    w.store.before_commit = move
    with pytest.raises(Conflict, match="Repeat this when it rests"):
        rebuild(w.journal, repair=True)
    assert w.head.waiting == 7
    w.store.before_commit = lambda _: None
    rebuild(w.journal, repair=True)
    check(w)


def test_a_call_that_was_given_up_is_rebuilt_as_what_it_is():
    w, _ = given_up("reversible")
    w.unwind()
    good = w.records.step("a")
    spoil(w, replace(good, status="completed", settled=True))
    rebuild(w.journal, repair=True)
    again = w.records.step("a")
    assert (again.status, again.settled) == ("unknown", True)
    check(w)


# --- what a step came to, its call, gates, the epoch ------------------------------------------------------------------


def chosen():
    """A run with a router, a step that was tried twice, and one that failed under ``continue``."""
    failures = iter([TransientFailure("no"), None])

    def do(arguments, _):
        if arguments["step"] == "c" or (arguments["step"] == "a" and next(failures)):
            raise TransientFailure("no")
        return arguments["step"]

    routes = [{"to": "a", "description": "agree"}, {"to": "b", "description": "disagree"}]
    spec = {"strategy": "llm", "model": ["claude-haiku-4-5"], "prompt": "?", "routes": routes, "default": "b"}
    router = StepPlan("r", "router", (), spec=spec)
    last = tool("c", on_error="continue", retry=Retry(0))
    w = world(router, tool("a", "r", retry=Retry(1)), tool("b", "r"), last, do=do)
    w.models._answer = lambda _: "a"
    assert w.start({}).status == "SUCCEEDED"
    check(w)
    return w


@pytest.mark.parametrize(
    ("path", "field", "known", "right"),
    [
        ("r", "route", "b", "a"),
        ("r", "by", "person", "step"),
        ("a", "retries", 0, 1),
        ("a", "retries", 2, 1),
        ("a", "settled", False, True),
        ("c", "status", "running", "failed"),
        ("c", "settled", False, True),
        ("b", "status", "ready", "skipped"),
    ],
)
def test_where_a_step_stands_and_what_it_came_to_follow_from_the_log(path, field, known, right):
    w = chosen()
    good = w.records.step(path)
    spoil(w, replace(good, **{field: known}))
    assert told(rebuild(w.journal))[f"STEP#{path}", field] == (known, right)
    rebuild(w.journal, repair=True)
    assert replace(w.records.step(path), rev=good.rev) == good
    check(w)


@pytest.mark.parametrize("output", [None, Value("0" * 64, 2, text="{}"), "tampered"])
def test_an_output_that_is_gone_or_was_replaced_is_told_and_not_repaired(output):
    w = finished()
    good = w.records.step("a").output
    fake = dataclasses.replace(good, text="{}") if output == "tampered" else output
    spoil(w, replace(w.records.step("a"), output=fake))
    found = rebuild(w.journal, repair=True)
    assert told(found)["STEP#a", "output"] == (fake and sha256(b"{}"), good.digest)
    assert [one.field for one in found.differences if one.lost] == ["output"]
    assert told(rebuild(w.journal)) == told(found)


@pytest.mark.parametrize(("field", "known"), [("key", "f" * 64), ("dispatch", 2)])
def test_a_calls_key_and_dispatch_are_those_with_which_it_was_opened(field, known):
    w = finished()
    good = w.records.step("a")
    spoil(w, replace(good, call=dataclasses.replace(good.call, **{field: known})))
    ((record, name), (is_, right)) = next(iter(told(rebuild(w.journal, repair=True)).items()))
    assert (record, name, is_[field], right[field]) == ("STEP#a", "call", known, getattr(good.call, field))
    assert w.records.step("a").call == good.call
    spoil(w, replace(w.records.step("a"), call=None))
    assert told(rebuild(w.journal))["STEP#a", "call"][1] == {"key": good.call.key, "dispatch": 1}


@pytest.mark.parametrize("word", ["approved", "rejected"])
def test_a_gate_is_what_was_decided_by_whom_about_what(word):
    w = gated()
    run = w.start({})
    decide_gate(w.steps, w.journal, "g", Word(word, "fatima@example.test"))
    run.go()
    check(w)
    good, other = w.records.gate("g"), {"approved": "rejected", "rejected": "approved"}[word]
    spoil(w, replace(good, status=other, by="mallory@example.test", digest="0" * 64))
    found = told(rebuild(w.journal, repair=True))
    assert found["GATE#g", "status"] == (other, word)
    assert found["GATE#g", "by"] == ("mallory@example.test", "fatima@example.test")
    assert found["GATE#g", "digest"] == ("0" * 64, good.digest)
    assert replace(w.records.gate("g"), rev=good.rev) == good
    fake = Value("0" * 64, 2, text="{}")
    spoil(w, replace(w.records.gate("g"), arguments=fake))
    assert told(rebuild(w.journal))["GATE#g", "arguments"] == (sha256(b"{}"), good.digest)


def test_a_gate_that_a_cancel_has_closed_stays_closed():
    w = gated()
    w.start({})
    request(w.steps, w.journal, "cancelled", "for a test", UNWIND)
    w.unwind()
    check(w)
    spoil(w, replace(w.records.gate("g"), status="approved"))
    assert told(rebuild(w.journal))["GATE#g", "status"] == ("approved", "cancelled")


def test_a_result_that_a_person_gave_is_compared_like_any_other():
    w = world(tool("a"), tool("b", "a"), do=failing("a"))
    run = w.start({})
    resume_step(w.steps, task(w, "a"), Order("accept", "ops", result="as seen"), UNWIND)
    run.go()
    good = w.records.step("a")
    spoil(w, replace(good, by="step", output=None))
    found = told(rebuild(w.journal))
    assert found["STEP#a", "by"] == ("step", "person")
    assert found["STEP#a", "output"] == (None, good.output.digest)


def test_the_epoch_is_that_of_the_last_resumption():
    w = finished()
    good = w.head
    spoil(w, replace(good, epoch=2, began=4))
    found = told(rebuild(w.journal, repair=True))
    assert (found["HEAD", "epoch"], found["HEAD", "began"]) == ((2, 1), (4, 1))
    assert replace(w.head, rev=good.rev) == good


_NEW = {"output", "by", "key", "dispatch", "retry"}


@pytest.mark.parametrize("make", [finished, chosen])
def test_a_log_of_an_earlier_release_says_less_and_is_no_difference(make):
    w = make()
    seen, events = w.records, w.journal.events()
    before = [replace(one, data={name: of for name, of in one.data.items() if name not in _NEW}) for one in events]
    steps = fold(before).steps
    assert not any(step.call or "output" in step.result for step in steps.values())
    assert not [one for one in compare(seen, before).differences if one.record != "RUN"]


# --- a part that goes on with its whole ------------------------------------------------------------------------------


def reborn(kind):
    """Return a town, and its part that had completed with a failure: it goes on in a second epoch, and has paused."""
    ill, number = {"a13"}, "loop.iteration" if kind == "loop" else "item"

    def do(given, _):
        if given["say"] in ill:
            raise PermanentFailure("no")
        return given["say"]

    first, second = (f"${{ '{name}' + string({number}) }}" for name in "ab")
    body = (step("a", say=first, on_error="fail"), step("b", "a", say=second, on_error="pause"))
    if kind == "loop":
        whole = loop(*body, until="loop.iteration >= 20", times=60, on_error="fail")
    else:
        whole = each(*body, over=list(range(20)), on_failure="fail_fast", on_error="fail")
    town = Town(whole, do=do).start()
    assert town.w.head.ended == "failed"
    ill.symmetric_difference_update({"a13", "b13"})
    resume_run(town.w.steps, town.w.journal, Resume("ops"))
    below = next(one for one in town.go().worlds() if one.head.paused)
    assert (below.records.step(whole.id).status, below.head.epoch) == ("running", 2)
    ill.clear()
    return town, below, whole.id


@pytest.mark.parametrize("kind", ["map", "loop"])
def test_a_part_that_has_entered_its_map_or_loop_again_is_left_alone_and_goes_on(kind):
    town, below, whole = reborn(kind)
    assert not [one for one in rebuild(below.journal, repair=True).differences if one.record != "RUN"]
    job = task_in(below, f"{whole}[13]/")
    resume_step(below.steps, replace(job, step="b", epoch=2), Order("retry", "ops"), UNWIND)
    assert town.go().w.head.ended == "completed"
    assert below.records.step(f"{whole}[13]/b").status == "completed"
    town.check()


@pytest.mark.parametrize("kind", ["map", "loop"])
def test_that_it_is_entered_again_is_told_by_the_log_unless_an_earlier_release_has_written_it(kind):
    _, below, whole = reborn(kind)
    good, events = below.records, below.journal.events()
    over = replace(good.step(whole), status="completed", settled=True)
    earlier = [replace(one, data={name: of for name, of in one.data.items() if name != "entered"}) for one in events]
    for known in (good, good.with_({over.sk: over})):
        assert not [one for one in compare(known, earlier).differences if one.record.startswith("STEP")]
    spoil(below, over)
    found = told(rebuild(below.journal, repair=True))
    assert found[f"STEP#{whole}", "status"] == ("completed", "running")
    assert replace(below.records.step(whole), rev=good.step(whole).rev) == good.step(whole)


@pytest.mark.parametrize("rule", ["reject", "fail", "pause", "approve"])
def test_a_gate_that_expires_agrees_with_its_log(rule):
    spec = {"approves": None, "approvers": ["finance"], "on_expiry": rule}
    w = world(StepPlan("g", "human_gate", (), timeout=60.0, on_error="continue", spec=spec), tool("a", "g"))
    run = w.start({})
    w.clock.sleep(10**6)
    run.expire()
    if w.head.unwinding:
        w.unwind()
    check(w)
