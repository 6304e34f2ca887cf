from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from scripts.cli import app
from scripts.commands import lifecycle
from scripts.commands.output import Refused

ROOT = Path(__file__).resolve().parents[2]
RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER = RUN.replace("V", "W")
TIERS = {"tier": 1, "reminded_at": None, "next_tier": {"at": "2026-01-01T08:00:00.000Z", "roles": ["finance_lead"]}}
GATE = {
    "id": f"{RUN}.0123456789abcdef",
    "run": RUN,
    "workflow": "invoice",
    "subject": "Approve [bold]this[/bold]",
    "status": "open",
    "approves": "post",
    "tool": "erp_post",
    "risk": "reversible",
    "arguments": {"amount": 9727.2},
    "digest": "d1",
    "show": None,
    "roles": ["finance"],
    **TIERS,
    "quorum": 2,
    "approved_by": [{"by": "[b]eve", "at": "2026-01-01T00:00:00.000Z", "note": ""}],
    "edit": {"type": "object", "properties": {"amount": {"type": "number"}}},
    "edited": None,
    "changes": None,
    "opened_at": "2026-01-01T00:00:00.000Z",
    "expires_at": "2026-01-02T00:00:00.000Z",
    "decided_at": None,
    "by": None,
    "note": None,
}
STEP = {
    "path": "extract",
    "step": "extract",
    "type": "agent",
    "status": "paused",
    "attempt": 1,
    "retries": 0,
    "model": "claude-haiku-4-5",
    "route": None,
    "cost": {"usd": "0.001349", "tokens": 949, "steps": 1},
    "reserved": None,
    "duration_ms": 1500,
    "error": {"class": "permanent", "message": "[no]"},
    "reason": "step_error",
    "by": None,
}
VIEW = {
    "id": RUN,
    "workflow": "invoice",
    "version": 3,
    "state": "paused",
    "reason": "step_error",
    "initiator": "ann@example.com",
    "created_at": "2026-01-01T00:00:00.000Z",
    "ended_at": None,
    "limits": {"usd": "0.50", "tokens": 60000, "steps": 20, "active_time": None},
    "budget_mode": "audit",
    "would_refuse": [{"path": "extract", "level": "run", "dimension": "usd", "needed": "0.30", "left": "0.10"}],
    "spent": {"usd": "0.001349", "tokens": 949, "steps": 1, "active_time": 1500},
    "reserved": {"usd": "0.00", "tokens": 0, "steps": 0},
    "steps": [STEP],
    "gates": [GATE],
}
STARTED = {"seq": 1, "at": "2026-01-01T00:00:00.000Z", "type": "run_started", "path": None, "attempt": None, "data": {}}
ANSWERS = {
    ("GET", "/v1/runs"): (200, {"runs": [VIEW], "next": None}),
    ("GET", f"/v1/runs/{RUN}"): (200, VIEW),
    ("GET", "/v1/approvals"): (200, {"approvals": [GATE]}),
    ("GET", f"/v1/approvals/{GATE['id']}"): (200, GATE),
    ("POST", f"/v1/approvals/{GATE['id']}"): (200, GATE | {"status": "approved"}),
    ("POST", "/v1/workflows/invoice/runs"): (201, {"run": RUN, "new": True}),
    ("GET", "/v1/workflows"): (200, {"workflows": [{"workflow": "invoice", "version": 3, "hash": "h"}]}),
    ("GET", f"/v1/runs/{OTHER}"): (200, VIEW | {"id": OTHER, "gates": []}),
    ("POST", f"/v1/runs/{RUN}/resume"): (202, {"run": RUN, "state": "running", "unwinding": None, "seq": 9}),
    ("POST", f"/v1/runs/{RUN}/cancel"): (202, {"run": RUN, "state": "running", "unwinding": "cancelled", "seq": 9}),
}


