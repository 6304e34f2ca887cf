"""Gates in-process: changes and several people, from other shells and at the terminal."""

from __future__ import annotations

import json

import pytest
from shell import Shell
from terminal import Terminal

TOOL = '''from shared.tools.registry import tool


@tool()
def pay(amount: int, to: str) -> dict[str, str]:
    """Pay."""
    return {"paid": f"{amount} to {to}"}
'''
FILE = """workflow: paying
input: {type: object, required: [amount], properties: {amount: {type: integer}}}
steps:
  check:
    type: human_gate
    approves: pay
    approvers: [finance]
    subject: Pay
    quorum: QUORUM
    edit: {type: object, properties: {amount: {type: integer, maximum: 100}, to: {type: string}}}
  pay: {type: tool, tool: pay, needs: [check], risk: irreversible, with: {amount: "${ input.amount }", to: Contoso}}
"""


@pytest.fixture
def place(tmp_path):
    def make(quorum=1):
        shell = Shell(tmp_path)
        return shell, shell.write("paying.yaml", FILE.replace("QUORUM", str(quorum)), TOOL)

    return make


def paid(shell, run):
    return next(step for step in shell.run(run)["steps"] if step["path"] == "pay")["output"]


def waiting(shell, file):
    ended = shell("run", file, "--input", json.dumps({"amount": 50}), "--until-human")[-1]
    assert ended["state"] == "waiting_for_human"
    return ended["run"]


def test_changes_from_another_shell_are_what_runs(place):
    shell, file = place()
    run = waiting(shell, file)
    error = shell("approvals", "edit", run, "--set", "amount=500", code=1)["error"]
    assert (error["code"], "changes.amount" in error["message"]) == ("invalid_changes", True)
    decided = shell("approvals", "edit", run, "--set", "amount=7", "--as", "ann")
    assert (decided["status"], decided["changes"], decided["arguments"]["amount"]) == ("approved", {"amount": 7}, 7)
    assert shell("runs", "resume", run)[-1]["state"] == "completed"
    assert paid(shell, run) == {"paid": "7 to Contoso"}


def test_two_people_decide_from_their_shells(place):
    shell, file = place(2)
    run = waiting(shell, file)
    for _ in range(2):
        assert shell("approvals", "approve", run, "--as", "ann")["status"] == "open"
    assert "1 of 2" in shell.words("approvals", "list", "--in-process")
    assert "approved, 1 of 2" in shell.words("approvals", "edit", run, "--set", "amount=7", "--as", "ben")
    assert shell("approvals", "approve", run, "--as", "ann")["status"] == "approved"
    assert shell("runs", "resume", run)[-1]["state"] == "completed"
    assert paid(shell, run) == {"paid": "7 to Contoso"}


def test_two_people_decide_at_the_terminal_one_after_the_other(place):
    shell, file = place(2)
    t = Terminal(shell, "run", file, "--input", json.dumps({"amount": 50}))
    t.answer("Decide (approve / edit / reject)", "edit")
    t.answer("amount [50]", "7")
    t.answer("to [Contoso]", "")
    t.sign("ann")
    t.expect("approved by ann@localhost with changes of amount, 1 of 2")
    t.answer("Decide (approve / edit / reject)", "approve")
    t.sign("ben")
    t.expect("completed")
    assert t.end() == 0
    (run,) = shell("runs", "list", "--in-process")["runs"]
    assert paid(shell, run["id"]) == {"paid": "7 to Contoso"}
