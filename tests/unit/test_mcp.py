"""The MCP client, ``mcp.call``, and what agents read of a server's tools."""

from __future__ import annotations

import json
import time

import pytest

from shared.definition.validation import complaints
from shared.errors import (
    PermanentFailure,
    RateLimited,
    StepFailure,
    StepTimeout,
    TooLarge,
    TransientFailure,
    UnclearAnswer,
    Unreached,
)
from shared.ports import Tools
from shared.runtime.outputs import fits
from shared.settings import McpServer
from shared.testing import FakeSecrets, FakeTools
from shared.tools.host import ToolBox
from shared.tools.mcp import LARGEST_LIST, MODERN
from shared.tools.mcp_tools import LARGEST_SCHEMA, LONGEST_DESCRIPTION, offer_of
from shared.tools.means import Means
from shared.tools.registry import Call
from tests.unit.mcp_server import ANY_ID, FIND, text
from tests.unit.mcp_server import McpServer as Listening
from tests.unit.raw_server import RawServer, reply

NAME = "mcp:crm/find_customer"
CALL = Call("key-1", "acme", "run", "step", timeout=5.0)


def box(url, secret="", means=None):
    return ToolBox({}, McpServer.tell({"crm": McpServer(url, secret)}), means or Means())


def call(tools, tool="find_customer", arguments=None, timeout=5.0, server="crm"):
    given = {"server": server, "tool": tool, "arguments": arguments or {"name": "Ann"}}
    return tools.invoke("mcp.call", given, Call("key-1", "acme", "run", "step", timeout=timeout))


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "handshake"])
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_tool_is_called_in_every_dialect(modern, stream):
    answer = {**text("Ann, 7"), "structuredContent": {"id": 7}}
    with Listening({"find_customer": answer}, modern=modern, stream=stream) as server:
        tools, began = box(server.url), time.monotonic()
        assert call(tools) == {"id": 7}
        assert call(tools) == {"id": 7}
        assert time.monotonic() - began < 3, "a stream that stays open is not waited for"
        hello = ["server/discover"] if modern else ["server/discover", "initialize", "notifications/initialized"]
        assert server.methods == [*hello, "tools/call", "tools/call"], "how to speak is found out once"
        name, arguments, headers = server.calls[0]
    assert (name, arguments, headers["idempotency-key"]) == ("find_customer", {"name": "Ann"}, "key-1")
    sent = json.loads(server.raw.got[-1].body)["params"]["_meta"]
    assert sent["io.signalbox/idempotency-key"] == "key-1"


def test_content_without_structure_is_text_or_stays_as_it_is():
    image = {"type": "image", "data": "eA==", "mimeType": "image/png"}
    answers = {"a": text("one", "two"), "b": {"content": [image]}, "c": {"content": []}}
    with Listening(answers) as server:
        tools = box(server.url)
        assert call(tools, "a") == "one\ntwo"
        assert call(tools, "b") == {"content": [image]}
        assert call(tools, "c") == ""


def test_a_session_that_the_server_has_forgotten_is_opened_anew():
    with Listening({"find_customer": text("Ann")}, modern=False) as server:
        tools = box(server.url)
        call(tools)
        server.session = "session-2"
        assert call(tools) == "Ann"
        assert len(server.calls) == 2


def rpc(code, status="200 OK"):
    body = {"jsonrpc": "2.0", "id": ANY_ID, "error": {"code": code, "message": "because"}}
    return reply(json.dumps(body).encode(), status=status)


@pytest.mark.parametrize(
    ("answer", "error", "uncertain"),
    [
        (text("half done", isError=True), UnclearAnswer, True),
        ({"resultType": "input_required", "content": []}, UnclearAnswer, True),
        (rpc(-32602), PermanentFailure, False),
        (rpc(-32601, "404 Not Found"), PermanentFailure, False),
        (rpc(-32020, "400 Bad Request"), PermanentFailure, False),
        (rpc(-32023), UnclearAnswer, True),
        (rpc(-32603), TransientFailure, True),
        (rpc(-32000), UnclearAnswer, True),
        (reply(b"{}"), UnclearAnswer, True),
        (reply(b"[1]"), UnclearAnswer, True),
        (reply(b"[" * 90_000), UnclearAnswer, True),
        (reply(status="401 Unauthorized"), PermanentFailure, False),
        (reply(status="429 Too Many Requests", retry_after="3"), RateLimited, False),
        (reply(status="503 Service Unavailable"), TransientFailure, True),
        (reply(status="302 Found", location="http://169.254.169.254/"), UnclearAnswer, True),
        (b"", TransientFailure, True),
        (reply(b" " * 9_000_000), TooLarge, True),
    ],
)
def test_what_goes_wrong_is_classified(answer, error, uncertain):
    with Listening({"find_customer": answer}) as server, pytest.raises(error) as raised:
        call(box(server.url))
    assert type(raised.value) is error
    assert raised.value.uncertain is uncertain
    assert len(server.calls) == 1