class Fake(BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, path, json.loads(body) if body else query))
        missing = (404, {"code": "not_found", "detail": "There is no such thing."})
        status, answer = ANSWERS.get((self.command, path), missing)
        if path.endswith("/events"):
            status, answer = 200, {"events": [] if "after=1" in query else [STARTED], "next": 1, "state": "completed"}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    do_POST = do_GET  # noqa: N815 - http.server calls it so

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    with ThreadingHTTPServer(("127.0.0.1", 0), Fake) as made:
        made.asked = []
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def cli(api):
    env = {"SIGNALBOX_URL": f"http://127.0.0.1:{api.server_port}", "SIGNALBOX_TOKEN": "t", "NO_COLOR": "1"}
    return lambda *arguments: CliRunner().invoke(app, list(arguments), env=env)


def leaves(command, path=()):
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    else:
        for name, each in inner.items():
            yield from leaves(each, (*path, name))


COMMANDS = dict(leaves(typer.main.get_command(app)))


def test_all_commands_are_there():
    names = {" ".join(path) for path in COMMANDS}
    assert names == {
        *("up", "down", "status", "deploy", "validate", "plan", "compile", "schema", "run", "doctor", "sweep"),
        *(f"runs {name}" for name in ("list", "show", "watch", "events", "send", "cancel", "resume", "rebuild")),
        *(f"dead-letters {name}" for name in ("list", "redrive", "dismiss")),
        "triggers list",
        *(f"approvals {name}" for name in ("list", "show", "approve", "edit", "reject")),
        *(f"tenants budget {name}" for name in ("show", "set")),
        *(f"tenants secrets {name}" for name in ("put", "list", "remove")),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_json_and_help(path):
    assert any("--json" in option.opts for option in COMMANDS[path].params)
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0
    assert COMMANDS[path].help.splitlines()[0] in " ".join(done.stdout.split())


def test_run_starts_with_input_from_text_and_files(cli, api, tmp_path):
    (tmp_path / "invoice.txt").write_text("Rechnung über 5 €", "utf-8")
    given = ["--input", '{"po_number": "P"}', "--set", f"document=@{tmp_path / 'invoice.txt'}"]
    done = cli("run", "invoice", *given, "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"run": RUN, "new": True})
    assert api.asked[-1][2] == {"input": {"po_number": "P", "document": "Rechnung über 5 €"}}


def test_run_and_watch_as_json_lines(cli):
    done = cli("run", "invoice", "--watch", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    assert lines == [{"run": RUN, "new": True}, STARTED, {"run": RUN, "state": "completed", "seq": 1}]


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "invoice", "--input", "{"),
        ("run", "invoice", "--input", "[1]"),
        ("run", "invoice", "--input", "@missing.json"),
        ("run", "invoice", "--set", "novalue"),
        ("run",),
        ("runs", "resume", RUN, "--action", "repeat"),
        ("runs", "resume", RUN, "--action", "accept"),
        ("runs", "list", "--limit", "0"),
        ("nonsense",),
        ("compile", "workflows/invoice.yaml", "--manifest", "--summary"),
        ("deploy", "--env", "dev", "--context", "novalue"),
        ("run", "workflows/invoice.yaml", "--version", "2"),
        ("run", "invoice", "--new"),
        ("run", "invoice", "--set-tool", "A=b"),
        ("run", "invoice", "--as", "ann"),
    ],
)
def test_wrong_usage_exits_with_2(cli, api, arguments):
    done = cli(*arguments)
    assert done.exit_code == 2
    assert done.stderr
    assert not api.asked


def test_wrong_usage_is_json_for_programs():
    for arguments in (("run", "--json"), ("nonsense", "--json"), ("run", "x", "--input", "{", "--json")):
        done = process(*arguments)
        assert done.returncode == 2
        assert json.loads(done.stdout)["error"]["code"] == "wrong_usage"
        assert not done.stderr


