from __future__ import annotations

import json

import pytest
from rich.text import Text

from scripts.commands import follow as following
from scripts.commands.advice import going_on
from scripts.commands.client import Api, ApiRefused, Unreachable
from scripts.commands.follow import Page, follow, pages, stream
from scripts.commands.story import Story


def event(seq, kind, path=None, at="2026-01-01T00:00:00.000Z", **data):
    return {"seq": seq, "at": at, "type": kind, "path": path, "attempt": 1, "data": data}


def told(story, *given):
    lines = [story.line(each) for each in given]
    return [Text.from_markup(line).plain if line else line for line in lines]


def test_a_step_is_told_when_it_finishes_with_time_tokens_and_money():
    used = {"usd": "0.001349", "tokens": 1949, "steps": 1}
    opened, closed = told(
        Story(),
        event(1, "step_opened", "extract"),
        event(2, "step_completed", "extract", used=used, duration_ms=1234),
    )
    assert opened is None
    assert closed.split() == ["✓", "extract", "1.23", "s", "1,949", "tokens", "$", "0.001349"]


def test_a_gate_takes_as_long_as_it_was_open():
    lines = told(
        Story(),
        event(1, "gate_opened", "review", roles=["finance"], approves="post"),
        event(2, "gate_decided", "review", decision="approved", by="ann@example.com", note="fine"),
        event(3, "step_completed", "review", at="2026-01-01T00:01:05.000Z"),
    )
    assert "waits for finance to approve post" in lines[0]
    assert "approved by ann@example.com: fine" in lines[1]
    assert "1 min 05 s" in lines[2]


def test_a_failure_says_its_class_and_message():
    (line,) = told(
        Story(), event(1, "step_failed", "post", error={"class": "permanent", "message": "no"}, duration_ms=5)
    )
    assert line.split() == ["✗", "post", "0.01", "s", "permanent:", "no"] or "permanent: no" in line


@pytest.mark.parametrize(
    ("state", "kind", "shown"),
    [("waiting_for_human", "gate_opened", "approvals show"), ("paused", "step_paused", "resume")],
)
def test_whoever_watches_is_told_what_a_person_can_do(monkeypatch, capsys, state, kind, shown):
    said = [
        Page([event(1, kind, "review")], state, 1),
        Page([event(2, "gate_mailed", "review")], state, 2),
        Page([], "completed", 2),
    ]
    monkeypatch.setattr(following, "pages", lambda *_: iter(said))
    assert follow(Api("http://127.0.0.1:1", "t"), Story("RUN")) == "completed"
    assert capsys.readouterr().out.count(f"signalbox {'runs ' if shown == 'resume' else ''}{shown} RUN") == 1


@pytest.mark.parametrize(
    ("kind", "reason", "shown"),
    [
        ("step_paused", "budget_exceeded", "runs resume RUN --raise-usd"),
        ("step_paused", "step_error", "runs resume RUN --action retry, skip, accept"),
        ("step_paused", "provider_degraded", "when the provider is back"),
        ("step_paused", "attestation_mismatch", "restore it"),
        ("step_unknown", None, "--action did_not_happen if not"),
    ],
)
def test_what_a_person_can_do_depends_on_why_the_run_is_paused(monkeypatch, capsys, kind, reason, shown):
    said = [Page([event(1, kind, "post", **({"reason": reason} if reason else {}))], "paused", 1)]
    monkeypatch.setattr(following, "pages", lambda *_: iter([*said, Page([], "completed", 1)]))
    follow(Api("http://127.0.0.1:1", "t"), Story("RUN"))
    assert shown in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("dimension", "needed", "option"),
    [
        ("usd", "0.012", "--raise-usd 0.50"),
        ("usd", "1.20", "--raise-usd 1.50"),
        ("tokens", 12_001, "--raise-tokens 20000"),
        ("steps", 1, "--raise-steps 10"),
        ("active_time", 600_001, "--raise-active-time 20m"),
        ("steps", None, "--raise-steps 10"),
    ],
)
def test_the_limit_that_is_short_is_the_one_to_raise_by_enough(dimension, needed, option):
    short = {"level": "run", "dimension": dimension} | ({"needed": needed} if needed else {})
    told = going_on("RUN", "budget_exceeded", "signalbox", [{"path": "a", "short": short}])
    assert f"signalbox runs resume RUN {option}, or --action fail" in told