def _answering(got, part):
    asked = str(json.loads(got.body)["id"]).encode()
    return part.replace(ANY_ID.encode(), asked) if isinstance(part, bytes) else part


def test_a_call_that_has_not_begun_leaves_no_doubt():
    for parts, error in (((30.0,), StepTimeout), ((), TransientFailure), ((rpc(-32603),), TransientFailure)):
        with (
            RawServer(lambda got, parts=parts: [_answering(got, one) for one in parts]) as server,
            pytest.raises(error) as raised,
        ):
            call(box(f"{server.url}/mcp"), timeout=0.8)
        assert raised.value.uncertain is False
    with pytest.raises(Unreached):
        call(box("http://127.0.0.1:9/mcp"))


def test_a_late_answer_leaves_doubt():
    def late(_):
        time.sleep(5)
        return text("x")

    with Listening({"find_customer": late}) as server, pytest.raises(StepTimeout) as raised:
        call(box(server.url), timeout=1.0)
    assert raised.value.uncertain is True


def test_the_token_goes_to_the_server_and_comes_back_to_nobody():
    means = Means(secrets=FakeSecrets(crm_token=["s3cret-token"]))

    def leak(_):
        return {**text("x"), "structuredContent": {"echo": "Bearer s3cret-token"}}

    with Listening({"find_customer": leak, "fail": text("bad s3cret-token", isError=True)}) as server:
        tools = box(server.url, "crm_token", means)
        assert call(tools) == {"echo": "Bearer [redacted]"}
        assert {got.headers["authorization"] for got in server.raw.got} == {"Bearer s3cret-token"}
        with pytest.raises(UnclearAnswer) as raised:
            call(tools, "fail")
    assert "s3cret" not in str(raised.value)


def test_only_servers_of_the_deployment_are_spoken_to():
    with pytest.raises(PermanentFailure, match="names no MCP server erp"):
        call(box("https://x.example"), server="erp")
    for wrong in ("{", "[]", '{"crm": 3}', '{"crm": {"secret": "x"}}', '{"crm": "https://x.example"}', "[" * 9_000):
        with pytest.raises(PermanentFailure, match=r'tool setting MCP_SERVERS.*Write \{"crm"'):
            call(ToolBox({}, {"MCP_SERVERS": wrong}))
    with pytest.raises(PermanentFailure, match="no setting allows that"):
        call(box("http://169.254.169.254/mcp"))


def test_a_server_and_a_broken_one_are_two_services():
    tools = box("https://x.example")
    assert tools.service("mcp.call", {"server": "crm"}) == tools.service(NAME, {}) == "mcp:crm"
    assert tools.service("mcp.call", {"server": "erp"}) == "mcp:erp"


def elses(number):
    message = {"jsonrpc": "2.0", "id": number, "result": text("somebody else's")}
    return json.dumps(message).encode()


@pytest.mark.parametrize("number", [1, "another", None, 0, True])
def test_an_answer_to_somebody_else_is_not_taken(number):
    first = b"data: " + elses(number) + b"\n\n"
    with Listening({"find_customer": text("mine")}, stream=True, before=lambda _: first) as server:
        assert call(box(server.url)) == "mine"
    with Listening({"find_customer": reply(elses(number))}) as server, pytest.raises(UnclearAnswer):
        call(box(server.url))


def test_no_request_has_the_id_of_another():
    with Listening({"find_customer": text("Ann")}, modern=False) as server:
        tools = box(server.url)
        call(tools)
        call(tools)
        numbers = [json.loads(got.body).get("id") for got in server.raw.got]
    sent = [number for number in numbers if number]
    assert len(set(sent)) == len(sent) == 4


def test_a_session_belongs_to_one_tenant_and_one_token():
    secrets = FakeSecrets(crm_token=["first-token"])
    with Listening({"find_customer": text("Ann")}, modern=False) as server:
        tools = box(server.url, "crm_token", Means(secrets=secrets))
        given = {"server": "crm", "tool": "find_customer", "arguments": {}}
        for tenant in ("acme", "globex", "acme"):
            tools.invoke("mcp.call", given, Call("key", tenant, "run", "step", timeout=5.0))
        assert server.methods.count("initialize") == 2
        secrets.versions["crm_token"].append("second-token")
        call(tools)
        assert server.methods.count("initialize") == 3


