from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from rich.text import Text

from scripts.commands import mailbox, output
from scripts.commands.lifecycle import SOURCES, fingerprint
from scripts.commands.output import ROOT, Refused, age, hint, money, seconds, standing, table

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


@pytest.mark.parametrize(
    ("passed", "shown"),
    [
        ({"seconds": 8.4}, "8 s ago"),
        ({"seconds": 119}, "119 s ago"),
        ({"minutes": 10, "seconds": 30}, "10 min ago"),
        ({"hours": 47}, "47 h ago"),
        ({"days": 3}, "3 d ago"),
        ({"seconds": -5}, "0 s ago"),
    ],
)
def test_ages_are_as_exact_as_people_need(passed, shown):
    assert age((datetime.now(UTC) - timedelta(**passed)).isoformat()) == shown


def test_commands_are_named_as_the_user_types_them(monkeypatch):
    monkeypatch.setattr(output, "COMMAND", "./scripts/signalbox")
    assert hint("Run `signalbox up`, then signalbox run x.") == (
        "Run `./scripts/signalbox up`, then ./scripts/signalbox run x."
    )
    for kept in ("./scripts/signalbox up", "the signalbox-dev-data stack", "Signalbox runs"):
        assert hint(kept) == kept


def test_scripts_are_named_so_that_they_run_from_where_the_user_is(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(ROOT)
    assert output.here("demo") == "./scripts/demo"
    monkeypatch.chdir(ROOT / "scripts")
    assert output.here("demo") == "./demo"
    monkeypatch.chdir(tmp_path)
    assert output.here("demo") == str(ROOT / "scripts" / "demo")
    (tmp_path / "signalbox").symlink_to(ROOT / "scripts" / "signalbox")
    assert output.here("signalbox") == "signalbox"
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(output, "ROOT", tmp_path / "with space")
    assert output.here("demo") == f"'{tmp_path}/with space/scripts/demo'"


def test_a_narrow_terminal_loses_nothing_of_a_table(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    table(("APPROVAL", "SUBJECT", "OPENED"), [("A" * 44, "Approve invoice 4711", "16 min ago")], empty="")
    shown = capsys.readouterr().out
    for part in ("A" * 44, "Approve invoice 4711", "16 min ago"):
        assert part in shown


@pytest.mark.parametrize(
    ("state", "reason", "shown"),
    [
        ("running", None, "running"),
        ("cancelled", "cancelled by ann@example.com: late", "cancelled by ann@example.com (late)"),
        ("paused", "step_error", "paused (a step failed)"),
        ("failed", "step a: permanent: no", "failed (step a: permanent: no)"),
    ],
)
def test_a_run_stands_where_it_stands_for_a_reason(state, reason, shown):
    told = standing({"state": state, "reason": reason}, str)
    assert Text.from_markup(told).plain == shown


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
