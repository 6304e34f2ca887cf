import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shared.errors import PermanentFailure, RateLimited, StepFailure, StepTimeout, TransientFailure
from shared.tools.registry import Call, Tool, ToolError, invoke, load_tools

WORKFLOWS = Path(__file__).parents[2] / "workflows"
TOOLS = load_tools(WORKFLOWS / "tools")

# What a careful reader finds in each sample: issued, due, currency, net, tax, amount, lines.
SAMPLES = {
    "contoso-en": ("2026-11-03", "2026-12-03", "GBP", 8106.00, 1621.20, 9727.20, [4536.00, 3420.00, 150.00]),
    "nordlicht-de": ("2026-10-30", "2026-11-13", "EUR", 1483.40, 281.85, 1765.25, [1180.00, 264.50, 38.90]),
    "mistral-fr": ("2026-10-12", "2026-11-11", "EUR", 3022.00, 604.40, 3626.40, [1950.00, 660.00, 412.00]),
    "aurora-es": ("2026-11-02", "2026-12-02", "EUR", 5120.00, 1075.20, 6195.20, [3800.00, 1320.00]),
    "northwind-en": ("2026-10-31", "2026-11-30", "USD", 1100.00, 0, 1100.00, [780.00, 320.00]),
}


def call(url="", timeout=5.0):
    settings = {"ERP_URL": url} if url else {}
    return Call("key-1", "acme", "run-1", "post", settings=settings, timeout=timeout)


def invoice(**changes):
    issued, due, currency, net, tax, amount, lines = SAMPLES["nordlicht-de"]
    positions = [{"description": "x", "total": total} for total in lines]
    given = {"vendor": "Nordlicht", "number": "1", "issued": issued, "due": due, "currency": currency}
    return {**given, "net": net, "tax": tax, "amount": amount, "lines": positions, **changes}


def checked(**changes):
    return invoke(TOOLS["check_invoice"], invoice(**changes), call())


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_plausible_invoices(name):
    issued, due, currency, net, tax, amount, lines = SAMPLES[name]
    positions = [{"description": "x", "total": total} for total in lines]
    sums = {"net": net, "tax": tax, "amount": amount, "lines": positions}
    assert checked(issued=issued, due=due, currency=currency, **sums)["positions"] == len(lines)
    digits = "".join(one for one in (WORKFLOWS / f"samples/{name}.txt").read_text() if one.isdigit())
    assert f"{amount:.2f}".replace(".", "") in digits


def test_samples_lie_on_both_sides_of_the_limit():
    amounts = [sample[5] for sample in SAMPLES.values()]
    assert min(amounts) < 5000 < max(amounts)
    assert {path.stem for path in (WORKFLOWS / "samples").glob("*.txt")} == {*SAMPLES, "fabrikam-en-invalid"}


def test_an_invoice_that_cannot_be_right_is_refused_with_everything_that_is_wrong():
    lines = [{"description": "x", "total": 447.00}, {"description": "y", "total": 89.00}]
    wrong = {"number": " ", "issued": "2026-09-14", "due": "2026-08-01", "net": 563, "tax": 0, "amount": 563}
    with pytest.raises(PermanentFailure) as caught:
        checked(**wrong, currency="USD", lines=lines)
    for told in ("number is missing", "due on 2026-08-01, before", "sum up to 536.00, not to the net total 563.00"):
        assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"vendor": ""}, "vendor is missing"),
        ({"currency": "XXX"}, "currency 'XXX' is unknown"),
        ({"issued": ""}, "invoice date is missing"),
        ({"due": "13.11.2026"}, "due date '13.11.2026' is not a date"),
        ({"lines": []}, "no positions"),
        ({"amount": 0}, "amount 0.00 is not positive"),
        ({"tax": -1}, "tax -1.00 is negative"),
        ({"tax": 300}, "sum up to 1783.40, not to 1765.25"),
    ],
)
def test_each_fault_of_an_invoice_is_named(changes, told):
    with pytest.raises(PermanentFailure, match="cannot be posted") as caught:
        checked(**changes)
    assert told in str(caught.value)


def test_rounding_line_by_line_is_no_fault():
    assert checked(amount=1765.26)["days"] == 14


# --- the back office over HTTP -----------------------------------------------------------------------------------


class Erp(ThreadingHTTPServer):
    """Answers every request with the next of ``answers``; keeps what was asked."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []
        self.answers = []
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.release = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        self.server.asked.append((self.command, self.path, self.headers, self.rfile.read(length)))
        status, body, headers = self.server.answers.pop(0)
        if status == 0:
            self.server.release.wait(10)
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    do_GET = do_POST = answer  # noqa: N815 - the server looks for these names

    def log_message(self, *_):
        """Keep the test's output quiet."""


@pytest.fixture
def erp():
    server = Erp()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.release.set()
    server.shutdown()
    server.server_close()


POST = {"vendor": "V", "number": "1", "due": "2026-01-01", "currency": "EUR", "amount": 1.5, "category": "goods"}


def post(url, timeout=5.0):
    return invoke(TOOLS["erp_post"], POST, call(url, timeout))


def test_posting_sends_the_document_with_its_key(erp):
    erp.answers = [(201, {"document": "DOC-1", "status": "posted"}, {})]
    assert post(f"{erp.url}/") == {"document": "DOC-1"}
    method, path, headers, body = erp.asked[0]
    assert (method, path, headers["Idempotency-Key"]) == ("POST", "/documents", "key-1")
    assert json.loads(body) == POST


