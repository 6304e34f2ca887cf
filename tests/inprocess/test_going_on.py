"""Whoever goes on with a run makes its calls where they were made before, and knows which version goes on."""

from __future__ import annotations

import json
import sqlite3
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from process import quiet_erp
from shell import ROOT, Shell

from scripts.commands.farside import of_run
from shared.inprocess.farside import FarSide

INVOICE = ("run", "workflows/invoice.yaml", "--set", "document=@workflows/samples/contoso-en.txt")
TOOLS = '''
import pathlib

from shared.errors import PermanentFailure
from shared.tools.registry import Call, tool


def note(call, what):
    with pathlib.Path(call.settings["FOLDER"], "calls.txt").open("a") as file:
        file.write(what + "\\n")


@tool
def look(*, call: Call) -> dict[str, str]:
    """Look."""
    note(call, "look")
    return {}


@tool
def put(what: str, *, call: Call) -> dict[str, str]:
    """Put."""
    note(call, "put " + what)
    return {"what": what}


@tool
def take(what: str, *, call: Call) -> dict[str, str]:
    """Take it back."""
    note(call, "take " + what)
    return {}


@tool
def fail(*, call: Call) -> dict[str, str]:
    """Fail."""
    raise PermanentFailure("broken")
'''
PUT = "type: tool, tool: put, risk: reversible, with: {what: x}, compensate: {tool: take, with: {what: x}}"
LOOK = "type: tool, tool: look, risk: read, with: {}"
GATE = "{type: human_gate, needs: [first], approvers: [finance], subject: Go on}"
ABOVE = "type: sub_workflow, workflow: below, with: {}"


def waiting(step, what="Waits."):
    return f"workflow: waits\ndescription: {what}\nsteps:\n  first: {{{step}}}\n  gate: {GATE}\n"


class Town:
    """A folder with a workflow and its tools, and shells on it."""

    def __init__(self, folder):
        self.folder, self.shell = folder, Shell(folder, SIGNALBOX_TOOL_FOLDER=str(folder))

    def write(self, text):
        if not (self.folder / "tools").exists():
            return self.shell.write("waits.yaml", text, TOOLS)
        (self.folder / "waits.yaml").write_text(text)
        return str(self.folder / "waits.yaml")

    def run(self, text, *more):
        return self.shell("run", self.write(text), "--until-human", *more)[-1]

    @property
    def calls(self):
        file = self.folder / "calls.txt"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def town(tmp_path):
    return Town(tmp_path)


# --- the same far side ----------------------------------------------------------------------------------------------


def waits_for_approval(tmp_path, *more, **variables):
    run = Shell(tmp_path, **variables)(*INVOICE, "--until-human", *more)[-1]["run"]
    shell = Shell(tmp_path)
    shell("approvals", "approve", run)
    return shell, run


def standing_in(tmp_path):
    """Return what the stand-in holds beside the store: nothing, unless it has been the ERP."""
    file = tmp_path / "erp.json"
    return json.loads(file.read_text()) if file.exists() else []


@pytest.fixture
def real(tmp_path):
    (tmp_path / "real").mkdir()
    made = quiet_erp(tmp_path / "real" / "erp.json")
    yield made
    made.shutdown()
    made.server_close()


@pytest.mark.parametrize("given", ["option", "environment"])
def test_a_run_that_is_gone_on_with_posts_where_it_was_told_to_at_its_start(tmp_path, real, given):
    more = ("--set-tool", f"ERP_URL={real.url}") if given == "option" else ()
    variables = {} if given == "option" else {"SIGNALBOX_TOOL_ERP_URL": real.url}
    shell, run = waits_for_approval(tmp_path, *more, **variables)
    assert shell("runs", "resume", run)[-1]["state"] == "completed"
    assert (len(real._documents), standing_in(tmp_path)) == (1, [])


def test_the_same_command_without_its_options_posts_there_too_and_with_others_says_so(tmp_path, real):
    shell, run = waits_for_approval(tmp_path, "--set-tool", "ERP_URL=http://127.0.0.1:9")
    lines = shell(*INVOICE, "--until-human", "--set-tool", f"ERP_URL={real.url}")
    assert (lines[0]["run"], lines[-1]["state"]) == (run, "completed")
    assert lines[0]["notes"] == {"ERP_URL": "another one than so far, which was http://127.0.0.1:9"}
    assert (len(real._documents), standing_in(tmp_path)) == (1, [])


