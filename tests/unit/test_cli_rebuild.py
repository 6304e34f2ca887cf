"""`runs rebuild`: what it says of a run that agrees with its log, of what it repairs, and of what it cannot."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from scripts.cli import app

RUN = "01J0000000000000000000RUN1"
STATUS = {"record": "STEP#a", "field": "status", "known": "running", "told": "failed", "lost": False}
OUTPUT = {"record": "STEP#a", "field": "output", "known": None, "told": "0" * 64, "lost": True}
LOST = "The log does not hold what 1 of them had: that stays as it is."


class Fake(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answer).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def rebuilt():
    with ThreadingHTTPServer(("127.0.0.1", 0), Fake) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        env = {"SIGNALBOX_URL": f"http://127.0.0.1:{made.server_port}", "SIGNALBOX_TOKEN": "t", "NO_COLOR": "1"}

        def call(*differences, options=()):
            made.answer = {"run": RUN, "differences": differences, "repaired": False}
            done = CliRunner().invoke(app, ["runs", "rebuild", RUN, *options], env=env)
            return done.exit_code, " ".join(done.stdout.split())

        yield call
        made.shutdown()


def test_a_run_that_agrees_is_said_to_agree_as_far_as_it_was_compared(rebuilt):
    code, said = rebuilt()
    assert code == 0
    assert "All that the log tells of is as it says. Not compared: limits, active time, failures," in said


@pytest.mark.parametrize(
    ("differences", "options", "code", "expected"),
    [
        ([STATUS], (), 1, "rebuild {run} --repair."),
        ([STATUS], ("--repair",), 0, "Repaired."),
        (
            [STATUS, OUTPUT],
            ("--repair",),
            1,
            "Repaired. The log does not hold what 1 of them had: that stays as it is.",
        ),
        ([OUTPUT], (), 1, LOST),
    ],
)
def test_what_can_be_repaired_is_said_and_what_cannot(rebuilt, differences, options, code, expected):
    found = rebuilt(*differences, options=options)
    assert found[0] == code
    assert found[1].endswith(expected.format(run=RUN))
