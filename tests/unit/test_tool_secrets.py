"""What servers echo of secrets, and what is said of requests that hold them."""

from __future__ import annotations

import json
import traceback

import pytest

from shared.errors import PermanentFailure, StepFailure
from shared.runtime.secrets import Known
from shared.testing import FakeSecrets
from shared.tools.builtin import builtin
from shared.tools.host import ToolBox
from shared.tools.means import Means
from shared.tools.registry import Call, invoke
from tests.unit.mcp_server import McpServer, text
from tests.unit.raw_server import RawServer, reply

SECRET = "".join(chr(ord("A") + number % 26) + str(number) for number in range(40))


def server_of(url, token):
    settings = {"MCP_SERVERS": json.dumps({"crm": {"url": url, "secret": "crm_token"}})}
    return ToolBox({}, settings, Means(secrets=FakeSecrets(crm_token=[token])))


def called(tools, tool="find_customer"):
    given = {"server": "crm", "tool": tool, "arguments": {}}
    return tools.invoke("mcp.call", given, Call("key-1", "acme", "run", "step", timeout=5.0))


def test_a_token_is_sent_without_the_line_break_behind_it():
    with McpServer({"find_customer": text("got tok3n-value")}) as server:
        assert called(server_of(server.url, " tok3n-value\n")) == "got [redacted]"
        assert {got.headers["authorization"] for got in server.raw.got} == {"Bearer tok3n-value"}


@pytest.mark.parametrize("token", ["tok3n\nvalue", "tok3n\rvalue", "tok3n\0value", "tok3nvälue", "tok3n\ud800value"])
def test_a_token_that_cannot_be_sent_is_not_told(token):
    with McpServer() as server, pytest.raises(PermanentFailure, match="'authorization' has a value") as raised:
        called(server_of(server.url, token))
    assert raised.value.uncertain is False
    assert "tok3n" not in "".join(traceback.format_exception(raised.value))
    assert server.raw.got == []


@pytest.mark.parametrize("before", range(0, 310, 7))
def test_the_beginning_of_a_secret_does_not_stand_where_an_answer_is_cut(before):
    body = (b"x" * before + SECRET.encode()) * 3
    with RawServer(lambda _: [reply(body, status="400 Bad Request")]) as server:
        call = Call("key-1", "acme", "run", "step", settings={"HTTP_ALLOWED_HOSTS": server.place})
        known = Known({"url": f"{server.url}/", "headers": {"authorization": SECRET}}, (SECRET,))
        with pytest.raises(PermanentFailure) as raised:
            known.call(lambda given: invoke(builtin("http.request", Means()), given, call))
    assert SECRET[:4] not in str(raised.value)
    assert "answered GET with 400: " in str(raised.value)


@pytest.mark.parametrize("size", [480, 495, 990])
def test_the_beginning_of_a_token_does_not_stand_where_a_reason_is_cut(size):
    error = {"code": -32000, "message": "x" * size + SECRET}

    def refusing(got):
        return [reply(json.dumps({"id": json.loads(got.body)["id"], "error": error}).encode())]

    with RawServer(refusing) as server, pytest.raises(StepFailure) as raised:
        called(server_of(server.url, SECRET))
    assert SECRET[:4] not in str(raised.value)
    failed = {"find_customer": text("x" * size + SECRET, isError=True)}
    with McpServer(failed) as server, pytest.raises(StepFailure) as raised:
        called(server_of(server.url, SECRET))
    assert SECRET[:4] not in str(raised.value)


@pytest.mark.parametrize(
    "secret", ['pa"ss\\word', "Pa/ss+word ä", "pass\n  word", "Secret-Host.example", "pa'ss\tword"]
)
def test_a_secret_is_found_however_it_comes_back(secret):
    nested = json.dumps({"echo": secret})
    echoes = [
        secret,
        nested,
        json.dumps({"echo": secret}, ensure_ascii=False),
        nested.replace("/", "\\/"),
        repr(secret),
    ]
    found = Known({}, (secret,)).call(lambda _: {"echoes": [*echoes, secret.lower(), " ".join(secret.split())]})
    assert all("[redacted]" in echo and "ss" not in echo and "ecret" not in echo for echo in found["echoes"])


def test_a_secret_as_a_host_is_hidden_in_small_letters_too():
    known = Known("https://Secret-Host.invalid/", ("Secret-Host",))
    with pytest.raises(StepFailure) as raised:
        known.call(lambda url: invoke(builtin("http.request", Means()), {"url": url}, Call("k", "acme", "run", "step")))
    assert "ecret-" not in str(raised.value)


def test_texts_of_many_cuts_are_read_in_time():
    def fails(_):
        raise PermanentFailure("A1…" * 700)

    with pytest.raises(PermanentFailure):
        Known({}, (SECRET * 50,)).call(fails)
