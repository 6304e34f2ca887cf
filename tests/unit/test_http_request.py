"""``http.request`` against servers on this machine, most of them hostile."""

from __future__ import annotations

import gzip
import json
import socket
import time
import zlib

import pytest

from shared.errors import (
    PermanentFailure,
    RateLimited,
    StepTimeout,
    TooLarge,
    TransientFailure,
    UnclearAnswer,
    Unreached,
)
from shared.tools.builtin import builtin
from shared.tools.client import LARGEST_ANSWER, LARGEST_REQUEST
from shared.tools.means import Means
from shared.tools.registry import Call, invoke
from tests.unit.raw_server import RawServer, reply


def call(server=None, timeout=5.0, **settings):
    allowed = {"HTTP_ALLOWED_HOSTS": server.place} if server else {}
    return Call("key-1", "acme", "run", "step", timeout=timeout, settings={**allowed, **settings})


def ask(server, path="/", *, means=Means(), timeout=5.0, **arguments):  # noqa: B008 - frozen
    tool = builtin("http.request", means)
    return invoke(tool, {"url": server.url + path, **arguments}, call(server, timeout))


def answering(*parts):
    return RawServer(lambda _: parts)


def test_json_comes_back_as_json_and_everything_else_as_text():
    with answering(reply(b'{"a": [1, 2.5]}')) as server:
        assert ask(server)["body"] == {"a": [1, 2.5]}
    for kind in ("application/problem+json; charset=utf-8", "Application/JSON"):
        with answering(reply(b"[1]", content_type=kind)) as server:
            assert ask(server)["body"] == [1]
    for body, kind, wanted in (
        (b"plain", "text/plain", "plain"),
        (b"{broken", "application/json", "{broken"),
        (b"NaN", "application/json", "NaN"),
        (b"[" * 100_000, "application/json", "[" * 100_000),
        ("größe".encode("latin-1"), "text/plain; charset=latin-1", "größe"),
        (b"x\xff", "text/plain; charset=klingon", "x\N{REPLACEMENT CHARACTER}"),
    ):
        with answering(reply(body, content_type=kind)) as server:
            assert ask(server)["body"] == wanted


def test_what_is_sent_is_what_was_asked_for():
    with answering(reply(status="201 Created")) as server:
        sent = {"json": {"n": 1, "s": "ä"}, "headers": {"X-Mine": "yes"}, "query": {"a": "b c", "n": 3, "t": True}}
        assert ask(server, "/items?x=1", method="POST", **sent)["status"] == 201
        got = server.got[0]
    assert got.line == "POST /items?x=1&a=b+c&n=3&t=true HTTP/1.1"
    assert json.loads(got.body) == {"n": 1, "s": "ä"}
    assert got.headers["content-type"] == "application/json"
    assert (got.headers["x-mine"], got.headers["idempotency-key"], got.headers["host"]) == (
        "yes",
        "key-1",
        server.place,
    )
    assert "authorization" not in got.headers
    assert "cookie" not in got.headers


@pytest.mark.parametrize(("method", "has"), [("GET", False), ("HEAD", False), ("PUT", True), ("DELETE", True)])
def test_what_may_change_something_carries_the_key(method, has):
    with answering(reply(b"" if method == "HEAD" else b"{}")) as server:
        ask(server, method=method)
        assert ("idempotency-key" in server.got[0].headers) is has


def test_headers_that_hold_credentials_are_kept_back():
    answer = reply(set_cookie="session=1", www_authenticate="Basic", x_request_id="7", etag='"a"')
    with answering(answer) as server:
        assert set(ask(server)["headers"]) == {"content-type", "content-length", "x-request-id", "etag"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"headers": {"x": "a\r\nInjected: yes"}},
        {"headers": {"x\r\nInjected": "yes"}},
        {"headers": {"x": "a\0"}},
        {"headers": {"x y": "a"}},
        {"headers": {"Host": "elsewhere"}},
        {"headers": {"Content-Length": "3"}},
        {"headers": {"transfer-encoding": "chunked"}},
        {"headers": {"Idempotency-Key": "mine"}},
        {"json": 1, "body": "x"},
        {"json": float("nan")},
        {"headers": {"x": "Jörg"}},
        {"headers": {"x": " a"}},
        {"headers": {"x": "a\t"}},
        {"headers": {"x": "a" * 8_001}},
        {"headers": {"x": 3}},
        {"headers": ["x"]},
        {"path": "/\ud800"},
        {"path": "/?a=\udfff"},
        {"query": {"a": "\ud800"}},
        {"query": {"\ud800": "a"}},
        {"query": "a=b"},
        {"method": "POST", "body": "\ud800"},
        {"method": "POST", "body": 3},
        {"method": "POST", "json": {"a": "\ud800"}},
        {"expect": 200},
        {"method": "POST", "body": "x" * (LARGEST_REQUEST + 1)},
    ],
)
def test_a_request_that_cannot_be_right_is_not_sent(arguments):
    with answering(reply()) as server:
        with pytest.raises(PermanentFailure) as raised:
            ask(server, **arguments)
        assert raised.value.uncertain is False
        assert server.got == []


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example", ".a", "a-", f"{'a.' * 127}aa", "\ud800"])
def test_a_host_that_no_name_server_could_know_is_not_asked_for(host):
    with pytest.raises(PermanentFailure) as raised:
        invoke(builtin("http.request", Means()), {"url": f"https://{host}/"}, call())
    assert raised.value.uncertain is False


