"""Rules about built-in tools and MCP servers: what a call may claim to be, and what it must not leave open."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.definition.checks.registry import Context, Told, rule
from shared.definition.checks.tools import calls
from shared.definition.expressions import SECRET, ExpressionFailure, parts, slots, sole_slot
from shared.definition.models import Agent, ToolStep
from shared.definition.names import listed, nearest
from shared.errors import PermanentFailure
from shared.settings import MCP_SERVERS
from shared.tools import guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.definition.models import AgentTool
    from shared.definition.yaml_tree import Path
    from shared.errors import Finding

WRITES = frozenset({"s3.put", "sqs.send", "sns.publish", "events.put", "email.send", "slack.post"})
"""Built-in tools that change something whatever their arguments are."""
_WRITING = frozenset({"PUT", "PATCH", "DELETE"})
_ANYWHERE = frozenset({"http.request", "slack.post", "mcp.call", "email.send", "sql.query"})
"""Built-in tools whose arguments say whom they reach, or what they do there."""
_COMMENT = r"/\*(?!!)(?:(?!/\*).)*?\*/"
_POSTGRESQL = r"""[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|"""
_MYSQL = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`|--(?=\s)[^\n]*|#[^\n]*|"""
_QUOTED = tuple(re.compile(own + _COMMENT, re.DOTALL) for own in (_POSTGRESQL, _MYSQL))
"""Texts, quoted names and comments as PostgreSQL and as MySQL read them; a statement reads only if it does for both."""
_READS = re.compile(r"[\s(]*(?:SELECT|WITH|VALUES|TABLE|SHOW|EXPLAIN|DESCRIBE|DESC)\b", re.IGNORECASE)
_CHANGES = re.compile(
    r"\b(?:INSERT|(?<!FOR )(?<!FOR NO KEY )UPDATE|DELETE|MERGE|INTO|CREATE|ALTER|DROP|TRUNCATE|GRANT|CALL|EXECUTE)\b",
    re.IGNORECASE,
)
_TOOL = re.compile(r"[\x21-\x7e]{1,128}")


@rule("builtin_risk")
def builtin_risk(context: Context) -> Iterator[Told | Finding]:
    """What changes something does not call itself `read`."""
    for path, tool, risk, arguments in _risks(context):
        if risk != "read":
            continue
        method = str(arguments.get("method", "GET")).upper() if tool == "http.request" else ""
        what = f"`{tool}`{f' with {method}' if method in _WRITING else ''}"
        remedy = "Call it reversible with `compensate`, or irreversible behind a human_gate that approves it."
        if tool in WRITES or method in _WRITING:
            yield (*path, "risk"), f"{what} changes something, so it is no `read`", remedy
        elif _has_slot(method):
            told = "the method of `http.request` is an expression, so nobody can know that it is a `read`"
            yield (*path, "risk"), told, f"Write the method out. {remedy}"
        elif tool == "sql.query" and not only_reads(arguments.get("sql", "SELECT")):
            told = "`sql.query` is called `read` with a statement that may change something"
            yield (*path, "risk"), told, f"One statement that begins with SELECT or WITH is a read. {remedy}"
        elif method == "POST":
            told = "`http.request` with POST is called `read`: it would be repeated freely"
            remedy = "That is right only where the far side merely searches."
            yield replace(context.loaded.finding("builtin_risk", (*path, "risk"), told, remedy), severity="warning")


def only_reads(statement: Any) -> bool:
    """Tell whether a statement only reads, as far as its text can tell: what it names as `"delete"` is a name."""
    return all(_is_read(" ".join(quoted.sub(_space, str(statement)).split())) for quoted in _QUOTED)


def _space(quoted: re.Match[str]) -> str:
    return " " if quoted[0][:1] in "-#/" else " '' "


def _is_read(bare: str) -> bool:
    return bool(_READS.match(bare)) and ";" not in bare.rstrip("; ") and not _CHANGES.search(bare)


@rule("agent_builtin")
def agent_builtin(context: Context) -> Iterator[Told]:
    """A model does not choose whom the deployment talks to."""
    for path, tool in _offers(context):
        if tool.mcp is None and tool.tool in _ANYWHERE:
            remedy = "Write a tool of your own that fixes it"
            if tool.tool == "mcp.call":
                remedy = "Name the server's tool: `{mcp: server, tool: name, risk: ...}`"
            told = f"a model cannot be let call `{tool.tool}`: its arguments would say where it goes and what it does"
            yield (*path, "tool"), told, f"{remedy}."


@rule("http_url")
def http_url(context: Context) -> Iterator[Told | Finding]:
    """An address that is written out is one that may be reached."""
    for _, path, tool, arguments in calls(context):
        url = arguments.get("url")
        at = (*path, "with", "url")
        if tool == "slack.post" and not _is_secret(url):
            told = "the webhook of `slack.post` is a secret: who knows it can post"
            yield at, told, "Write `url: ${ secrets.NAME }`."
        elif tool == "http.request" and isinstance(url, str):
            yield from _url_faults(context, at, _written(url))


def _url_faults(context: Context, at: Path, url: str) -> Iterator[Told | Finding]:
    """Yield what is wrong with the part of a URL that is written out; empty if not even its host is."""
    if not url:
        return
    try:
        guard.named(url)
    except PermanentFailure as fault:
        yield at, str(fault), "Correct the URL."
        return
    try:
        guard.target_of(url, guard.Allowed())
    except PermanentFailure as fault:
        yield replace(context.loaded.finding("http_url", at, str(fault)), severity="warning")


def _written(url: str) -> str:
    """Return the beginning of a URL up to its first expression, if that does not stand in its host."""
    try:
        found = parts(url.strip())
    except ExpressionFailure:
        return ""
    first = found[0] if found and isinstance(found[0], str) else ""
    return first if len(found) < 2 or re.match(r"[a-z]+://[^/?#]+[/?#]", first) else ""  # noqa: PLR2004 - one part


def _is_secret(value: Any) -> bool:
    try:
        slot = sole_slot(value)
    except ExpressionFailure:
        return False
    return slot is not None and SECRET.fullmatch(slot.expression) is not None


@rule("sql_text")
def sql_text(context: Context) -> Iterator[Told]:
    """The text of a statement is the author's; values are parameters."""
    for _, path, tool, arguments in calls(context):
        if tool == "sql.query" and _has_slot(arguments.get("sql")):
            told = "the text of a statement holds `${ ... }`: a value could say something else than was meant"
            remedy = "Write `:name` there and give the value under `parameters`."
            yield (*path, "with", "sql"), told, remedy


def _has_slot(value: Any) -> bool:
    try:
        return next(iter(slots(value)), None) is not None
    except ExpressionFailure:
        return False


@rule("mcp_server")
def mcp_server(context: Context) -> Iterator[Told]:
    """An MCP server is one that the deployment names, and its tools have names."""
    for path, tool in _offers(context):
        if tool.mcp is not None and not _TOOL.fullmatch(tool.tool):
            yield (*path, "tool"), "no tool of a server has such a name", "Name it as the server lists it."
    for path, server in _servers(context):
        if context.servers is not None and server not in context.servers:
            known = nearest(server, context.servers) or f"Servers: {listed(sorted(context.servers))}."
            told = f"the deployment names no MCP server `{server}`"
            where = f"They stand in mcp_servers of infra/settings.py; for a run of a file, in the setting {MCP_SERVERS}"
            yield path, told, f"{known} {where}."


def _servers(context: Context) -> Iterator[tuple[Path, str]]:
    """Yield every MCP server that is written out."""
    for path, tool in _offers(context):
        if tool.mcp is not None:
            yield (*path, "mcp"), tool.mcp
    for _, path, tool, arguments in calls(context):
        server = arguments.get("server")
        if tool == "mcp.call" and isinstance(server, str) and not _has_slot(server):
            yield (*path, "with", "server"), server


def _offers(context: Context) -> Iterator[tuple[Path, AgentTool]]:
    for place in context.steps(Agent):
        yield from (((*place.at, "tools", index), tool) for index, tool in enumerate(place.step.tools))


def _risks(context: Context) -> Iterator[tuple[Path, str, str, dict[str, Any]]]:
    """Yield every call whose risk the author judges: its path, tool, risk, arguments."""
    for place in context.steps(ToolStep):
        yield place.at, place.step.tool, place.step.risk, place.step.arguments
    for path, tool in _offers(context):
        if tool.mcp is None:
            yield path, tool.tool, tool.risk, {}
