"""Sub-workflows and events through several shells: decided, killed, paused, cancelled; sent early, twice, too late."""

from __future__ import annotations

import json

import pytest
from shell import Shell

TOOLS = '''
import pathlib

from shared.errors import PermanentFailure
from shared.tools.registry import Call, tool


def write(call, what):
    with pathlib.Path(call.settings["FOLDER"], "kept.txt").open("a") as file:
        file.write(what + "\\n")
    return {"line": what}


@tool
def keep(line: str, *, call: Call) -> dict[str, str]:
    """Keep a line."""
    return write(call, line)


@tool
def drop(line: str, *, call: Call) -> dict[str, str]:
    """Take a line back."""
    return write(call, "not " + line)


@tool
def need(name: str, *, call: Call) -> dict[str, str]:
    """Fail as long as there is no such file."""
    if not pathlib.Path(call.settings["FOLDER"], name).exists():
        raise PermanentFailure(f"There is no {name}.")
    return {"name": name}
'''
KEEP = "type: tool, tool: keep, risk: reversible, compensate: {tool: drop, with: {line: LINE}}, with: {line: LINE}"
ABOVE = f"""workflow: above
input: {{type: object, properties: {{again: {{type: string}}}}}}
steps:
  first: {{{KEEP.replace("LINE", "above")}}}
  child: {{type: sub_workflow, needs: [first], workflow: below, with: {{}}}}
  paid:
    type: wait
    needs: [child]
    event: {{name: payment, match: event.amount > 100, timeout: 1d}}
  last: {{type: transform, needs: [paid], set: {{amount: "${{ steps.paid.output.event.amount }}"}}}}
"""
BELOW = {
    "gate": f"""workflow: below
steps:
  note: {{{KEEP.replace("LINE", "below")}}}
  check: {{type: human_gate, needs: [note], approvers: [finance], subject: Go on, on_error: fail}}
""",
    "pause": f"""workflow: below
steps:
  note: {{{KEEP.replace("LINE", "below")}}}
  check: {{type: tool, needs: [note], tool: need, with: {{name: key}}, risk: read, on_error: pause}}
""",
    "nothing": f"""workflow: below
steps:
  note: {{{KEEP.replace("LINE", "below")}}}
""",
}


class Family:
    """A folder with both workflows, and shells on it."""

    def __init__(self, folder, below):
        (folder / "tools").mkdir()
        (folder / "tools" / "lines.py").write_text(TOOLS)
        (folder / "above.yaml").write_text(ABOVE)
        (folder / "below.yaml").write_text(BELOW[below])
        self.folder, self.shell = folder, Shell(folder, SIGNALBOX_TOOL_FOLDER=str(folder))

    def drive(self, *more):
        return self.shell.watched("run", str(self.folder / "above.yaml"), *more)

    @property
    def kept(self):
        return (self.folder / "kept.txt").read_text().split("\n")[:-1]

    def child(self, watched):
        return watched.seen("child_started")["data"]["child"]

    def until(self, run, state):
        """Wait, in another shell, until a run needs a person."""
        watched = self.shell.watched("runs", "watch", run, "--until-human")
        assert watched.end()["state"] == state

    def send(self, run, amount, key, code=0):
        data = json.dumps({"amount": amount})
        return self.shell("runs", "send", run, "payment", "--data", data, "--idempotency-key", key, code=code)


@pytest.fixture
def family(tmp_path):
    return lambda below: Family(tmp_path, below)


def test_killed_at_the_childs_gate_and_decided_meanwhile_it_goes_on_where_it_stood(family):
    f = family("gate")
    first = f.drive()
    child, run = f.child(first), first.id
    f.until(child, "waiting_for_human")
    first.kill()
    assert f.shell("approvals", "approve", child)["status"] == "approved"
    assert [f.send(run, amount, key)["used"] for amount, key in ((50, "small"), (500, "e-1"))] == [False, False]
    second = f.drive()
    assert second.lines == [] or second.id == run
    assert second.end()["state"] == "completed"
    assert (second.id, f.kept) == (run, ["above", "below"])
    assert f.shell.run(child)["state"] == "completed"
    events = f.shell.kinds(run)
    assert events.count("child_started:child") == events.count("step_completed:child") == 1


