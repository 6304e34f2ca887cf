"""The ERP posts once per key; processes are never mistaken for one another; the clean environment is clean."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2
import pytest

from scripts.local import cloud, environment, processes
from scripts.local.cloud import CloudError, Running
from scripts.local.deploy import App, DeployError, cdk_synth
from scripts.local.erp import Erp
from scripts.local.processes import Identity

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


@pytest.fixture
def erp(tmp_path):
    running = Erp(file=tmp_path / "documents.json")
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


def post(erp, key, **body):
    return httpx2.post(f"{erp.url}/documents", json=body, headers={"Idempotency-Key": key} if key else {})


def test_a_key_posts_one_document_and_counts_attempts(erp):
    first, second = post(erp, "k", amount=1), post(erp, "k", amount=1)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["document"] == second.json()["document"] == "DOC-000001"
    found = httpx2.get(f"{erp.url}/documents", params={"key": "k"}).json()
    assert (found["count"], found["documents"][0]["attempts"]) == (1, 2)


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_killed_while_it_writes_it_loses_no_document(tmp_path, moment):
    file = tmp_path / "documents.json"
    running = Erp(file=file)
    running._post("a", {"amount": 1})

    def dying():
        for place, name in ((os, "fsync"), (Path, "replace")):
            if name == moment:
                setattr(place, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        running._post("b", {"amount": 2})

    child = multiprocessing.get_context("fork").Process(target=dying)
    child.start()
    child.join(30)
    running.server_close()
    assert child.exitcode == -signal.SIGKILL
    again = Erp(file=file)
    again._post("c", {"amount": 3})
    again.server_close()
    assert [(one["document"], one["key"]) for one in json.loads(file.read_text())] == [
        ("DOC-000001", "a"),
        ("DOC-000002", "c"),
    ]


def test_two_processes_on_one_file_lose_none_of_each_others_documents(tmp_path):
    file = tmp_path / "documents.json"
    one, other = Erp(file=file), Erp(file=file)
    for number, each in enumerate((one, other, one)):
        each._post(f"k{number}", {})
    assert other._find(None).body["count"] == 3
    assert one._post("k1", {}).body["attempts"] == 2
    for each in (one, other):
        each.server_close()


def test_without_a_key_every_post_is_a_document(erp):
    assert {post(erp, None).json()["document"] for _ in range(2)} == {"DOC-000001", "DOC-000002"}
    assert httpx2.get(f"{erp.url}/documents").json()["count"] == 2


def test_voiding_twice_is_voiding(erp):
    number = post(erp, "k").json()["document"]
    answers = [httpx2.post(f"{erp.url}/documents/{number}/void").json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["status"] == "voided"
    assert httpx2.post(f"{erp.url}/documents/DOC-9/void").status_code == 404


def test_an_answer_can_be_lost_after_the_effect(erp):
    httpx2.post(f"{erp.url}/_erp/faults", json={"next": [{"hang_up": True, "after": True}]})
    with pytest.raises(httpx2.TransportError):
        post(erp, "k")
    assert httpx2.get(f"{erp.url}/documents", params={"key": "k"}).json()["count"] == 1


def test_documents_survive_in_their_file(erp, tmp_path):
    post(erp, "k")
    again = Erp(file=tmp_path / "documents.json")
    again.server_close()
    assert json.loads((tmp_path / "documents.json").read_text())[0]["key"] == "k"


def test_ending_ends_children_that_ignore_it(tmp_path):
    log = tmp_path / "log"
    started = processes.spawn([sys.executable, "-c", STUBBORN], variables=os.environ, folder=tmp_path, log=log)
    while not log.read_text().strip():
        time.sleep(0.02)
    child = processes.identify(int(log.read_text()))
    assert child is not None
    processes.end(started, grace=0.3)
    assert not processes.alive(started)
    deadline = time.monotonic() + 10  # killed at the same moment, but gone only when it has had its turn
    while processes.alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_recycled_pid_is_left_alone():
    other = subprocess.Popen(SLEEPER, start_new_session=True)
    try:
        processes.end(Identity(other.pid, "another time"))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert processes.identify(other.pid) is None


def record(folder, **services):
    folder.mkdir(exist_ok=True)
    cloud._write(folder, services)


def test_stale_records_are_named_and_stopping_touches_nobody_else(tmp_path):
    other = subprocess.Popen(SLEEPER, start_new_session=True)
    try:
        record(tmp_path, aws=Running(Identity(other.pid, "another time"), 1), erp=Running(Identity(2**22, "x"), 2))
        assert set(cloud.status(tmp_path).stale) == {"aws", "erp"}
        assert cloud.stop(lambda _line: None, tmp_path) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert cloud.status(tmp_path).stale == []


def test_an_unreadable_record_counts_as_none(tmp_path):
    (tmp_path / "state.json").write_text("{half")
    assert cloud.status(tmp_path) == cloud.Status({}, [])


def test_attaching_to_nothing_says_what_to_do(tmp_path):
    with pytest.raises(CloudError, match="signalbox up"):
        cloud.attach(tmp_path)


def test_concurrent_starts_begin_one_cloud_and_stopping_ends_it(tmp_path):
    """The whole life: two starts at once, reuse, a crash noticed and repaired, the end."""
    quiet = lambda _line: None  # noqa: E731
    started: list[cloud.LocalCloud] = []
    threads = [threading.Thread(target=lambda: started.append(cloud.start(quiet, tmp_path))) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert started[0] == started[1] == cloud.attach(tmp_path)
        processes.end(started[0].erp.process)
        assert cloud.status(tmp_path).stale == ["erp"]
        repaired = cloud.start(quiet, tmp_path)
        assert (repaired.generation, repaired.erp.port) == (started[0].generation, started[0].erp.port)
        assert httpx2.get(repaired.mail_url).status_code == 200
    finally:
        ended = cloud.stop(quiet, tmp_path)
    assert set(ended) == {"aws", "rehearsal", "erp"}
    assert not any(processes.alive(r.process) for r in (repaired.aws, repaired.rehearsal, repaired.erp))


def running_cloud(folder):
    nobody = Running(Identity(1, "x"), 9)
    return cloud.LocalCloud(aws=nobody, rehearsal=nobody, erp=nobody, folder=folder)


def test_nothing_of_the_users_gets_into_the_endpoint_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "real")
    variables = cloud.endpoint_env(running_cloud(tmp_path))
    assert "AWS_PROFILE" not in variables
    assert variables["AWS_SECRET_ACCESS_KEY"] == "test"
    assert variables["AWS_CONFIG_FILE"] == variables["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
    assert variables["AWS_ENDPOINT_URL"] == f"http://{environment.HOST}:9"


def test_synthesis_runs_again_only_when_something_has_changed(tmp_path):
    (tmp_path / "app.py").write_text("import os; print('synthesised'); os.makedirs(os.environ['CDK_OUTDIR'])")
    said: list[str] = []
    for change in (None, None, "infra"):
        if change:
            (tmp_path / change).mkdir()
            (tmp_path / change / "settings.py").write_text("x = 1")
        cdk_synth(running_cloud(tmp_path), App(folder=tmp_path), said.append)
    assert said.count("synthesised") == 2
    assert said.count("synthesis: nothing has changed") == 1


def test_a_failing_phase_shows_log_lines_and_remedy(tmp_path):
    app = App(command=(sys.executable, "-c", "import os; print('context', os.environ['CDK_CONTEXT_JSON']); exit(3)"))
    with pytest.raises(DeployError, match=r"exit 3.*synthesis\.log(?s:.*)context.*env.*\n.*Correct what") as error:
        cdk_synth(running_cloud(tmp_path), App(app.command, tmp_path, {"env": "local"}), lambda _line: None)
    assert str(tmp_path / "synthesis.log") in str(error.value)
