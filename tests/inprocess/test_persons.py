"""Who decides in-process: the system's user, or who is named; never who started a run that forbids it."""

from __future__ import annotations

import getpass

import pytest
from shell import Shell
from test_prompt import LIMITED, WORK

ME = f"{getpass.getuser()}@localhost"
FILE = """workflow: four_eyes
steps:
  check: {type: human_gate, approvers: [finance], subject: Decide, not_initiator: NOT}
  after: {type: transform, needs: [check], set: {note: "${ steps.check.output.notes }"}}
"""
GOES_ON = """workflow: goes_on
steps:
  alone: {type: tool, tool: bad, with: {}, risk: read, on_error: continue}
  each:
    type: map
    over: "${ [1] }"
    on_failure: collect_all
    steps:
      bad: {type: tool, tool: bad, with: {}, risk: read, on_error: fail}
"""
BAD = """from shared.errors import PermanentFailure
from shared.tools.registry import tool


@tool()
def bad() -> dict[str, int]:
    'Fail.'
    raise PermanentFailure("no")
"""


@pytest.fixture
def waiting(tmp_path):
    def start(*, forbidden):
        file = tmp_path / "four_eyes.yaml"
        file.write_text(FILE.replace("NOT", str(forbidden).lower()))
        shell = Shell(tmp_path)
        ended = shell("run", str(file), "--until-human")[-1]
        assert ended["state"] == "waiting_for_human"
        return shell, ended["run"], shell.run(ended["run"])["gates"][0]["id"]

    return start


def test_who_started_a_run_is_refused_and_told_who_may_decide_it(waiting):
    shell, run, gate = waiting(forbidden=True)
    for name in ((), ("--as", getpass.getuser()), ("--as", ME)):
        error = shell("approvals", "approve", run, *name, code=1)["error"]
        assert error["code"] == "initiator"
        assert f"approvals approve {gate} --as NAME" in error["remedy"]
    assert shell("approvals", "approve", gate, "--as", "ann", "--note", "fine")["by"] == "ann@localhost"
    assert shell("runs", "resume", run)[-1]["state"] == "completed"


def test_the_systems_user_decides_unless_somebody_is_named(waiting):
    shell, run, _ = waiting(forbidden=False)
    assert f"runs resume {run}" in shell.words("approvals", "reject", run)
    assert shell.run(run)["gates"][0]["by"] == ME
    error = shell("runs", "watch", run, code=1)[-1]["error"]  # nobody drives it: there is nothing to wait for
    assert (error["code"], f"runs resume {run}" in error["remedy"]) == ("stands_still", True)


def test_a_run_is_shown_with_its_limits_and_where_asked_for_with_what_its_steps_returned(waiting):
    shell, run, gate = waiting(forbidden=False)
    shell("approvals", "approve", gate, "--note", "fine")
    shell("runs", "resume", run)
    shown = shell.words("runs", "show", run)
    assert "$ 0.00, 0 tokens, 0 steps\n" in shown
    assert "output of" not in shown
    output = 'output of after\n    {\n      "note": "fine"\n    }\n'
    assert output in shell.words("runs", "show", run, "--outputs")


def test_a_full_address_is_taken_as_it_is(waiting):
    shell, run, _ = waiting(forbidden=True)
    assert (
        shell("approvals", "reject", "latest", "--in-process", "--as", "ben@example.test")["by"] == "ben@example.test"
    )
    assert shell.run(run)["gates"][0]["status"] == "rejected"


@pytest.mark.parametrize("command", ["approve", "reject"])
def test_against_a_server_the_token_says_who(tmp_path, command):
    shell = Shell(tmp_path, SIGNALBOX_URL="http://127.0.0.1:1", SIGNALBOX_TOKEN="t")
    error = shell("approvals", command, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "--as", "ann", code=2)["error"]
    assert error["code"] == "wrong_usage"
    assert "the token says who decides" in error["message"]


def test_the_same_command_in_another_shell_says_whose_run_it_starts_beside(tmp_path):
    file = tmp_path / "four_eyes.yaml"
    file.write_text(FILE.replace("NOT", "false"))
    shell = Shell(tmp_path)
    first = shell.watched("run", str(file))
    try:
        first.seen("gate_opened")
        told = shell.words("run", str(file), "--until-human")
        assert f"run {first.id}, with the same input, under way in another process" in told
        assert "beside it" not in shell.words("run", str(file), "--new", "--until-human")
    finally:
        first.kill()


def test_a_run_that_has_ended_is_resumed_with_more_of_its_limits_and_no_action_is_swallowed(tmp_path):
    shell = Shell(tmp_path)
    run = shell("run", shell.write("ask.yaml", LIMITED, WORK), "--until-human")[-1]["run"]
    shell("runs", "cancel", run, code=1)
    error = shell("runs", "resume", run, "--action", "fail", code=1)["error"]
    assert (error["code"], "Without --action it is resumed" in error["remedy"]) == ("no_paused_step", True)
    assert shell.run(run)["epoch"] == 1
    assert shell("runs", "resume", run, "--raise-steps", "5")[-1]["state"] == "completed"
    assert shell.run(run)["limits"]["steps"] == 6


def test_what_a_run_went_on_without_is_told_so_and_taken_off_the_list(tmp_path):
    shell = Shell(tmp_path)
    file = shell.write("goes_on.yaml", GOES_ON, BAD)
    run = shell("run", file)[-1]["run"]
    told = shell.words("dead-letters", "list", "--in-process")
    assert f"Run {run} went on without it and has completed: start a new one" in told
    assert f"{file} --input JSON), then take it off: ./scripts/signalbox dead-letters dismiss RUN" in told
    assert "redrive" not in told
    error = shell("dead-letters", "redrive", run, code=1)["error"]
    assert (error["code"], f"dead-letters dismiss {run}" in error["remedy"]) == ("completed", True)
    paths = ["each[0]/bad", "alone"]
    assert shell("dead-letters", "dismiss", run, "alone")["dismissed"] == ["alone"]
    assert [each["path"] for each in shell("dead-letters", "list", "--in-process")["dead_letters"]] == paths[:1]
    assert shell.words("dead-letters", "dismiss", run) == f"Off the list: each[0]/bad of run {run}.\n"
    assert "No dead letters" in shell.words("dead-letters", "list", "--in-process")