def test_a_file_that_cannot_be_read_is_named_without_error_numbers(cli):
    done = cli("run", "invoice", "--set", "document=@missing.txt")
    assert "cannot read missing.txt: No such file or directory" in done.stderr
    assert "Errno" not in done.stderr


def test_a_misspelt_workflow_is_corrected(cli):
    refused = cli("run", "invoic").exception
    assert isinstance(refused, Refused)
    assert refused.remedy == "Did you mean invoice?"
    assert cli("run", "payroll").exception.remedy == "Published: invoice."


def test_a_run_that_asks_for_nothing_cannot_be_approved(cli):
    refused = cli("approvals", "approve", OTHER).exception
    assert isinstance(refused, Refused)
    assert "asked for no approval" in refused.what


def test_a_folder_stands_for_the_workflows_in_it(cli, tmp_path):
    files = json.loads(cli("validate", "workflows", "--json").stdout)["files"]
    assert "workflows/invoice.yaml" in {file["file"] for file in files}
    assert cli("validate", str(tmp_path)).exit_code == 2


def test_examples_in_help_can_be_copied():
    done = process("run", "--help", COLUMNS="60")
    assert "  ./scripts/signalbox run invoice --set document=@workflows/samples/contoso-en.txt --watch\n" in done.stdout


def test_an_interrupted_up_says_how_to_go_on(cli, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "up", interrupted)
    done = cli("up")
    assert done.exit_code == 130
    assert "signalbox up goes on from here" in done.stderr