def test_an_event_is_kept_delivered_once_and_refused_after_the_end(family):
    f = family("gate")
    driver = f.drive()
    child, run = f.child(driver), driver.id
    f.until(child, "waiting_for_human")
    assert [f.send(run, 500, "e-1")["used"] for _ in range(2)] == [False, False]
    f.shell("approvals", "approve", child)
    assert driver.end()["state"] == "completed"
    assert f.shell.kinds(run).count("event_received") == 1
    assert f.shell.run(run)["steps"][-1]["output"] == {"amount": 500}
    error = f.send(run, 900, "e-2", code=1)["error"]
    assert error["code"] == "run_ended"
    assert error["remedy"]


def test_killed_while_it_waits_it_finds_the_event_that_came_meanwhile(family):
    f = family("nothing")
    first = f.drive()
    first.seen("event_awaited", "paid")
    first.kill()
    assert f.send(first.id, 500, "e-1")["used"]
    assert f.send(first.id, 500, "e-1")["used"]  # the same answer, and no second event
    second = f.drive()
    assert second.end()["state"] == "completed"
    assert (second.id, f.kept) == (first.id, ["above", "below"])
    assert f.shell.kinds(first.id).count("event_received") == 1


def test_a_waiting_driver_hears_of_an_event_from_another_shell(family):
    f = family("nothing")
    driver = f.drive()
    driver.seen("event_awaited", "paid")
    assert f.send(driver.id, 500, "e-1")["used"]
    assert driver.end()["state"] == "completed"


def test_a_paused_child_is_resumed_from_another_shell_and_the_parent_goes_on(family):
    f = family("pause")
    driver = f.drive()
    child = f.child(driver)
    f.until(child, "paused")
    assert f.shell.run(driver.id)["state"] == "running"
    (f.folder / "key").touch()
    assert f.shell("runs", "resume", child)["run"] == child
    driver.seen("step_completed", "child")
    f.send(driver.id, 500, "e-1")
    assert driver.end()["state"] == "completed"
    assert f.kept == ["above", "below"]


def test_a_paused_child_whose_driver_is_dead_is_driven_by_who_resumes_it(family):
    f = family("pause")
    first = f.drive()
    child = f.child(first)
    f.until(child, "paused")
    first.kill()
    (f.folder / "key").touch()
    assert f.shell("runs", "resume", child)[-1]["state"] == "completed"
    second = f.drive()
    f.send(second.id, 500, "e-1")
    assert second.end()["state"] == "completed"
    assert (second.id, f.kept) == (first.id, ["above", "below"])


def test_until_human_stops_where_a_child_needs_a_person(family):
    f = family("gate")
    ended = f.drive("--until-human").end()
    assert ended["state"] == "running"
    assert "run 0" in f.shell.words("runs", "watch", ended["run"], "--until-human")


@pytest.mark.parametrize("alive", [True, False])
def test_cancelling_the_parent_ends_the_child_and_takes_everything_back(family, alive):
    f = family("gate")
    driver = f.drive()
    child = f.child(driver)
    f.until(child, "waiting_for_human")
    if alive:
        f.shell("runs", "cancel", driver.id, "--reason", "mistake")
        assert driver.end(1)["state"] == "cancelled"
    else:
        driver.kill()
        assert f.shell("runs", "cancel", driver.id, code=1)[-1]["state"] == "cancelled"
    assert f.shell.run(child)["state"] == "cancelled"
    assert f.kept == ["above", "below", "not below", "not above"]
    assert f.shell("approvals", "list", "--in-process")["approvals"] == []