def test_voiding_and_finding(erp):
    erp.answers = [
        (200, {"document": "D/1", "status": "voided"}, {}),
        (200, {"count": 1, "documents": [{"document": "D/1"}]}, {}),
        (200, {"count": 0, "documents": []}, {}),
    ]
    assert invoke(TOOLS["erp_void"], {"document": "D/1"}, call(erp.url)) == {"document": "D/1", "status": "voided"}
    assert invoke(TOOLS["erp_find"], {"key": "a b&c"}, call(erp.url)) == {"count": 1, "document": "D/1"}
    assert invoke(TOOLS["erp_find"], {"key": "x"}, call(erp.url)) == {"count": 0, "document": ""}
    assert [path for _, path, *_ in erp.asked] == [
        "/documents/D%2F1/void",
        "/documents?key=a%20b%26c",
        "/documents?key=x",
    ]


@pytest.mark.parametrize(
    ("status", "body", "failure", "told"),
    [
        (429, {}, RateLimited, "answered 429"),
        (500, {}, TransientFailure, "answered 500"),
        (503, {}, TransientFailure, "answered 503"),
        (408, {}, StepTimeout, "answered 408"),
        (400, {"error": "no vendor"}, PermanentFailure, "no vendor"),
        (422, {}, PermanentFailure, "answered 422"),
        (200, b"<html>", PermanentFailure, "not answer with JSON"),
        (200, [1], PermanentFailure, "JSON object"),
        (201, {}, PermanentFailure, "no `document`"),
    ],
)
def test_answers_become_the_right_failures(erp, status, body, failure, told):
    erp.answers = [(status, body, {"Retry-After": "7"})]
    with pytest.raises(StepFailure, match=told) as caught:
        post(erp.url)
    assert type(caught.value) is failure
    assert caught.value.retry_after == (7 if status in (429, 500, 503) else None)


def test_silence_is_a_timeout_and_a_closed_port_is_transient(erp):
    erp.answers = [(0, b"", {})]
    with pytest.raises(StepTimeout):
        post(erp.url, timeout=1.2)
    erp.release.set()
    with pytest.raises(TransientFailure, match="cannot be reached"):
        post("http://127.0.0.1:9")


@pytest.mark.parametrize(("url", "told"), [("", "Set ERP_URL"), ("ftp://erp", "must begin with http")])
def test_a_missing_or_foreign_address_says_what_to_set(url, told):
    with pytest.raises(PermanentFailure, match=told):
        post(url)


# --- the registry -----------------------------------------------------------------------------------------------


def test_schemas_come_from_signatures():
    tool = TOOLS["check_invoice"]
    assert tool.parameters["required"] == list(tool.parameters["properties"])
    assert tool.parameters["properties"]["lines"]["items"] == {"$ref": "#/$defs/Line"}
    assert "call" not in TOOLS["erp_post"].parameters["properties"]
    assert TOOLS["erp_find"].returns["required"] == ["count", "document"]


@pytest.fixture
def module(tmp_path):
    head = "from __future__ import annotations\nfrom shared.tools.registry import Call, tool\n"

    def write(text, name="some.py"):
        (tmp_path / name).write_text(head + text)
        return tmp_path

    return write


def test_tools_are_found_with_their_cost(module):
    folder = module("@tool\ndef a() -> int:\n    return 1\n\n@tool(cost='0.01')\ndef b(x: int) -> int:\n    return x\n")
    module("@tool\ndef hidden() -> int:\n    return 1\n", "_helper.py")
    tools = load_tools(folder)
    assert {name: one.cost for name, one in tools.items()} == {"a": 0, "b": 10_000_000}
    assert load_tools(folder / "absent") == {}


def test_an_argument_says_what_it_means(module):
    head = "from typing import Annotated\nfrom pydantic import Field\nfrom typing_extensions import Doc\n"
    given = "a: Annotated[str, Doc('Who.')], b: Annotated[int, Field(description='How many.')], c: int"
    tool = load_tools(module(f"{head}@tool\ndef f({given}) -> int:\n    return 1\n"))["f"]
    told = {name: schema.get("description") for name, schema in tool.parameters["properties"].items()}
    assert told == {"a": "Who.", "b": "How many.", "c": None}
    assert invoke(tool, {"a": "x", "b": 1, "c": 1}, Call("k", "acme", "run", "step")) == 1


def test_two_tools_of_one_name_are_refused(module):
    module("@tool\ndef a() -> int:\n    return 1\n")
    with pytest.raises(ToolError, match="exists twice"):
        load_tools(module("@tool\ndef a() -> int:\n    return 1\n", "other.py"))


def test_a_module_that_does_not_import_says_why(module):
    with pytest.raises(ToolError, match="ZeroDivisionError"):
        load_tools(module("1 / 0\n"))


def test_invoke_wraps_what_tools_raise_and_return():
    def fails() -> None:
        raise KeyError("x")

    def limited() -> None:
        raise RateLimited("slow down", retry_after=3)

    def strange() -> object:
        return object()

    def infinite() -> float:
        return float("inf")

    def knows(*, call: Call) -> str:
        return call.idempotency_key

    assert invoke(Tool("knows", knows), {}, call()) == "key-1"
    with pytest.raises(PermanentFailure, match="`fails` failed: KeyError: 'x'"):
        invoke(Tool("fails", fails), {}, call())
    with pytest.raises(RateLimited):
        invoke(Tool("limited", limited), {}, call())
    for function in (strange, infinite):
        with pytest.raises(PermanentFailure, match="not JSON"):
            invoke(Tool(function.__name__, function), {}, call())
    with pytest.raises(PermanentFailure, match="cannot take these arguments"):
        invoke(Tool("fails", fails), {"x": 1}, call())