def test_modules_of_the_users_folder_are_not_run(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "cli.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "typer.py").write_text("raise SystemExit('the wrong one')")
    for script in ("signalbox", "demo"):
        command = [str(ROOT / "scripts" / script), "--help"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"Usage: {ROOT / 'scripts' / script} " in done.stdout


def test_a_folder_is_no_workflow_file(cli, tmp_path):
    refused = cli("run", f"{tmp_path}/").exception
    assert refused.what == f"{tmp_path} is a folder."


def test_a_file_that_is_not_there_is_refused_by_its_name(cli):
    done = cli("run", "workflows/nothing.yaml")
    assert isinstance(done.exception, Refused)
    assert "workflows/nothing.yaml" in done.exception.what


def test_lists_are_tables_or_json(cli, api):
    shown = cli("runs", "list", "--state", "paused").stdout
    assert RUN in shown
    assert api.asked[-1][2] == "state=paused&limit=20"
    assert json.loads(cli("runs", "list", "--json").stdout)["runs"][0]["id"] == RUN
    assert GATE["id"] in cli("approvals", "list").stdout


def test_show_tells_everything_and_obeys_no_markup_from_outside(cli):
    shown = cli("runs", "show", "latest").stdout
    audited = "extract by the run's usd ($ 0.30 needed, $ 0.10 left)"
    for part in (
        "$ 0.001349 of 0.50",
        audited,
        "1.50 s",
        "permanent: [no]",
        "Approve [bold]this[/bold]",
        "9727.2",
        "d1",
    ):
        assert part in shown


def test_approving_is_bound_to_what_was_shown(cli, api):
    done = cli("approvals", "approve", RUN, "--note", "fine")
    assert done.exit_code == 0
    assert api.asked[-1][2] == {"decision": "approve", "note": "fine", "digest": "d1"}
    cli("approvals", "reject", "latest", "--digest", "other")
    assert api.asked[-1][2] == {"decision": "reject", "note": "", "digest": "other"}


def test_changes_are_json_where_they_can_be(cli, api):
    done = cli("approvals", "edit", RUN, "--changes", '{"due": null}', "--set", "amount=12.5", "--set", "to=Contoso AG")
    assert done.exit_code == 0
    changes = {"due": None, "amount": 12.5, "to": "Contoso AG"}
    assert api.asked[-1][2] == {"decision": "edit", "note": "", "changes": changes, "digest": "d1"}


@pytest.mark.parametrize("given", [(), ("--set", "amount"), ("--changes", "[1]"), ("--changes", "{")])
def test_an_edit_without_changes_is_refused(cli, given):
    assert cli("approvals", "edit", RUN, *given).exit_code == 2


def test_how_many_have_approved_and_who_may_later_is_shown(cli):
    assert "1 of 2" in cli("approvals", "list").stdout
    shown = cli("approvals", "show", RUN).stdout
    for told in ("1 of 2 approvals: [b]eve", "may change", "to finance_lead at 2026-01-01T08:00:00.000Z"):
        assert told in shown


def test_resume_finds_the_only_paused_step_and_raises_limits(cli, api):
    done = cli("runs", "resume", RUN, "--raise-usd", "0.25", "--json")
    assert done.exit_code == 0
    assert api.asked[-1][2] == {"step": "extract", "action": "retry", "raise": {"usd": "0.25"}}
    cli("runs", "resume", RUN, "--action", "accept", "--result", '{"a": 1}')
    assert api.asked[-1][2] == {"step": "extract", "action": "accept", "result": {"a": 1}}


def test_cancel_passes_the_reason_on(cli, api):
    assert cli("runs", "cancel", RUN, "--reason", "mistake").exit_code == 0
    assert api.asked[-1][2] == {"reason": "mistake"}


def test_validate_tells_place_and_remedy_and_exits_with_1(cli, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("workflow: bad\nsteps:\n  a: {type: transfrom, set: {}}\n")
    done = cli("validate", str(bad), "workflows/invoice.yaml")
    assert done.exit_code == 1
    assert f"{bad}:3:" in done.stdout
    assert "transform" in done.stdout
    files = json.loads(cli("validate", str(bad), "workflows/invoice.yaml", "--json").stdout)["files"]
    assert [file["valid"] for file in files] == [False, True]
    assert files[0]["findings"][0]["line"] == 3


def test_compile_prints_the_machine(cli):
    machine = json.loads(cli("compile", "workflows/invoice.yaml").stdout)
    assert machine["StartAt"] in machine["States"]
    manifest = json.loads(cli("compile", "workflows/invoice.yaml", "--manifest").stdout)
    assert manifest["workflow"] == "invoice"
    assert json.loads(cli("compile", "workflows/invoice.yaml", "--summary", "--json").stdout)["steps"] == 6


def process(*arguments, **variables):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNALBOX_", "AWS_"))}
    command = [sys.executable, "-m", "scripts.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env | variables, capture_output=True, text=True, check=False)


def test_a_refusal_is_words_and_exit_code_1(tmp_path):
    done = process("runs", "list", SIGNALBOX_LOCAL_FOLDER=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "signalbox up" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refusal_is_json_for_programs(tmp_path):
    done = process("runs", "list", "--json", SIGNALBOX_LOCAL_FOLDER=str(tmp_path))
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "no_target"


def test_deploy_looks_at_the_environments_name_first():
    done = process("deploy", "--env", "nope", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (2, "wrong_usage")
    assert "'nope'" in error["message"]
    assert "dev, local, prod" in error["message"]


def test_deploy_needs_region_and_credentials(tmp_path):
    nowhere = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "HOME": str(tmp_path)}
    nowhere |= {"AWS_EC2_METADATA_DISABLED": "true"}
    done = process("deploy", "--env", "dev", **nowhere)
    assert (done.returncode, "region" in done.stderr) == (1, True)
    done = process("deploy", "--env", "dev", "--json", AWS_REGION="eu-central-1", **nowhere)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (1, "no_credentials")


def test_a_fault_of_our_own_shows_no_stack_trace(api):
    api.asked = None  # the server breaks, and answers with nothing at all
    url = f"http://127.0.0.1:{api.server_port}"
    done = process("runs", "cancel", RUN, SIGNALBOX_URL=url, SIGNALBOX_TOKEN="t")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "cannot be reached" in done.stderr