def test_an_address_that_is_no_text_is_not_asked_for():
    with pytest.raises(PermanentFailure) as raised:
        invoke(builtin("http.request", Means()), {"url": 3}, call())
    assert raised.value.uncertain is False


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 65_536 * 3, 1_000_000])
def test_a_compressed_answer_is_whole_or_none(size):
    whole = gzip.compress(b"a" * size)
    with answering(reply(whole, content_encoding="gzip", content_type="text/plain")) as server:
        assert ask(server)["body"] == "a" * size
    for end in (1, 8, 9, len(whole) - 11):
        cut = reply(whole[:-end], content_encoding="gzip")
        with answering(cut) as server, pytest.raises(UnclearAnswer, match="ends too early"):
            ask(server)


def test_what_stands_behind_a_compressed_answer_is_not_read():
    more = gzip.compress(b"body") + b"x" * (LARGEST_ANSWER * 4)
    with answering(reply(more, content_encoding="gzip", content_type="text/plain")) as server:
        assert ask(server)["body"] == "body"
    with answering(reply(b"", content_encoding="gzip", content_type="text/plain")) as server:
        assert ask(server)["body"] == ""


def test_line_breaks_in_a_query_stay_data():
    with answering(reply()) as server:
        ask(server, query={"q": "a\r\nHost: evil"})
        assert server.got[0].line == "GET /?q=a%0D%0AHost%3A+evil HTTP/1.1"


@pytest.mark.parametrize(
    ("status", "error", "uncertain"),
    [
        ("400 Bad Request", PermanentFailure, False),
        ("403 Forbidden", PermanentFailure, False),
        ("404 Not Found", PermanentFailure, False),
        ("408 Request Timeout", StepTimeout, True),
        ("429 Too Many Requests", RateLimited, False),
        ("500 Internal Server Error", TransientFailure, True),
        ("503 Service Unavailable", TransientFailure, True),
        ("302 Found", UnclearAnswer, True),
    ],
)
def test_a_status_is_a_class_of_failure(status, error, uncertain):
    with answering(reply(b'{"why": "because"}', status=status, retry_after="7")) as server:
        with pytest.raises(error, match=f"{status[:3]}.*because") as raised:
            ask(server, method="POST", json={})
        assert type(raised.value) is error
        assert raised.value.uncertain is uncertain
        assert raised.value.retry_after == (7.0 if status[:3] in {"429", "500", "503"} else None)


def test_expected_statuses_are_no_failures():
    with answering(reply(b'{"missing": true}', status="404 Not Found")) as server:
        assert ask(server, expect=[200, 404]) == {
            "status": 404,
            "headers": {"content-type": "application/json", "content-length": "17"},
            "body": {"missing": True},
        }
    with answering(reply(status="202 Accepted")) as server, pytest.raises(UnclearAnswer, match="expect"):
        ask(server, method="POST", json={}, expect=[200])


def test_a_refused_connection_has_surely_not_happened():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    given = {"url": f"http://127.0.0.1:{port}/", "method": "POST"}
    with pytest.raises(Unreached) as raised:
        invoke(builtin("http.request"), given, call(HTTP_ALLOWED_HOSTS=f"127.0.0.1:{port}"))
    assert raised.value.uncertain is False


def test_a_connection_that_is_lost_after_sending_leaves_doubt():
    with answering() as server:
        with pytest.raises(TransientFailure, match="lost") as raised:
            ask(server, method="POST", json={})
        assert raised.value.uncertain is True
        assert len(server.got) == 1, "the cascade is the only retry layer"


@pytest.mark.parametrize(
    "parts",
    [
        (30.0,),
        (b"HTTP/1.1 200 OK\r\n", 30.0),
        (reply(b"x" * 10)[:-5], 30.0),
        [b"HTTP/1.1 200 OK\r\nx: ", *[part for _ in range(300) for part in (b"a", 0.05)]],
        [
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            *[p for _ in range(300) for p in (b"1\r\nx\r\n", 0.05)],
        ],
    ],
    ids=["silent", "half a head", "half a body", "a head by drops", "a body by drops"],
)
def test_a_slow_answer_ends_at_the_deadline(parts):
    with answering(*parts) as server:
        began = time.monotonic()
        with pytest.raises(StepTimeout) as raised:
            ask(server, timeout=0.8)
        assert raised.value.uncertain is True
        assert time.monotonic() - began < 2


