"""The lines in which a run is told: every kind of event, maps by item, loops by iteration."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from rich.text import Text

from scripts.commands.story import _TOLD, LEFT_OUT, Story
from scripts.commands.tally import Tally, bodies_of

SHARED = Path(__file__).parents[2] / "shared"
DEFINITION = """workflow: w
steps:
  each:
    type: map
    steps:
      read: {type: agent, fallback: spare}
      spare: {type: agent}
      yes: {type: loop, steps: {try: {type: tool}}}
  again: {type: loop, steps: {inner: {type: map, steps: {a: {type: tool}}}}}
"""
BY_STATUS = {
    "step_": ("completed", "failed", "timed_out"),  # notes.closing: how an attempt can close
    "run_": ("completed", "failed", "cancelled", "timed_out", "stopped"),
}


def story():
    return Story(tally=Tally(lambda: bodies_of(DEFINITION)))


def event(kind, path=None, at=0, **data):
    moment = f"2026-01-01T00:00:{at:06.3f}+00:00"
    return {"seq": 1, "at": moment, "type": kind, "path": path, "attempt": 1, "data": data}


def told(story, *given):
    return [Text.from_markup(line).plain if (line := story.line(each)) else None for each in given]


def kinds_in_the_source():
    """Every type of event that the runtime writes."""
    for file in sorted(SHARED.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            given = {keyword.arg: keyword.value for keyword in node.keywords} if name in {"Note", "Event"} else {}
            kind = given.get("type") or (node.args[0] if name == "Note" and node.args else None)
            if isinstance(kind, ast.Constant):
                yield kind.value
            elif isinstance(kind, ast.JoinedStr):
                yield from (f"{kind.values[0].value}{status}" for status in BY_STATUS[kind.values[0].value])


def test_every_event_that_the_runtime_writes_is_told_or_left_out_for_a_reason():
    found = set(kinds_in_the_source())
    assert {"run_started", "map_entered", "gate_opened", "run_cancelled", "step_completed"} <= found
    assert found == set(_TOLD) | LEFT_OUT
    assert not set(_TOLD) & LEFT_OUT


def test_reminders_and_tiers_say_who_may_decide_now():
    s, both = story(), ["finance", "finance_lead"]
    lines = told(
        s,
        event("gate_reminded", "review", tier=1, roles=["finance"], to=["a@example.com"]),
        event("gate_mailed", "review", to="a@example.com", why="reminder"),
        event("gate_escalated", "review", tier=2, added=["finance_lead"], roles=both, to=["l@example.com"]),
    )
    for line, expected in zip(
        lines,
        (
            "reminded: finance may decide",
            "mail to a@example.com (reminder)",
            "escalated to finance_lead (tier 2): finance, finance_lead may decide now",
        ),
        strict=True,
    ):
        assert expected in line


def test_a_map_is_told_by_its_items_with_what_they_used():
    s = story()
    used = {"usd": "0.001", "tokens": 100, "steps": 1}
    lines = told(
        s,
        event("map_entered", "each", items=3),
        event("step_opened", "each[0]/read"),
        event("step_opened", "each[1]/read"),
        event("step_completed", "each[0]/read", 1, used=used, duration_ms=1000),
        event("loop_iteration", "each[0]/yes", 1, iteration=1),
        event("step_completed", "each[0]/yes[1]/try", 2, used=used, duration_ms=500),
        event("step_completed", "each[0]/yes", 2.5, used={}, duration_ms=0),
    )
    assert lines[0].split() == ["▸", "each", "3", "items"]
    assert lines[1:-1] == [None] * 5
    assert lines[-1].split() == ["✓", "each[0]", "2.50", "s", "200", "tokens", "$", "0.002", "1/3", "items"]
    assert s.under_way() == "each 1/3 items"


def test_a_failed_item_counts_and_a_fallback_settles_its_step():
    s = story()
    lines = told(
        s,
        event("map_entered", "each", items=2),
        event("step_failed", "each[0]/read", error={"class": "permanent", "message": "no"}, duration_ms=5),
        event("step_gave_up", "each[0]/read", **{"class": "permanent", "message": "no", "on_error": "fail"}),
        event("item_failed", "each[0]", **{"class": "permanent", "message": "no"}),
        event("step_completed", "each[1]/read/fallback"),
        event("step_skipped", "each[1]/yes", reason="no"),
    )
    assert "permanent: no" in lines[1]
    assert lines[2] is None
    assert lines[3].split() == ["✗", "each[0]", "permanent:", "no", "1/2", "items"]
    assert lines[-1].endswith("2/2 items")


def test_a_step_that_fails_while_the_rest_goes_on_settles():
    s = story()
    lines = told(
        s,
        event("map_entered", "each", items=1),
        event("step_skipped", "each[0]/read"),
        event("step_gave_up", "each[0]/yes", **{"class": "permanent", "message": "no", "on_error": "continue"}),
    )
    assert lines[1] is None
    assert "goes on without it" in lines[2]
    assert lines[2].endswith("1/1 items")


def test_a_map_in_parts_is_told_by_its_parts():
    s = story()
    lines = told(
        s,
        event("map_entered", "each", items=120, parts=4),
        event("child_started", "each[0-29]", child="RUN", part="each[0-29]"),
        event("step_completed", "each[0-29]", 3, used={}, duration_ms=3000),
    )
    assert lines[1].split() == ["▸", "each[0-29]", "run", "RUN"]
    assert lines[2].split() == ["✓", "each[0-29]", "3.00", "s"]
    assert s.under_way() == "each 30/120 items"


def test_a_map_whose_definition_is_not_known_is_told_step_by_step():
    lines = told(Story(), event("map_entered", "each", items=1), event("step_completed", "each[0]/read"))
    assert lines[1].split() == ["✓", "each[0]/read"]


def test_a_loop_is_told_by_its_iterations_and_its_steps():
    s = story()
    lines = told(
        s,
        event("loop_iteration", "again", iteration=2),
        event("map_entered", "again[2]/inner", items=1),
        event("step_completed", "again[2]/inner[0]/a", used={}, duration_ms=1),
    )
    assert lines[0].split() == ["▸", "again", "iteration", "2"]
    assert lines[2].endswith("1/1 items")
    assert s.under_way() == "again[2]/inner 1/1 items · again iteration 2"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (event("child_started", "vendor", child="RUN", workflow="vendor_check", version=1), "run RUN of vendor_check"),
        (event("wait_started", "day", due=1_767_225_600_000), "until 2026-01-01 00:00:00 UTC"),
        (event("event_awaited", "paid"), "runs send"),
        (event("event_received", name="payment", id="1"), "payment"),
        (event("run_unwinding", towards="failed", reason="step a: [b]no"), "the run ends as failed: step a: [b]no"),
    ],
    ids=lambda given: given["type"] if isinstance(given, dict) else "",
)
def test_what_else_happens_is_told(given, shown):
    assert shown in told(Story(), given)[0]


def test_what_is_under_way_stays_short():
    s = Story()
    told(s, *(event("step_opened", f"s{number}") for number in range(9)))
    assert s.under_way() == "s0, s1, s2, s3, 5 more"
    told(s, *(event("step_paused", f"s{number}") for number in range(9)))
    assert s.under_way() == ""


def test_the_column_of_paths_grows_with_them():
    s = Story()
    first, second, third = told(
        s, *(event("step_completed", path, duration_ms=1000) for path in ("a", "revise[10]/draft_it", "b"))
    )
    assert second.index("1.00 s") == third.index("1.00 s") > first.index("1.00 s")


def test_an_agent_is_told_by_its_turns_and_calls():
    s = story()
    used = {"usd": "0.001", "tokens": 100, "steps": 1}
    lines = told(
        s,
        event("agent_entered", "desk", tools=["find", "book"]),
        event("step_opened", "desk/turn[1]"),
        event("step_completed", "desk/turn[1]", 1, used=used, duration_ms=1000),
        event("call_proposed", "desk/turn[1]/call[0]", 1, tool="find"),
        event("call_refused", "desk/turn[1]/call[1]", 1, tool="x\x1b[31m", reason="there is no such tool"),
        event("step_opened", "desk/turn[1]/call[0]", 1),
    )
    assert lines[0].split() == ["▸", "desk", "may", "call", "find,", "book"]
    assert lines[2].split()[:2] == ["✓", "desk/turn[1]"]
    assert lines[3].split() == ["▸", "desk/turn[1]/call[0]", "calls", "find"]
    assert lines[4].split()[2:] == ["x", "[31m", "is", "not", "called:", "there", "is", "no", "such", "tool"]
    assert s.under_way() == "desk/turn[1]/call[0]"
    assert told(s, event("step_completed", "desk", 3, used={}, duration_ms=0))[0].split()[2:4] == ["3.00", "s"]


def test_in_a_map_an_agent_is_told_by_its_item():
    s = story()
    used = {"usd": "0.001", "tokens": 100, "steps": 1}
    lines = told(
        s,
        event("map_entered", "each", items=1),
        event("agent_entered", "each[0]/read", tools=["find"]),
        event("step_completed", "each[0]/read/turn[1]", 1, used=used),
        event("call_proposed", "each[0]/read/turn[1]/call[0]", 1, tool="find"),
        event("step_completed", "each[0]/read", 2, used={}),
        event("step_completed", "each[0]/yes", 2, used={}),
    )
    assert lines[1:5] == [None] * 4
    assert lines[5].split()[-2:] == ["1/1", "items"]
    assert "100 tokens" in lines[5]