def test_what_an_option_has_changed_stays_changed(tmp_path, real):
    shell, _ = waits_for_approval(tmp_path, "--set-tool", "ERP_URL=http://127.0.0.1:9", "--set-tool", "X=1")
    side = ("--set-tool", f"ERP_URL={real.url}", "--models-url", "http://127.0.0.1:9")
    assert "models were rehearsed" in shell.words(*INVOICE, "--until-human", *side)
    assert kept(tmp_path)["settings"] == {"ERP_URL": real.url, "X": "1"}
    assert (kept(tmp_path)["models"], kept(tmp_path)["models_url"]) == ("at", "http://127.0.0.1:9")


def kept(tmp_path):
    with sqlite3.connect(tmp_path / "runs.db") as file:
        ((body,),) = file.execute("SELECT body FROM items WHERE pk LIKE '%FARSIDE%'").fetchall()
    file.close()
    return json.loads(body)["side"]


def test_a_variable_of_another_shell_is_not_where_a_run_goes_on(tmp_path, real):
    _, run = waits_for_approval(tmp_path)
    other = Shell(tmp_path, SIGNALBOX_TOOL_ERP_URL=real.url, ANTHROPIC_API_KEY="k")
    told = other.words("runs", "resume", run)
    assert "ERP_URL: the stand-in, as the run began, not SIGNALBOX_TOOL_ERP_URL" in told
    assert "models: rehearsed, as the run began" in told
    assert (len(real._documents), len(standing_in(tmp_path))) == (0, 1)


POSTS = """workflow: posts
steps:
  post:
    type: tool
    tool: erp_post
    risk: reversible
    with: {vendor: v, number: n, due: d, currency: EUR, amount: 1, category: c}
    compensate: {tool: erp_void, with: {document: "${ steps.post.output.document }"}}
  gate: {type: human_gate, needs: [post], approvers: [finance], subject: Go on}
"""


def test_a_cancelled_run_is_undone_where_it_has_posted(tmp_path, real):
    file = Shell(tmp_path).write("posts.yaml", POSTS, (ROOT / "workflows" / "tools" / "erp.py").read_text())
    run = Shell(tmp_path)("run", file, "--until-human", "--set-tool", f"ERP_URL={real.url}")[-1]["run"]
    assert Shell(tmp_path)("runs", "cancel", run, code=1)[-1]["state"] == "cancelled"
    assert ([each["status"] for each in real._documents], standing_in(tmp_path)) == (["voided"], [])


