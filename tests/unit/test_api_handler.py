"""The API's Lambda handler: whatever is asked, also what no route takes, gets a problem document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASKING = """
import json, sys
from functions.api.handler import handle

class Context:
    function_name, memory_limit_in_mb, invoked_function_arn, aws_request_id = "api", 128, "arn", "1"

event = json.loads(sys.argv[1])
answer = handle(event, Context())
print("ANSWER" + json.dumps(answer))
"""


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/\n\u2028x", 404),
        ("HEAD", "/nothing", 404),
        ("PUT", "/v1/runs", 405),
        ("BREW", "/v1/runs", 405),
        ("GET", "/v1/runs", 500),
    ],
)
def test_the_handler_answers_everything(method: str, path: str, status: int):
    http = {"method": method, "path": path}
    context = {"http": http, "requestId": "request-3", "stage": "$default"}
    event = {"version": "2.0", "rawPath": path, "headers": {}, "requestContext": context}
    # No settings at all: a route that needs a host then meets an error that nobody foresaw.
    environment = {"PATH": os.environ["PATH"], "POWERTOOLS_SERVICE_NAME": "api"}
    command = [sys.executable, "-c", ASKING, json.dumps(event)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-2000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    answer = json.loads(line.removeprefix("ANSWER"))
    assert answer["statusCode"] == status
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    assert "Traceback" not in line
    if method != "HEAD":
        assert json.loads(answer["body"])["status"] == status
    if status == 500:
        # The reason is in the log, under the id that the caller was given.
        (logged,) = [json.loads(each) for each in done.stdout.splitlines() if '"level":"ERROR"' in each]
        assert logged["correlation_id"] == json.loads(answer["body"])["correlation_id"] == "request-3"
        assert "SIGNALBOX_ENVIRONMENT" in logged["exception"]
