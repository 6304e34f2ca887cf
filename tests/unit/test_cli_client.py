from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scripts.commands.client import Api, ApiRefused, Unreachable, segment
from scripts.commands.output import Refused
from scripts.commands.target import credentials, run_id, save_credentials, target

PROBLEM = {"status": 409, "code": "idempotency_mismatch", "detail": "The key was used for another input."}


class Scripted(BaseHTTPRequestHandler):
    """Answers from `server.answers` in turn, the last one for ever; keeps what was asked."""

    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.server.asked.append((self.command, self.path, dict(self.headers), self.rfile.read(length)))
        status, body = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    do_POST = do_GET  # noqa: N815 - http.server calls it so

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as made:
        made.asked, made.answers = [], [(200, {})]
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def api(server) -> Api:
    return Api(f"http://127.0.0.1:{server.server_port}/prefix/", "sbx_default_token")


def test_get_sends_the_token_and_leaves_out_what_is_not_given(api, server):
    server.answers = [(200, {"runs": []})]
    assert api.get("/v1/runs", workflow="invoice", state=None, limit=5) == {"runs": []}
    _, path, headers, _ = server.asked[0]
    assert path == "/prefix/v1/runs?workflow=invoice&limit=5"
    assert headers["Authorization"] == "Bearer sbx_default_token"


def test_get_is_repeated_after_a_passing_fault(api, server):
    server.answers = [(503, {}), (200, {"ok": True})]
    assert api.get("/v1/health") == {"ok": True}
    assert len(server.asked) == 2


def test_post_is_never_repeated(api, server):
    server.answers = [(503, b"busy"), (201, {"run": "R"})]
    with pytest.raises(ApiRefused, match="status 503"):
        api.post("/v1/workflows/invoice/runs", {})
    assert len(server.asked) == 1


def test_post_carries_body_and_key(api, server):
    server.answers = [(201, {"run": "R"})]
    assert api.post("/v1/x", {"input": {"a": "ü"}}, key="k-1") == (201, {"run": "R"})
    _, _, headers, body = server.asked[0]
    assert headers["Idempotency-Key"] == "k-1"
    assert json.loads(body) == {"input": {"a": "ü"}}


def test_a_problem_document_becomes_its_own_words(api, server):
    server.answers = [(409, PROBLEM)]
    with pytest.raises(ApiRefused) as caught:
        api.post("/v1/x", {})
    assert (caught.value.status, caught.value.code, caught.value.what) == (409, PROBLEM["code"], PROBLEM["detail"])


def test_an_error_without_problem_document_is_told_plainly(api, server):
    server.answers = [(404, b"<html>nope</html>")]
    with pytest.raises(ApiRefused) as caught:
        api.get("/v1/x")
    assert "status 404" in caught.value.what
    assert "Check the address" in caught.value.remedy


def test_something_that_is_not_json_is_refused(api, server):
    server.answers = [(200, b"hello")]
    with pytest.raises(Refused, match="something else than JSON"):
        api.get("/v1/x")


def test_nobody_there_says_what_to_do():
    with pytest.raises(Unreachable) as caught:
        Api("http://127.0.0.1:1", "t").get("/v1/health")
    assert "signalbox up" in caught.value.remedy
    assert "Errno" not in caught.value.what


def test_what_does_not_exist_says_where_to_look(api, server):
    server.answers = [(404, b'{"code": "not_found", "detail": "There is no such run."}')] * 2
    for path, command in (("/v1/runs/x", "runs list"), ("/v1/approvals/x.y", "approvals list")):
        with pytest.raises(ApiRefused) as caught:
            api.get(path)
        assert command in caught.value.remedy


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "file:etc/passwd", "http://"])
def test_only_http_addresses_are_taken(url):
    with pytest.raises(Refused, match="no API address"):
        Api(url, "t")


def test_segments_cannot_leave_their_place():
    assert segment("../admin?x=1#y") == "..%2Fadmin%3Fx%3D1%23y"


def test_latest_is_the_newest_run(api, server):
    server.answers = [(200, {"runs": [{"id": "NEW"}]})]
    assert run_id(api, "latest") == "NEW"
    assert run_id(api, "OLD") == "OLD"
    server.answers = [(200, {"runs": []})]
    with pytest.raises(Refused, match="no run yet"):
        run_id(api, "latest")


def test_credentials_are_readable_by_the_user_only(tmp_path):
    path = tmp_path / "new" / "credentials.json"
    save_credentials({"api_url": "http://127.0.0.1:1", "token": "t"}, path)
    save_credentials({"api_url": "http://127.0.0.1:2", "token": "t"}, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert credentials(path) == {"api_url": "http://127.0.0.1:2", "token": "t"}
    assert [each.name for each in path.parent.iterdir()] == ["credentials.json"]


def test_unreadable_credentials_count_as_none(tmp_path):
    path = tmp_path / "credentials.json"
    assert credentials(path) is None
    path.write_text("{")
    assert credentials(path) is None


def test_the_local_token_never_goes_to_another_address(tmp_path):
    path = tmp_path / "credentials.json"
    save_credentials({"api_url": "http://127.0.0.1:1", "token": "local"}, path)
    with pytest.raises(Refused, match="no token"):
        target("https://elsewhere.example", None, path)
    assert target(None, None, path).url == "http://127.0.0.1:1"


def test_without_anything_it_says_how_to_begin(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGNALBOX_RUNS", str(tmp_path / "none.db"))
    with pytest.raises(Refused) as caught:
        target(None, None, tmp_path / "none.json")
    assert "signalbox up" in caught.value.remedy


def test_who_asks_for_in_process_runs_never_gets_those_of_a_cloud(tmp_path, monkeypatch):
    monkeypatch.setenv("SIGNALBOX_RUNS", str(tmp_path / "none.db"))
    credentials = tmp_path / "credentials.json"
    credentials.write_text('{"api_url": "http://127.0.0.1:1", "token": "t"}')
    with pytest.raises(Refused, match="no in-process runs"):
        target(None, None, credentials, in_process=True)
