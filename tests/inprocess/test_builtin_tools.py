"""Built-in tools and a server's tools in runs of a file: servers on this machine, a rehearsed model."""

from __future__ import annotations

import json

from shell import Shell

from tests.unit.mcp_server import McpServer, text
from tests.unit.raw_server import RawServer, reply

FILE = """
workflow: desk
input: {type: object, required: [base], properties: {base: {type: string}}}
budget: {usd: 1, steps: 40}
steps:
  rates:
    type: tool
    tool: http.request
    with: {url: "${ input.base }/rates", headers: {authorization: "Bearer ${ secrets.rates }"}}
    risk: read
  known:
    type: tool
    needs: [rates]
    tool: mcp.call
    with: {server: crm, tool: find_customer, arguments: {name: Ann}}
    risk: read
  answer:
    type: agent
    needs: [known]
    model: claude-haiku-4-5
    prompt: "Customer ${ steps.known.output.id }, rate ${ steps.rates.output.body.eur }"
    max_turns: 3
    tools: [{mcp: crm, tool: find_customer, risk: read}]
    output: {type: object, required: [answer], properties: {answer: {type: string}}}
"""
SCRIPT = """
workflow: desk
rules:
  - name: look
    when: {tools: [mcp-crm-find_customer], results: 0}
    call: {tool: mcp-crm-find_customer}
    set: {name: Bob}
  - {name: answer, when: {schema_has: [answer]}, set: {answer: done}}
"""


def folder_of(tmp_path):
    (tmp_path / "fixtures" / "rehearsal").mkdir(parents=True)
    (tmp_path / "fixtures" / "rehearsal" / "desk.yaml").write_text(SCRIPT)
    (tmp_path / "desk.yaml").write_text(FILE)
    return tmp_path


def test_a_file_uses_http_and_a_server_without_any_cloud(tmp_path):
    def customer(arguments):
        return {**text("found"), "structuredContent": {"id": f"C-{arguments['name']}"}}

    with RawServer(lambda _: [reply(b'{"eur": 1.5}')]) as web, McpServer({"find_customer": customer}) as server:
        settings = {
            "SIGNALBOX_TOOL_HTTP_ALLOWED_HOSTS": web.place,
            "SIGNALBOX_TOOL_MCP_SERVERS": json.dumps({"crm": {"url": server.url, "secret": "crm"}}),
            "SIGNALBOX_SECRET_RATES": "rates-secret",
            "SIGNALBOX_SECRET_CRM": "crm-secret",
        }
        shell = Shell(folder_of(tmp_path), **settings)
        file = str(tmp_path / "desk.yaml")
        lines = shell("run", file, "--set", f"base={web.url}")
        run = shell.run(lines[0]["run"])
        assert run["state"] == "completed"
        assert web.got[0].headers["authorization"] == "Bearer rates-secret"
        assert {got.headers["authorization"] for got in server.raw.got} == {"Bearer crm-secret"}
        assert [arguments["name"] for _, arguments, _ in server.calls] == ["Ann", "Bob"]
        planned = json.loads(shell.words("plan", file, "--json"))
    steps = {step["path"]: step for step in run["steps"]}
    assert steps["answer/turn[1]/call[0]"]["output"] == {"id": "C-Bob"}
    assert planned["services"] == ["mcp:crm", "tool:http.request"]


def test_a_host_that_is_not_allowed_and_a_tool_without_credentials_say_so(tmp_path):
    file = tmp_path / "w.yaml"
    step = "{type: tool, risk: read, retry: {max_retries: 0}, on_error: fail, tool: "
    shell = Shell(tmp_path, AWS_EC2_METADATA_DISABLED="true", HOME=str(tmp_path))
    for told, wanted in (
        ("http.request, with: {url: 'http://127.0.0.1:9/x'}}", "HTTP_ALLOWED_HOSTS"),
        ("s3.get, with: {bucket: b, key: k}}", "needs AWS credentials"),
    ):
        file.write_text(f"workflow: w\nsteps:\n  a: {step}{told}\n")
        said = shell.words("run", str(file), code=1)
        assert wanted in said
