"""The commands that read files, and the MCP servers that they know of."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from scripts.cli import app

SERVERS = {"MCP_SERVERS": json.dumps({"crm": {"url": "https://crm.example/mcp"}})}
ASKS = "workflow: w\nsteps:\n  a: {type: tool, tool: mcp.call, risk: read, with: {server: crn, tool: find}}\n"


def cli(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"NO_COLOR": "1"})


def said(done):
    """What a command told; its refusal is reported around it."""
    return f"{done.output} {done.exception}"


@pytest.mark.parametrize("command", ["validate", "plan", "compile", "run"])
def test_servers_are_checked_where_their_names_are_known(tmp_path, monkeypatch, command):
    file = tmp_path / "w.yaml"
    file.write_text(ASKS)
    monkeypatch.setenv("SIGNALBOX_TOOL_MCP_SERVERS", SERVERS["MCP_SERVERS"])
    done = cli(command, str(file))
    assert done.exit_code == 1
    assert "names no MCP server `crn`" in said(done)
    assert "Did you mean `crm`?" in said(done)
    monkeypatch.setenv("SIGNALBOX_TOOL_MCP_SERVERS", '{"crm": {"url": "ftp://crm.example"}}')
    done = cli(command, str(file))
    assert done.exit_code == 1
    assert "server crm: The URL must begin with https://" in said(done)


def test_set_tool_names_servers_too(tmp_path):
    file = tmp_path / "w.yaml"
    file.write_text(ASKS)
    done = cli("run", str(file), "--set-tool", f"MCP_SERVERS={SERVERS['MCP_SERVERS']}")
    assert (done.exit_code, "names no MCP server `crn`" in said(done)) == (1, True)


def test_servers_that_nobody_names_are_left_unchecked(tmp_path, monkeypatch):
    monkeypatch.delenv("SIGNALBOX_TOOL_MCP_SERVERS", raising=False)
    file = tmp_path / "w.yaml"
    file.write_text(ASKS)
    assert cli("validate", str(file)).exit_code == 0
