"""``kill -9`` at every commit and around the call, then the same again: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from process import FORK, Host, die, forked, mortal

ROOT = Path(__file__).parents[2]


def documents(erp):
    return erp._documents


def alive(path, erp, *, number=0, moment="", around=""):
    """One life: the run is started, or goes on; the process may be killed at a commit, or around the ERP's call."""

    def life():
        host = Host(path, erp.url)
        if number:
            mortal(host, number, moment)
        if around:
            invoke = host.tools.invoke

            def dying(name, arguments, call):
                if name == "erp_post" and around == "before":
                    die()
                result = invoke(name, arguments, call)
                if name == "erp_post":
                    die()
                return result

            host.tools.invoke = dying
        run = host.start("k")
        host.engine.host(run)
        host.until(run, "completed", "failed", "stopped", "paused")
        host.close()

    return forked(life)


def check(path, erp, what):
    host = Host(path, erp.url)
    run = host.start("k")
    host.engine.host(run)
    assert host.until(run, "completed", "failed", "stopped", "paused") == "completed", what
    head, events = host.head(run), host.journal(run).events()
    assert (head.open, len(documents(erp))) == (0, 1), what
    assert [event.seq for event in events] == list(range(1, head.seq + 1)), what
    ends = [event.type for event in events if event.type.startswith("run_") and event.type != "run_started"]
    assert ends == ["run_completed"], what
    host.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_commit_the_run_completes_and_posts_once(tmp_path, erp, moment):
    killed = 0
    for number in range(1, 20):
        (tmp_path / "erp.json").unlink(missing_ok=True)
        path = tmp_path / f"{number}.db"
        code = alive(path, erp, number=number, moment=moment)
        killed += code == -signal.SIGKILL
        check(path, erp, f"killed {moment} commit {number}")
        if code == 0:
            break
    assert killed >= 5


@pytest.mark.parametrize("around", ["before", "after"])
def test_killed_around_the_call_it_looks_for_what_the_call_has_done(tmp_path, erp, around):
    assert alive(tmp_path / "runs.db", erp, around=around) == -signal.SIGKILL
    assert len(documents(erp)) == (around == "after")
    check(tmp_path / "runs.db", erp, around)
    assert documents(erp)[0]["attempts"] == 1


def test_killed_again_and_again_it_still_ends(tmp_path, erp):
    for _ in range(12):
        alive(tmp_path / "runs.db", erp, number=3, moment="after")
    check(tmp_path / "runs.db", erp, "many lives")


def test_two_processes_on_one_file_one_drives_the_other_decides(tmp_path, erp):
    path, (mine, theirs) = tmp_path / "runs.db", FORK.Pipe()

    def drive():
        host = Host(path, erp.url, amount=9000)
        run = host.start()
        host.until(run, "waiting_for_human")
        theirs.send(run)
        theirs.send(host.until(run, "completed", "failed"))
        host.close()

    child = FORK.Process(target=drive)
    child.start()
    run = mine.recv()
    other = Host(path, erp.url, amount=9000)
    assert not other.engine.host(run)
    other.decide(run, "approved")
    assert mine.recv() == "completed"
    child.join(10)
    assert (child.exitcode, len(documents(erp))) == (0, 1)
    other.close()


def test_a_run_whose_driver_is_killed_at_its_gate_is_taken_over_and_goes_on_as_decided_meanwhile(tmp_path, erp):
    path, (mine, theirs) = tmp_path / "runs.db", FORK.Pipe()

    def drive():
        host = Host(path, erp.url, amount=9000)
        run = host.start()
        host.until(run, "waiting_for_human")
        theirs.send(run)
        time.sleep(60)

    child = FORK.Process(target=drive)
    child.start()
    run = mine.recv()
    os.kill(child.pid, signal.SIGKILL)
    child.join(10)
    host = Host(path, erp.url, amount=9000)
    host.decide(run, "approved")
    assert host.engine.host(run)
    assert host.until(run, "completed", "failed") == "completed"
    assert len(documents(erp)) == 1
    host.close()


def command(folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "SIGNALBOX"))}
    environment |= {"SIGNALBOX_RUNS": str(folder / "runs.db"), "SIGNALBOX_LOCAL_FOLDER": str(folder / "none")}
    line = [sys.executable, "-m", "scripts.cli", *arguments]
    return subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_command_killed_at_its_gate_and_run_again_after_the_decision_goes_on_with_the_same_run(tmp_path):
    run = ["run", "workflows/invoice.yaml", "--set", "document=@workflows/samples/contoso-en.txt", "--json"]
    first = command(tmp_path, *run)
    lines = []
    for line in first.stdout:
        lines.append(json.loads(line))
        if lines[-1].get("type") == "gate_opened":
            break
    first.kill()
    first.communicate()
    listed, _ = command(tmp_path, "approvals", "list", "--in-process", "--json").communicate(timeout=30)
    (waiting,) = json.loads(listed)["approvals"]
    approved = command(tmp_path, "approvals", "approve", waiting["id"], "--json")
    assert approved.wait(30) == 0
    again = command(tmp_path, *run)
    out, errors = again.communicate(timeout=45)
    told = [json.loads(line) for line in out.splitlines()]
    assert (again.returncode, told[0]) == (0, {"run": lines[0]["run"], "new": False}), errors
    assert told[-1]["state"] == "completed"
    assert len(json.loads((tmp_path / "erp.json").read_text())) == 1
    assert sum(each.get("type") == "step_opened" and each["path"] == "extract" for each in told) == 1