def test_the_limit_that_is_short_is_told_by_the_log_where_nobody_can_be_asked(monkeypatch, capsys):
    data = {"reason": "budget_exceeded", "level": "run", "dimension": "steps"}
    said = [Page([event(1, "step_paused", "post", **data)], "paused", 1), Page([], "completed", 1)]
    monkeypatch.setattr(following, "pages", lambda *_: iter(said))
    follow(Api("http://127.0.0.1:1", "t"), Story("RUN"))
    assert "runs resume RUN --raise-steps 10" in " ".join(capsys.readouterr().out.split())


def test_text_from_outside_is_harmless():
    line = Story().line(event(1, "gate_decided", "r", decision="rejected", by="x", note="[red]a\x1b[2Jb\n[/]c"))
    shown = Text.from_markup(line).plain
    assert "\x1b" not in shown
    assert "\n" not in shown
    assert "[red]a" in shown


def test_the_story_knows_what_is_under_way():
    story = Story()
    told(story, event(1, "step_opened", "a"), event(2, "step_opened", "b"), event(3, "step_completed", "a"))
    assert story.open == ["b"]


def test_unknown_events_are_passed_over():
    assert told(Story(), event(1, "something_new", "a"), event(2, "run_completed")) == [None, None]


def test_programs_and_people_follow_by_the_same_loop(monkeypatch, capsys):
    said = [Page([event(1, "run_started")], "running", 1), Page([], "running", 1), Page([], "completed", 1)]
    monkeypatch.setattr(following, "pages", lambda *_: iter([*said, None]))  # nothing is asked for after the end
    assert stream(Api("http://127.0.0.1:1", "t"), Story("RUN")) == "completed"
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [event(1, "run_started"), {"run": "RUN", "state": "completed", "seq": 1}]


@pytest.mark.parametrize(
    ("state", "ending", "until_human", "ends"),
    [
        ("completed", False, False, True),
        ("stopped", False, True, True),
        ("running", False, True, False),
        ("paused", False, False, False),
        ("paused", False, True, True),
        ("paused", True, True, True),
        ("waiting_for_human", False, False, False),
        ("waiting_for_human", False, True, True),
        ("waiting_for_human", True, True, False),  # it is being cancelled: its gate closes by itself
    ],
)
def test_when_there_is_nothing_left_to_wait_for(monkeypatch, state, ending, until_human, ends):
    begun = [event(1, "run_unwinding", towards="cancelled", reason="mistake")] if ending else []
    said = [Page(begun, state, 1), Page([], state, 1), Page([], "failed", 1)]
    monkeypatch.setattr(following, "pages", lambda *_: iter(said))
    found = follow(Api("http://127.0.0.1:1", "t"), Story("RUN"), until_human=until_human)
    assert found == (state if ends else "failed")


class Log:
    """An API whose log grows, with faults in between."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def get(self, path, *, after, limit):
        self.asked.append(after)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"events": answer, "next": answer[-1]["seq"] if answer else after, "state": "running"}


def test_following_goes_on_without_gap_after_an_outage():
    log = Log([event(1, "run_started")], Unreachable("http://127.0.0.1:1", "gone"), [event(2, "step_opened", "a")])
    following = pages(log, "R")
    seen = [each["seq"] for page in (next(following), next(following)) for each in page.events]
    assert seen == [1, 2]
    assert log.asked == [0, 1, 1]


def test_a_request_that_is_itself_wrong_is_not_repeated():
    log = Log(ApiRefused(404, "There is no such run."))
    with pytest.raises(ApiRefused, match="no such run"):
        next(pages(log, "R"))
    assert len(log.asked) == 1