@pytest.fixture
def models():
    """An address that refuses every request, and the keys that it was asked with."""
    asked = list[str]()

    class Far(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.headers["authorization"] or self.headers["x-api-key"])
            self.send_response(400)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Far) as far:
        Thread(target=far.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{far.server_port}", asked
        far.shutdown()


ASKS = """workflow: asks
budget: {usd: 1}
steps: {ask: {type: agent, model: claude-haiku-4-5, prompt: Hi, on_error: pause}}
"""


def test_models_are_asked_where_they_were_and_no_other_key_is_sent_there(tmp_path, models):
    (url, asked), file = models, tmp_path / "asks.yaml"
    file.write_text(ASKS)
    run = Shell(tmp_path)("run", str(file), "--until-human", "--models-url", url)[-1]["run"]
    first = len(asked)
    assert Shell(tmp_path, ANTHROPIC_API_KEY="mine")("runs", "resume", run)[-1]["state"] == "paused"
    assert (0 < first < len(asked), len(set(asked)), "mine" in str(asked)) == (True, 1, False)


def test_with_the_users_own_key_once_it_does_not_go_on_without(tmp_path, models):
    (url, asked), file = models, tmp_path / "asks.yaml"
    file.write_text(ASKS)
    run = Shell(tmp_path, ANTHROPIC_API_KEY="mine")("run", str(file), "--until-human", "--models-url", url)[-1]["run"]
    first = len(asked)
    error = Shell(tmp_path)("runs", "resume", run, code=1)[-1]["error"]
    assert (error["code"], "ANTHROPIC_API_KEY" in error["message"], len(asked)) == ("settings_missing", True, first)


def test_a_childs_calls_go_where_its_parents_do(town):
    town.shell.write("waits.yaml", waiting(ABOVE), TOOLS)
    (town.folder / "below.yaml").write_text(waiting(PUT).replace("workflow: waits", "workflow: below"))
    run = Shell(town.folder)(
        "run", str(town.folder / "waits.yaml"), "--until-human", "--set-tool", f"FOLDER={town.folder}"
    )[-1]["run"]
    child = next(step["child"] for step in Shell(town.folder).run(run)["steps"] if step["child"])
    assert Shell(town.folder)("runs", "cancel", child, code=1)[-1]["state"] == "cancelled"
    assert town.calls == ["put x", "take x"]


def test_what_may_be_secret_is_not_kept_and_asked_for_again(town):
    secret = ("--set-tool", "API_TOKEN=hush-hush", "--set-tool", "FAR=https://ann:hush-hush@example.test")
    run = town.run(waiting(PUT), *secret)["run"]
    for file in town.folder.glob("runs.db*"):
        assert not file.is_file() or b"hush-hush" not in file.read_bytes()
    error = town.shell("runs", "cancel", run, code=1)[-1]["error"]
    assert error["code"] == "settings_missing"
    assert "SIGNALBOX_TOOL_API_TOKEN, SIGNALBOX_TOOL_FAR" in error["message"]
    assert (f"runs resume {run}" in error["remedy"], town.calls) == (True, ["put x"])
    given = {"SIGNALBOX_TOOL_API_TOKEN": "hush-hush", "SIGNALBOX_TOOL_FAR": "x"}
    assert Shell(town.folder, **given)("runs", "resume", run, code=1)[-1]["state"] == "cancelled"
    assert town.calls == ["put x", "take x"]


# --- another version of the file ------------------------------------------------------------------------------------


def test_an_interrupted_run_that_has_changed_something_is_not_left_behind_when_its_file_changes(town):
    first = town.run(waiting(PUT))["run"]
    changed = town.write(waiting(PUT, "Waits for long."))
    error = town.shell("run", changed, "--until-human", code=1)["error"]
    assert (error["code"], f"Run {first} of version 1" in error["message"]) == ("interrupted_otherwise", True)
    assert f"runs resume {first}` goes on with it as it began; --new starts another" in error["remedy"]
    assert town.calls == ["put x"]
    lines = town.shell("run", changed, "--until-human", "--new")
    assert (lines[0]["run"] != first, town.calls) == (True, ["put x", "put x"])
    assert town.shell("runs", "resume", first)[-1]["state"] == "waiting_for_human"


def test_one_killed_inside_a_child_that_has_changed_something_is_not_left_behind_either(town):
    (town.folder / "below.yaml").write_text(waiting(PUT).replace("workflow: waits", "workflow: below"))
    first = town.run(waiting(ABOVE))["run"]
    error = town.shell("run", town.write(waiting(ABOVE, "More.")), "--until-human", code=1)["error"]
    assert (error["code"], first in error["message"], town.calls) == ("interrupted_otherwise", True, ["put x"])


def test_one_that_has_only_looked_is_told_of_and_another_starts(town):
    first = town.run(waiting(LOOK))["run"]
    changed = town.write(waiting(LOOK, "Waits for long."))
    started = town.shell("run", changed, "--until-human")[0]
    assert (started["run"] != first, started["new"]) == (True, True)
    assert f"run {first} of version 1, with the same input; it has changed nothing" in started["notes"]["not ended"]
    changed = town.write(waiting(LOOK, "Waits for ever."))
    told = town.shell.words("run", changed, "--until-human")
    assert f"not ended: run {started['run']} of version 2, with the same input; it has changed nothing outside" in told


FAILS = f"""workflow: waits
steps:
  first: {{{PUT}}}
  last: {{type: tool, needs: [first], tool: TOOL, risk: read, with: {{}}, on_error: fail}}
"""


def test_the_latest_version_of_a_files_run_is_the_file_as_it_stands(town):
    run = town.shell("run", town.write(FAILS.replace("TOOL", "fail")), code=1)[-1]["run"]
    town.write(FAILS.replace("TOOL", "look"))
    lines = town.shell("runs", "resume", run, "--version", "latest")
    assert (lines[0]["version"], lines[-1]["state"], town.shell.run(run)["version"]) == (2, "completed", 2)
    assert town.calls == ["put x", "take x", "put x", "look"]


def test_people_are_told_which_version_goes_on(town):
    run = town.shell("run", town.write(FAILS.replace("TOOL", "fail")), code=1)[-1]["run"]
    town.write(FAILS.replace("TOOL", "look"))
    assert f"Run {run} goes on as version 1; what was" in town.shell.words("runs", "resume", run, code=1)
    told = town.shell.words("runs", "resume", run, "--version", "latest")
    assert f"Run {run} goes on as version 2; what was completed stays." in told


def test_a_file_that_does_not_compile_is_no_version_to_go_on_with(town):
    run = town.shell("run", town.write(FAILS.replace("TOOL", "fail")), code=1)[-1]["run"]
    town.write(FAILS.replace("TOOL", "nowhere"))
    error = town.shell("runs", "resume", run, "--version", "latest", code=1)["error"]
    assert (error["code"], "nowhere" in error["message"], town.calls) == (
        "definition_refused",
        True,
        ["put x", "take x"],
    )
    town.write(FAILS.replace("TOOL", "look").replace("workflow: waits", "workflow: other"))
    error = town.shell("runs", "resume", run, "--version", "latest", code=1)["error"]
    assert (error["code"], town.shell.run(run)["epoch"]) == ("another_workflow", 1)
    assert town.calls == ["put x", "take x"]


def test_the_limit_that_is_short_is_the_one_to_raise(town):
    short = waiting(LOOK).replace("steps:\n", "budget: {steps: 1}\nsteps:\n", 1)
    short += f"  last: {{{LOOK}, needs: [first]}}\n"
    run = town.run(short)["run"]
    told = " ".join(town.shell.words("runs", "show", run).split())
    assert (
        f"raise the limit of steps that it would exceed: ./scripts/signalbox runs resume {run} --raise-steps 10" in told
    )


def test_a_variable_that_came_later_is_not_used_and_told_of(monkeypatch):
    monkeypatch.setenv("SIGNALBOX_TOOL_SHOP_URL", "http://other.test")
    side, notes = of_run("R", FarSide({"FOLDER": "f"}, "rehearsed"), (), None)
    assert side.settings == {"FOLDER": "f"}
    assert "not used" in notes["SHOP_URL"]


def test_a_copied_file_goes_on_with_the_tools_beside_it_and_none_goes_on_without_its_file(tmp_path):
    first, copy = Town(tmp_path / "first"), Town(tmp_path / "copy")
    runs = {"SIGNALBOX_RUNS": str(tmp_path / "runs.db")}
    asks = GATE.replace("needs: [first], ", "")
    text = f"workflow: waits\nsteps:\n  gate: {asks}\n  last: {{needs: [gate], {PUT}}}\n"
    for town, tools in ((first, TOOLS), (copy, TOOLS.replace('"put "', '"copied "'))):
        town.folder.mkdir()
        town.shell = Shell(town.folder, SIGNALBOX_TOOL_FOLDER=str(town.folder), **runs)
        town.shell.write("waits.yaml", text, tools)
    file = str(copy.folder / "waits.yaml")
    first.shell("run", str(first.folder / "waits.yaml"), "--until-human")
    run = copy.shell("run", file, "--until-human", "--new")[-1]["run"]
    (copy.folder / "waits.yaml").rename(copy.folder / "away.yaml")
    first.shell("approvals", "approve", run)
    assert first.shell("runs", "resume", run, code=1)["error"]["code"] == "no_file"
    (copy.folder / "away.yaml").rename(file)
    assert first.shell("runs", "resume", run)[-1]["state"] == "completed"
    assert (first.calls, copy.calls) == ([], ["copied x"])