def test_a_name_server_that_does_not_answer_ends_at_the_deadline():
    def silent(host, port):
        time.sleep(10)

    began = time.monotonic()
    with pytest.raises(Unreached, match="not resolved in time"):
        invoke(builtin("http.request", Means(resolve=silent)), {"url": "https://example.com"}, call(timeout=0.4))
    assert time.monotonic() - began < 2


def endless():
    yield b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    for _ in range(LARGEST_ANSWER // 65_536 + 10):
        yield b"10000\r\n" + b"x" * 65_536 + b"\r\n"


def test_a_huge_answer_is_given_up():
    with RawServer(lambda _: endless()) as server, pytest.raises(TooLarge) as raised:
        ask(server)
    assert raised.value.uncertain is True


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_is_given_up(encoding):
    bomb = gzip.compress(b"\0" * 40_000_000, 1) if encoding == "gzip" else zlib.compress(b"\0" * 40_000_000, 1)
    with answering(reply(bomb, content_encoding=encoding)) as server, pytest.raises(TooLarge):
        ask(server)


def test_what_is_compressed_although_nobody_asked_is_read():
    with answering(reply(gzip.compress(b'{"a": 1}'), content_encoding="gzip")) as server:
        assert ask(server)["body"] == {"a": 1}
    with answering(reply(b"xxxx", content_encoding="gzip")) as server, pytest.raises(UnclearAnswer, match="decompr"):
        ask(server)
    with answering(reply(b"xxxx", content_encoding="br")) as server, pytest.raises(UnclearAnswer, match="not asked"):
        ask(server)


def test_a_redirect_is_followed_on_the_same_server_only():
    def moved(got):
        yield reply() if " /there " in got.line else reply(status="302 Found", location="/there")

    with RawServer(moved) as server:
        assert [ask(server, method=safe)["status"] for safe in ("GET", "HEAD", "OPTIONS")] == [200, 200, 200]
        with pytest.raises(UnclearAnswer):
            ask(server, method="POST", json={})
        assert ask(server, expect=[302])["status"] == 302
    with answering(reply(status="302 Found", location="/again")) as server:
        with pytest.raises(PermanentFailure, match="more than 3 times"):
            ask(server)
        assert len(server.got) == 4


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/",
        "http://127.0.0.1:1/",
        "https://elsewhere.example/",
        "//elsewhere.example:x",
        "file:" + "///etc/passwd",
        "next",
    ],
)
def test_a_redirect_leads_nowhere_else(location):
    with answering(reply(status="301 Moved Permanently", location=location)) as server:
        with pytest.raises(PermanentFailure):
            ask(server)
        assert all(" / " in got.line or " //elsewhere" in got.line for got in server.got)


def test_the_connection_goes_to_the_address_that_was_checked():
    asked = []

    def rebinding(host, port):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    with answering(reply()) as server:
        given = {"url": f"http://erp.internal:{server.port}/"}
        allowed = call(HTTP_ALLOWED_HOSTS=f"erp.internal:{server.port}")
        assert invoke(builtin("http.request", Means(resolve=rebinding)), given, allowed)["status"] == 200
        assert server.got[0].headers["host"] == f"erp.internal:{server.port}"
    assert asked == ["erp.internal"]


def test_a_public_name_that_leads_inside_is_not_connected_to():
    with answering(reply()) as server:
        given = {"url": "https://example.com/"}
        with pytest.raises(PermanentFailure, match="this machine itself"):
            invoke(builtin("http.request", Means(resolve=lambda *_: ["127.0.0.1"])), given, call())
        assert server.got == []


def test_no_proxy_of_the_environment_is_used(monkeypatch):
    with answering(reply()) as proxy, answering(reply(b'"direct"')) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert ask(server)["body"] == "direct"
        assert proxy.got == []


@pytest.mark.parametrize(
    "answer", [b"\x16\x03\x01garbage\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nx" * 9_000]
)
def test_what_is_no_http_is_a_lost_connection(answer):
    with answering(answer) as server, pytest.raises(TransientFailure) as raised:
        ask(server, method="POST", json={})
    assert raised.value.uncertain is True


def test_a_server_without_a_certificate_gets_no_request():
    with answering(b"no TLS here") as server:
        given = {"url": f"https://127.0.0.1:{server.port}/", "method": "POST", "json": {}}
        with pytest.raises(Unreached):
            invoke(builtin("http.request"), given, call(server))
        assert all("POST" not in got.line for got in server.got)
