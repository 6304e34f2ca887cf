"""Deciding at the terminal of `run FILE`: every answer, wrong ones, none at all, somebody else's before one's own."""

from __future__ import annotations

import getpass

import pytest
from shell import Shell
from terminal import CTRL_C, CTRL_D, Terminal

ME = f"{getpass.getuser()}@localhost"
GATE = """workflow: ask
steps:
  check: {type: human_gate, approvers: [finance], subject: Buy it, not_initiator: NOT, on_error: fail}
  after: {type: transform, needs: [check], set: {note: "${ steps.check.output.notes }"}}
"""
PAUSED = """workflow: ask
steps:
  sum: {type: transform, set: {half: "${ 10 / input.by }"}, on_error: pause}
"""
LIMITED = """workflow: ask
budget: {steps: 1}
steps:
  one: {type: tool, tool: work, with: {}, risk: read}
  two: {type: tool, needs: [one], tool: work, with: {}, risk: read}
"""
WORK = """from shared.tools.registry import tool


@tool()
def work() -> dict[str, int]:
    'Work.'
    return {"done": 1}
"""
PARENT = """workflow: above
steps:
  below: {type: sub_workflow, workflow: ask, with: {}}
"""


@pytest.fixture
def terminal(tmp_path):
    made = []

    def start(text, *arguments, name="ask"):
        (tmp_path / f"{name}.yaml").write_text(text)
        made.append(Terminal(Shell(tmp_path), "run", str(tmp_path / f"{name}.yaml"), *arguments))
        return made[-1]

    yield start
    for each in made:
        try:
            each.kill()
        except (ProcessLookupError, ChildProcessError):
            continue  # it has ended, as it should


def only_gate(tmp_path):
    shell = Shell(tmp_path)
    (run,) = shell("runs", "list", "--in-process")["runs"]
    return shell.run(run["id"])["gates"][0]


def test_approve_after_wrong_answers(terminal, tmp_path):
    t = terminal(GATE.replace("NOT", "false"))
    t.expect("Buy it")
    for wrong in ("", "maybe", "yes", "approve it"):
        t.answer("Decide (approve / reject)", wrong)
    t.answer("Decide (approve / reject)", "APP")
    t.answer(f"Signed by [{ME}]", "")
    t.answer("Note", "ordered [bold]in May")
    t.expect("approved by")
    t.expect("completed")
    assert t.end() == 0
    gate = only_gate(tmp_path)
    assert (gate["status"], gate["by"], gate["note"]) == ("approved", ME, "ordered [bold]in May")
    assert "Traceback" not in t.shown


def test_reject_with_a_note_and_another_name(terminal, tmp_path):
    t = terminal(GATE.replace("NOT", "false"))
    t.answer("Decide", "r")
    t.sign("ann", "too dear")
    t.expect("rejected by ann@localhost: too dear")
    assert t.end() == 1
    gate = only_gate(tmp_path)
    assert (gate["status"], gate["by"], gate["note"]) == ("rejected", "ann@localhost", "too dear")


def test_who_started_the_run_is_refused_and_asked_again(terminal):
    t = terminal(GATE.replace("NOT", "true"))
    t.answer("Decide", "a")
    t.sign()
    t.expect("Who started the run may not decide this gate.")
    t.expect("--as NAME")
    t.answer("Decide", "a")
    t.sign("ben")
    t.expect("completed")
    assert t.end() == 0


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
@pytest.mark.parametrize("question", ["Decide", "Signed by", "Note"])
def test_leaving_a_question_leaves_the_run_as_it_is(terminal, tmp_path, key, question):
    t = terminal(GATE.replace("NOT", "false"))
    for each in ("Decide", "Signed by", "Note"):
        t.expect(each)
        if each == question:
            t.press(key, "stands still. The same command goes on with it.")
            break
        t.type("a\n")
    assert t.end() == 130
    assert only_gate(tmp_path)["status"] == "open"