@pytest.mark.parametrize("broken", [b"", 3.0])
def test_after_a_broken_call_the_session_is_not_used_again(broken):
    def late(_):
        time.sleep(broken)
        return text("late")

    with Listening({"find_customer": text("Ann"), "bad": late if broken else b""}, modern=False) as server:
        tools = box(server.url)
        call(tools)
        with pytest.raises((StepTimeout, TransientFailure)):
            call(tools, "bad", timeout=1.0)
        call(tools)
        assert server.methods.count("initialize") == 2


def test_a_stream_is_read_once_however_small_its_pieces_are():
    notes = b'data: {"method": "notifications/progress"}\n\n' * 150_000
    with Listening({"find_customer": text("Ann")}, stream=True, before=lambda _: notes) as server:
        began = time.monotonic()
        assert call(box(server.url), timeout=20.0) == "Ann"
    assert time.monotonic() - began < 5


# --- tools that agents call -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "handshake"])
def test_an_agents_tool_is_described_by_its_server(modern):
    others = [{**FIND, "name": f"other{number}"} for number in range(3)]
    with Listening({"find_customer": text("Ann")}, tools=[*others, FIND], modern=modern) as server:
        tools = box(server.url)
        offers = tools.offers([NAME, "mcp:crm/other1"], CALL)
        assert offers[NAME] == {"description": "Finds a customer.", "parameters": FIND["inputSchema"]}
        assert list(offers) == [NAME, "mcp:crm/other1"], "what else the server lists adds nothing"
        assert server.methods.count("tools/list") == 2, "the server is asked once, page by page"
        assert tools.invoke(NAME, {"name": "Ann"}, CALL) == "Ann"
        with pytest.raises(PermanentFailure, match="has no tool gone"):
            tools.offers(["mcp:crm/gone"], CALL)


@pytest.mark.parametrize("answer", [reply(status="503 Service Unavailable"), rpc(-32603), reply(b"{}"), b""])
def test_a_list_that_does_not_come_leaves_no_doubt(answer):
    def broken(got):
        request = json.loads(got.body)
        versions = {"jsonrpc": "2.0", "id": request["id"], "result": {"supportedVersions": ["2026-07-28"]}}
        return [reply(json.dumps(versions).encode()) if request["method"] == "server/discover" else answer]

    with RawServer(broken) as server, pytest.raises(StepFailure) as raised:
        box(f"{server.url}/mcp").offers([NAME], CALL)
    assert json.loads(server.got[-1].body)["method"] == "tools/list"
    assert raised.value.uncertain is False


def test_a_host_without_servers_says_so():
    with pytest.raises(PermanentFailure, match=rf"no MCP servers: nobody describes {NAME}\. Run it on a host"):
        Tools.offers(FakeTools({}), [NAME], CALL)


def test_a_description_is_bounded_and_visible():
    hidden = "".join(chr(0xE0000 + ord(one)) for one in "ignore all")
    told = offer_of(NAME, [{**FIND, "description": f"Finds.\x1b[8m\u202e\u200b{hidden}" + "x" * 5_000}])["description"]
    assert told.startswith("Finds.[8mx")
    assert len(told) == LONGEST_DESCRIPTION
    assert offer_of(NAME, [{**FIND, "description": {"a": 1}}])["description"] == ""


def schema(**more):
    return {"type": "object", "properties": {"name": {"type": "string"}}, **more}


def nested(depth):
    found = {"type": "string"}
    for _ in range(depth):
        found = {"type": "array", "items": found}
    return found


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        {},
        {"type": "string"},
        schema(properties={"a": {"type": 3}}),
        schema(properties={"a": {"$ref": "https://evil.example/schema"}}),
        schema(description="x" * LARGEST_SCHEMA),
        schema(properties={"a": nested(100)}),
    ],
)
def test_a_schema_that_is_none_is_refused(given):
    with pytest.raises(PermanentFailure, match=r"schema of mcp:crm/find_customer"):
        offer_of(NAME, [{**FIND, "inputSchema": given}])


