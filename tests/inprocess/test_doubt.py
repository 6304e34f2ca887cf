"""A call that may have happened, on the laptop: what the command line says of it, and a person's word."""

from __future__ import annotations

import json
import re

import pytest
from shell import Shell

TOOLS = """from shared.errors import UnknownOutcome
from shared.tools.registry import tool


@tool()
def pay() -> dict[str, int]:
    'Pay.'
    raise UnknownOutcome("the line went dead")


@tool()
def unpay() -> dict[str, int]:
    'Give it back.'
    return {}
"""
FILE = """workflow: pays
steps:
  ok: {type: human_gate, approvers: [finance], approves: pay, subject: Pay}
  pay: {type: tool, needs: [ok], tool: pay, with: {}, risk: irreversible}
"""
UNDOABLE = """workflow: pays
steps:
  pay: {type: tool, tool: pay, with: {}, risk: reversible, compensate: {tool: unpay, with: {}}, on_error: continue}
"""


@pytest.fixture
def doubtful(tmp_path):
    def start(text):
        shell = Shell(tmp_path)
        run = shell("run", shell.write("pays.yaml", text, TOOLS), "--until-human")[-1]["run"]
        if text == FILE:
            shell("approvals", "approve", run)
            assert shell("runs", "resume", run)[-1]["state"] == "paused"
        return shell, run

    return start


def test_what_is_possible_is_said_where_a_call_is_in_doubt(doubtful):
    shell, run = doubtful(FILE)
    shown = shell.words("runs", "show", run)
    assert "paused (nobody knows whether a call took effect)" in shown
    ways = "--action accept --result JSON if it did, --action did_not_happen if not; --action skip leaves it and goes"
    assert f"look on the far side whether it happened: ./scripts/signalbox runs resume {run} {ways} on;" in shown
    assert "--action fail gives it up" in shown
    assert "--action retry" not in shown
    refused = shell("runs", "resume", run, code=1)["error"]
    assert "say accept with its result, did_not_happen, skip or fail." in refused["message"]


def test_a_call_that_is_given_up_is_said_to_be_unknown_for_good_and_its_run_has_failed(doubtful):
    shell, run = doubtful(FILE)
    assert shell("runs", "resume", run, "--action", "fail", code=1)[-1]["state"] == "failed"
    shown = re.sub(r"\s+", " ", shell.words("runs", "show", run))
    assert "failed (step pay: given up by" in shown
    assert "whether its call happened is not known" in shown
    (letter,) = shell("dead-letters", "list", "--in-process")["dead_letters"]
    assert letter["error"]["class"] == "unknown_outcome"
    assert "given up by" in shell.words("runs", "watch", run, code=1)
    again = shell("runs", "resume", run)[-1]
    assert (again["state"], shell.run(run)["reason"]) == ("paused", "unknown_outcome")
    end = shell("runs", "resume", run, "--action", "accept", "--result", json.dumps({"paid": 1}))[-1]
    assert end["state"] == "completed"


def test_a_call_in_doubt_that_can_be_undone_may_be_made_again_but_not_while_its_run_ends(doubtful):
    shell, run = doubtful(UNDOABLE)
    assert "--action retry makes it again with the same key" in shell.words("runs", "show", run)
    shell("runs", "cancel", run)
    shown = shell.words("runs", "show", run)
    assert "it ends as cancelled" in shown
    assert "the run ends as cancelled and waits for this: look on the far side" in shown
    assert "--action retry" not in shown
    assert shell("runs", "resume", run, "--action", "fail", code=1)[-1]["state"] == "cancelled"
    (step,) = shell.run(run)["steps"]
    assert (step["status"], step["actions"]) == ("unknown", [])
    assert "what it may have done is not undone" in step["reason"]