def test_the_same_command_asks_again(terminal):
    first = terminal(GATE.replace("NOT", "false"))
    first.expect("Decide")
    first.kill()
    t = terminal(GATE.replace("NOT", "false"))
    t.expect("goes on where it was interrupted")
    t.answer("Decide", "a")
    t.sign()
    t.expect("completed")
    assert t.end() == 0


def test_a_decision_from_another_shell_is_told_to_whoever_answers_too_late(terminal, tmp_path):
    t = terminal(GATE.replace("NOT", "false"))
    t.expect("Decide")
    Shell(tmp_path)("approvals", "approve", "latest", "--in-process", "--as", "eve")
    t.type("reject\n")
    t.sign()
    t.expect("This was already decided: approved by eve@localhost.")
    t.expect("completed")
    assert t.end() == 0


@pytest.mark.parametrize(("action", "code", "shown"), [("skip", 0, "skipped"), ("fail", 1, "failed")])
def test_a_paused_step_is_asked_about(terminal, action, code, shown):
    t = terminal(PAUSED, "--set", "by=x")
    t.expect("sum is paused")
    t.answer("How does it go on (retry / accept / skip / fail)", "retry")
    t.expect("sum is paused")
    t.answer("How does it go on (retry / accept / skip / fail)", action)
    t.expect(shown)
    assert t.end() == code


def test_a_result_can_be_given_for_a_paused_step(terminal, tmp_path):
    t = terminal(PAUSED, "--set", "by=x")
    t.answer("How does it go on", "accept")
    t.answer("Its result, as JSON", "{half: 5}")
    t.expect("That is no JSON")
    t.answer("Its result, as JSON", '{"half": 5}')
    t.expect("completed")
    assert t.end() == 0
    shell = Shell(tmp_path)
    (run,) = shell("runs", "list", "--in-process")["runs"]
    assert shell.run(run["id"])["steps"][0]["output"] == {"half": 5}


def test_a_limit_can_be_raised_where_it_stops_a_step(terminal, tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "work.py").write_text(WORK)
    t = terminal(LIMITED)
    t.answer("How does it go on (raise / retry / accept / skip / fail)", "raise")
    t.answer("By how much", "steps")
    t.expect("Give it as usd=0.50")
    t.answer("By how much", "steps=2 usd=0.10")
    t.expect("completed")
    assert t.end() == 0


def test_the_gate_of_a_sub_workflow_is_asked_about_too(terminal, tmp_path):
    (tmp_path / "ask.yaml").write_text(GATE.replace("NOT", "false"))
    t = terminal(PARENT, name="above")
    t.expect("Buy it")
    t.answer("Decide", "a")
    t.sign()
    t.expect("completed")
    assert t.end() == 0


def test_without_a_terminal_nobody_is_asked_and_another_shell_decides(tmp_path):
    (tmp_path / "ask.yaml").write_text(GATE.replace("NOT", "false"))
    shell = Shell(tmp_path)
    driver = shell.start("run", str(tmp_path / "ask.yaml"))
    while "waits for finance" not in (line := driver.stdout.readline()):
        assert line, driver.stderr.read()
    shell("approvals", "approve", "latest", "--in-process")
    rest, errors = driver.communicate(timeout=60)
    assert (driver.returncode, errors) == (0, "")
    assert "Decide" not in rest
    assert "\x1b" not in rest


def test_a_terminal_has_colours_unless_they_are_not_wanted(tmp_path):
    (tmp_path / "ask.yaml").write_text(GATE.replace("NOT", "false"))
    for wanted in (True, False):
        shell = Shell(tmp_path, **({} if wanted else {"NO_COLOR": "1"}))
        t = Terminal(shell, "run", str(tmp_path / "ask.yaml"), "--until-human", "--new")
        assert t.end() == 0
        assert ("\x1b[33m" in t.raw) == wanted