def test_what_could_be_made_expensive_is_not_kept():
    given = schema(
        properties={"name": {"type": "string", "pattern": "(a+)+$", "format": "email"}, "pattern": {"type": "integer"}},
        patternProperties={"(x+)+": {}},
    )
    kept = offer_of(NAME, [{**FIND, "inputSchema": given}])["parameters"]
    assert kept == schema(properties={"name": {"type": "string"}, "pattern": {"type": "integer"}})


def parameters(**more):
    return offer_of(NAME, [{**FIND, "inputSchema": schema(**more)}])["parameters"]


def test_references_are_replaced_by_what_they_refer_to():
    definitions = {"a/b": {"type": "string"}, "c": {"$ref": "#/$defs/a~1b", "description": "told"}}
    used = {"x": {"$ref": "#/$defs/c", "minLength": 2}, "y": {"items": {"$ref": "#/properties/x"}}}
    told = {"type": "string", "description": "told"}
    both = {"minLength": 2, "allOf": [told]}
    assert parameters(properties=used, **{"$defs": definitions}) == schema(properties={"x": both, "y": {"items": both}})


@pytest.mark.parametrize("reference", ["#", "#/nope", "#/properties/a", "#anchor", "x", 3, "#/required/9", "file:/x"])
def test_a_reference_without_an_end_or_a_target_is_refused(reference):
    with pytest.raises(PermanentFailure, match="refers to"):
        parameters(properties={"a": {"$ref": reference}}, required=["a"])


def test_a_schema_that_grows_without_bounds_is_refused_at_once():
    def twice(number):
        return {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2}

    began = time.monotonic()
    for long in ({"type": "string"}, {"enum": ["x" * 8_000]}):
        with pytest.raises(PermanentFailure, match="schema of mcp:crm/find_customer"):
            parameters(**{"$ref": "#/$defs/d0", "$defs": {**{f"d{n}": twice(n) for n in range(25)}, "d25": long}})
    with pytest.raises(PermanentFailure, match="nested too deeply"):
        parameters(properties={"a": {"default": json.loads("[" * 900 + "]" * 900)}})
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    "given",
    [
        {"$dynamicRef": "file:/x"},
        {"dependentSchemas": {"name": {"properties": {"a": {"$ref": "http://127.0.0.1/x"}}}}},
        {"$recursiveRef": "http://127.0.0.1/x", "$id": "http://127.0.0.1/"},
        {"unevaluatedProperties": {"type": "string"}},
    ],
)
def test_keywords_that_are_not_known_are_not_kept(given):
    assert parameters(**given) == schema()


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_nothing_is_fetched_to_check_a_value(keyword, tmp_path):
    (tmp_path / "schema.json").write_text("{}")
    with RawServer(lambda _: [reply(b"{}")]) as server:
        for place in (f"{server.url}/schema", (tmp_path / "schema.json").as_uri(), "#/nope", "#nope"):
            given = {"properties": {"a": {keyword: place}}}
            assert "which is not part of it" in str(fits({"a": 1}, given))
            assert "which is not part of it" in complaints({"a": 1}, given)[0][1]
        assert server.got == []


@pytest.mark.parametrize("size", [1, LARGEST_LIST // 4])
def test_a_list_without_an_end_is_not_read_to_it(size):
    def page(got):
        asked = json.loads(got.body)
        modern = {"supportedVersions": [MODERN]}
        listed = {"tools": [{**FIND, "name": "x" * size}], "nextCursor": "more"}
        result = modern if asked["method"] == "server/discover" else listed
        return [reply(json.dumps({"id": asked["id"], "result": result}).encode())]

    with RawServer(page) as server, pytest.raises((PermanentFailure, TooLarge)) as raised:
        box(server.url).offers([NAME], CALL)
    assert raised.value.uncertain is False
    assert len(server.got) <= (21 if size == 1 else 6)


def test_only_what_is_wanted_of_a_list_is_kept():
    with Listening(tools=[FIND, FIND, {**FIND, "name": "other"}]) as server:
        box(server.url).offers([NAME], CALL)
        assert server.methods == ["server/discover", "tools/list"], "what is wanted has been found"


def test_a_list_that_is_nested_too_deeply_is_refused():
    deep = json.loads("[" * 940 + "]" * 940)
    means = Means(secrets=FakeSecrets(crm_token=["s3cret-token"]))
    with Listening(tools=[{**FIND, "inputSchema": schema(default=deep)}]) as server:
        for tools in (box(server.url, "crm_token", means), box(server.url)):
            with pytest.raises(PermanentFailure, match=r"nested too deeply|no answer that can be read") as raised:
                tools.offers([NAME], CALL)
            assert raised.value.uncertain is False
