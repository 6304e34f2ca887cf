"""What the launcher promises: a clean environment, functions that import from it, no process left behind."""

import os
import subprocess
import sys
import time

from scripts.local import processes
from tests.emulator.emulator import ROOT, Emulator, free_port, task, until


def test_a_dotted_handler_imports_the_products_packages_without_a_layer(corrected):
    expected = ["aws_lambda_powertools", "boto3", "cel_expr_python", "pydantic"]
    assert corrected.invoke(op="imports") == expected


def test_functions_see_nothing_of_the_users_environment(tmp_path):
    emulator = Emulator(tmp_path, variables={**os.environ, "API_KEY": "sk-secret", "AWS_PROFILE": "production"})
    try:
        emulator.prepare()
        seen = emulator.invoke(op="variables")
    finally:
        processes.end(emulator.process)
    assert "sk-secret" not in seen.values()
    assert "AWS_PROFILE" not in seen
    assert seen["AWS_ENDPOINT_URL"] == emulator.url
    assert not os.path.exists(seen["HOME"])  # noqa: PTH110 - a path of the emulator, removed at its end


def test_lambda_processes_end_with_the_launcher_even_in_the_middle_of_a_call(tmp_path):
    emulator = Emulator(tmp_path)
    emulator.prepare()
    worker = processes.identify(emulator.invoke(op="pid"))
    assert worker is not None
    emulator.start(emulator.machine(task("sleep", seconds=19)))
    time.sleep(0.3)
    begun = time.monotonic()
    processes.end(emulator.process, grace=10)
    assert time.monotonic() - begun < 5
    assert until(lambda: not processes.alive(worker))


def test_it_ends_when_the_process_it_belongs_to_ends(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    command = [sys.executable, "-m", "scripts.local.launcher", "--port", str(free_port()), "--parent", str(parent.pid)]
    launcher = processes.spawn(command, variables=os.environ, folder=ROOT, log=tmp_path / "log")
    parent.kill()
    parent.wait()
    until(lambda: not processes.alive(launcher) or processes.identify(launcher.pid) is None)


def test_a_task_time_out_is_kept(corrected):
    ended = corrected.run({**task("sleep", seconds=6), "TimeoutSeconds": 1})
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Timeout")


def test_stopping_ends_a_parked_token_task(corrected):
    execution = corrected.start(corrected.machine(task("pid", token=True)))
    time.sleep(0.5)
    corrected.states.stop_execution(executionArn=execution)
    assert corrected.finished(execution)["status"] == "ABORTED"
