from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from scripts.commands import mailbox
from scripts.commands.lifecycle import SOURCES, fingerprint
from scripts.commands.output import ROOT, Refused, money, seconds

PAGE = """<!doctype html><form method="get" action="search"><input name="q"></form>
<form method="post" accept-charset="utf-8" novalidate>
<button type="submit" disabled hidden></button><input type="hidden" name="digest" value="d&amp;1">
<textarea name="note">
</textarea><input name="signature" type="text" required value="">
<button type="submit" name="decision" value="approve">Approve</button>
<button type="submit" name="decision" value="reject">Reject</button></form>"""


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (None, ""),
        (0, "0.00 s"),
        (1234, "1.23 s"),
        (12_345, "12.3 s"),
        (65_000, "1 min 05 s"),
        (7_500_000, "2 h 05 min"),
    ],
)
def test_durations(milliseconds, shown):
    assert seconds(milliseconds) == shown


def test_money_that_was_not_spent_is_not_shown():
    assert (money(None), money("0.00"), money("0.001349")) == ("", "", "$ 0.001349")


def test_the_fingerprint_follows_sources_context_and_life(tmp_path):
    for name in SOURCES:
        (tmp_path / name).touch() if "." in name else (tmp_path / name).mkdir()
    first = fingerprint({"env": "local"}, "life-1", tmp_path)
    assert fingerprint({"env": "local"}, "life-1", tmp_path) == first
    assert fingerprint({"env": "local"}, "life-2", tmp_path) != first
    assert fingerprint({"env": "local", "models_url": "x"}, "life-1", tmp_path) != first
    (tmp_path / "shared" / "__pycache__").mkdir()
    (tmp_path / "shared" / "__pycache__" / "a.pyc").write_text("x")
    (tmp_path / "shared" / "README.md").write_text("x")
    assert fingerprint({"env": "local"}, "life-1", tmp_path) == first
    (tmp_path / "workflows" / "a.md").write_text("x")
    assert fingerprint({"env": "local"}, "life-1", tmp_path) != first


def test_what_a_deployment_comes_from_exists():
    assert all((ROOT / name).exists() for name in SOURCES)


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self._answer(self.server.page)

    def do_POST(self):
        self.server.sent.append((self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
        self._answer("thank you")

    def _answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def page():
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as made:
        made.page, made.sent = PAGE, []
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def test_the_form_is_filled_in_as_a_person_would(page):
    link = f"http://127.0.0.1:{page.server_port}/prefix/approve/token"
    assert mailbox.approve(link, "FA") == "thank you"
    path, body = page.sent[0]
    assert path == "/prefix/approve/token"
    sent = {"digest": ["d&1"], "signature": ["FA"], "decision": ["approve"], "note": [""]}
    assert parse_qs(body, keep_blank_values=True) == sent


def test_a_page_without_a_form_is_not_decided(page):
    page.page = "<p>Approved by somebody else.</p>"
    with pytest.raises(Refused, match="no form"):
        mailbox.approve(f"http://127.0.0.1:{page.server_port}/", "FA")
    assert not page.sent


def mail(at, text):
    return {"Timestamp": at, "To": ["finance@example.com"], "Subject": "S", "BodyText": text, "BodyHtml": None}


def test_the_mail_of_this_run_is_found_among_others():
    link = "http://127.0.0.1:1/_aws/execute-api/a/approve/t0ken.x-_"
    mails = [mail(1, f"{link}1 run R1"), mail(2, f"{link}2 run R1\n"), mail(3, f"{link}3 run R2"), mail(4, "run R1")]
    found = mailbox.newest(mails, "R1", 0)
    assert (found.link, found.to) == (f"{link}2", "finance@example.com")
    assert mailbox.newest(mails, "R1", 2.5) is None
