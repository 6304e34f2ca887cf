"""The tools of the workflow library, one by one."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts.local.erp import Erp
from shared.errors import PermanentFailure, RateLimited, StepFailure, StepTimeout, TransientFailure
from shared.tools.registry import Call, invoke, load_tools

TOOLS = load_tools(Path(__file__).parents[2] / "workflows" / "tools")
EFFECTS = {
    "send_reply": ({"customer": "c@example.com", "subject": "s", "body": "b"}, "reply"),
    "publish_post": ({"post": "p1"}, "published"),
    "hide_post": ({"post": "p1", "reason": "rude"}, "hidden"),
    "reimburse": ({"employee": "e", "amount": 12.5, "currency": "EUR"}, "reimbursement"),
    "book_expenses": ({"payment": "D1", "cost_centre": "4120", "amount": 12.5}, "booking"),
    "place_order": ({"vendor": "v", "article": "a", "quantity": 2, "total": 19.0}, "order"),
    "invite": ({"candidate": "c", "email": "c@example.com", "position": "p"}, "invitation"),
    "send_offer": ({"candidate": "c", "email": "c@example.com", "position": "p", "salary": 40000}, "offer"),
    "open_account": ({"candidate": "c", "starts": "2027-01-04"}, "account"),
    "file_contract": ({"title": "t", "parties": ["a", "b"], "clauses": [{"heading": "h", "text": "t"}]}, "contract"),
}


def call(url="", key="key-1", timeout=5.0):
    return Call(key, "acme", "run-1", "step", settings={"ERP_URL": url} if url else {}, timeout=timeout)


def use(name, arguments, made=None):
    return invoke(TOOLS[name], arguments, made or call())


@pytest.fixture
def office():
    server = Erp()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


# --- effects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EFFECTS)
def test_an_effect_is_kept_once_a_key_is_found_by_it_and_can_be_taken_back(office, name):
    arguments, kind = EFFECTS[name]
    made = call(office.url)
    first = use(name, arguments, made)
    assert use(name, arguments, made) == first
    assert use("erp_find", {"key": "key-1"}, made) == {"count": 1, **first}
    assert use(name, arguments, call(office.url, key="key-2")) != first
    assert use("erp_void", first, made)["status"] == "voided"
    (kept,) = (one for one in office._documents if one["key"] == "key-1")
    assert kept["body"] == {"kind": kind, **arguments}


@pytest.mark.parametrize(("url", "told"), [("", "Set ERP_URL"), ("ftp://office", "must begin with http")])
def test_a_missing_or_foreign_address_says_what_to_set(url, told):
    with pytest.raises(PermanentFailure, match=told):
        use("publish_post", {"post": "p1"}, call(url))


@pytest.mark.parametrize(
    ("fault", "failure", "told"),
    [
        ({"status": 429, "retry_after": 7}, RateLimited, "answered 429"),
        ({"status": 500}, TransientFailure, "answered 500"),
        ({"status": 408}, StepTimeout, "answered 408"),
        ({"status": 422}, PermanentFailure, "answered 422"),
        ({"hang_up": True}, TransientFailure, "was lost"),
        ({"delay": 1.3}, StepTimeout, "in time"),
    ],
)
def test_what_goes_wrong_becomes_the_right_failure(office, fault, failure, told):
    office.faults.set({"next": [fault]})
    with pytest.raises(StepFailure, match=told) as caught:
        use("publish_post", {"post": "p1"}, call(office.url, timeout=1.5))
    assert type(caught.value) is failure
    assert caught.value.retry_after == fault.get("retry_after")


def test_a_closed_port_is_transient():
    with pytest.raises(TransientFailure, match="cannot be reached"):
        use("publish_post", {"post": "p1"}, call("http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("body", "told"), [(b"<html>", "with JSON"), (b"[1]", "JSON object"), (b"{}", "no `document`")]
)
def test_a_strange_answer_says_what_to_check(body, told):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(201)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Keep the test's output quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.handle_request, daemon=True).start()
    with pytest.raises(PermanentFailure, match=told):
        use("publish_post", {"post": "p1"}, call(f"http://127.0.0.1:{server.server_port}"))
    server.server_close()


# --- pure ones ------------------------------------------------------------------------------------------------------


def test_every_topic_has_a_rule_and_an_unknown_one_promises_nothing():
    assert use("support_rule", {"topic": "refund"})["rule"].startswith("Unused goods")
    assert use("support_rule", {"topic": "weather"})["rule"].startswith("Promise nothing")


def test_a_reading_is_checked():
    assert use("check_reading", {"kind": "letter", "title": " Rent ", "dated": "2026-09-12"}) == {
        "title": "Rent",
        "year": 2026,
    }
    assert use("check_reading", {"kind": "letter", "title": "Rent", "dated": ""})["year"] == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"kind": "illegible"}, "Scan it again"), ({"title": " "}, "no title"), ({"dated": "12.9."}, "'12.9.' is none")],
)
def test_a_reading_that_cannot_be_filed_is_refused(changes, told):
    with pytest.raises(PermanentFailure, match=told):
        use("check_reading", {"kind": "letter", "title": "Rent", "dated": "", **changes})


def expense(**changes):
    return {"date": "2026-10-06", "category": "meal", "description": "Lunch", "amount": 14.2, **changes}


def test_expenses_are_added_exactly():
    cents = [expense(amount=0.1, date=f"2026-10-{day:02}") for day in range(1, 4)]
    assert use("check_expenses", {"expenses": cents}) == {"total": 0.3, "findings": []}


def test_unusual_expenses_are_found():
    claimed = [expense(amount=45), expense(amount=45), expense(category="taxi", amount=60.01, description="Taxi")]
    assert use("check_expenses", {"expenses": claimed})["findings"] == [
        "Taxi: 60.01 is more than 60 for taxi",
        "Lunch: the same amount was claimed twice for 2026-10-06",
    ]


@pytest.mark.parametrize(
    ("changes", "told"), [({"amount": 0}, "Lunch costs 0.00"), ({"date": "6 October"}, "no date but '6 October'")]
)
def test_impossible_expenses_are_refused(changes, told):
    with pytest.raises(PermanentFailure, match=told):
        use("check_expenses", {"expenses": [expense(**changes)]})


@pytest.mark.parametrize(
    ("vendor", "since", "blocked"),
    [
        ("Contoso Office Supplies Ltd", 2014, False),
        ("AURORA SISTEMAS, S.L.", 2022, False),
        ("Fabrikam Training Co.", 0, True),
        ("Contoso Office Suppliesque", 0, False),
    ],
)
def test_vendors_are_found_by_name(vendor, since, blocked):
    found = use("find_vendor", {"vendor": vendor})
    assert (found["since"], bool(found["blocked"])) == (since, blocked)


def test_results_are_json_of_the_declared_shape():
    for name, (arguments, _) in EFFECTS.items():
        assert TOOLS[name].parameters["required"] == list(arguments)
        assert json.dumps(TOOLS[name].returns["required"]) == '["document"]'
