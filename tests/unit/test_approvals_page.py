"""What the approval page shows, to whom, under which headers; looking decides nothing."""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from shared.approvals.host import ApprovalsHost
from shared.approvals.letters import LINK_LIFE
from shared.approvals.links import Link, sign
from shared.approvals.pages import respond
from shared.ports import Write
from shared.runtime.ending import request
from shared.runtime.journal import Change
from tests.unit.page_client import FORM, send, status, text, token, visit
from tests.unit.waiting_run import APPROVERS, FIONA, INVOICE, KEY, OMAR, waiting

VOID = {"meta", "link", "input", "br", "rect", "circle"}


# what it shows


def test_the_page_shows_what_is_asked_of_whom_and_until_when():
    shown = text(visit(waiting()))
    for expected in (
        "Approve invoice from Contoso Büromöbel GmbH",
        "Workflow invoice , version 1",
        "Started by ina@example.com",
        "22 September 2026, 14:13 UTC",
        "in 23 hours 59 minutes",
        "erp_post",
        "reversible",
        "8420.5",
        "EUR",
        "Desk",
        "USD 0.0017 of USD 0.50",
        "1,050 of 60,000",
        "1 of 20",
        "This link is for Fiona Ångström",
        "Fiona Ångström, Omar Lead",
    ):
        assert expected in shown, expected


def test_the_page_shows_the_digest_that_the_approval_is_bound_to():
    world = waiting()
    (gate,) = world.journal().read_all().gates()
    assert text(visit(world)).count(gate.digest) == 1
    assert f'name="digest" value="{gate.digest}"' in visit(world).body


def test_arguments_too_large_for_the_record_are_shown_all_the_same():
    world = waiting({**INVOICE, "vendor": "V" * 20_000})
    (gate,) = world.journal().read_all().gates()
    assert gate.arguments.blob is not None
    assert "V" * 20_000 in visit(world).body


def test_the_page_travels_under_strict_headers():
    answer = visit(waiting())
    style = re.findall(r"(?s)<style>(.*?)</style>", answer.body)[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["strict-transport-security"].startswith("max-age=")


def test_the_page_asks_for_nothing_from_elsewhere_and_runs_nothing():
    for answer in (visit(waiting()), visit(waiting(), token="x")):
        assert "<script" not in answer.body
        assert not re.search(r"""\s(?:src|action|style|on\w+)=""", answer.body)
        assert {link for link in re.findall(r'href="([^"]*)"', answer.body) if not link.startswith("#")} == set()


class Outline(HTMLParser):
    """Collects what a screen reader needs, and checks that elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_accessible():
    world = waiting()
    for answer in (visit(world), send(world, signature="x"), send(world), visit(world, token="x")):
        outline = Outline()
        outline.feed(answer.body)
        assert outline.open == []
        tags = [tag for tag, _ in outline.seen]
        assert (tags.count("h1"), tags.count("main")) == (1, 1)
        assert ("html", {"lang": "en"}) in outline.seen
        assert 'name="viewport" content="width=device-width' in answer.body
        ids = [attributes["id"] for _, attributes in outline.seen if "id" in attributes]
        assert len(ids) == len(set(ids))
        labels = {attributes.get("for") for tag, attributes in outline.seen if tag == "label"}
        for tag, attributes in outline.seen:
            if tag in {"input", "textarea"} and attributes.get("type") != "hidden":
                assert attributes["id"] in labels
            for reference in ("aria-labelledby", "aria-describedby"):
                assert set((attributes.get(reference) or "").split()) <= set(ids)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_has_contrast_in_both_schemes(scheme: int):
    style = re.findall(r"(?s)<style>(.*?)</style>", visit(waiting()).body)[0]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", re.findall(r"(?s):root \{(.*?)\}", style)[scheme]))
    pairs = [("ink", "page"), ("ink", "card"), ("soft", "page"), ("soft", "card"), ("ink", "well"), ("red", "card")]
    pairs += [("brand-ink", "brand"), ("brand-ink", "brand-hover"), ("brand", "card")]
    pairs += [(name, f"{name}-well") for name in ("amber", "green", "red", "grey")]
    for front, back in pairs:
        light, dark = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (front, back)


def test_whatever_an_invoice_says_stays_text():
    world = waiting({**INVOICE, "vendor": '<script>alert(1)</script> "x" \u202egpj.exe\u202c \x07'})
    body = visit(world).body
    assert "<script" not in body
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in body
    assert "\u202e" not in body
    assert "\\u202egpj.exe" in body
    assert "\x07" not in body


# looking


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_looking_decides_nothing(method: str):
    world = waiting()
    before = dict(world.store.items)
    query = {"decision": "approve", "signature": "FÅ"}
    for _ in range(3):
        answer = visit(world, method, queryStringParameters=query, body=urlencode(query), headers=FORM)
        assert answer.status == 200
        assert (answer.body == "") == (method == "HEAD")
    assert world.store.items == before
    assert [kind for _, kind, _ in world.engine.answers] == []


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(method: str):
    answer = visit(waiting(), method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")


# links that lead nowhere any more


@pytest.mark.parametrize("bad", ["x", "a.b", "%2e%2e", "a" * 3000, "<script>", "\r\nx: y"])
def test_an_unknown_link_gets_a_clear_page(bad: str):
    answer = visit(waiting(), token=bad)
    assert answer.status == 404
    assert "This link leads nowhere" in text(answer)
    assert not any("\n" in value for value in answer.headers.values())


def test_a_link_of_a_run_that_does_not_exist_gets_a_clear_page():
    world, other = waiting(), waiting()
    assert visit(world, token=token(other)).status == 404


def test_an_expired_request_can_no_longer_be_decided():
    world = waiting()
    digest = re.findall(r'name="digest" value="(\w+)"', visit(world).body)[0]
    world.clock.sleep(24 * 3600)
    shown = visit(world)
    assert (shown.status, "<form" in shown.body) == (410, False)
    assert "nobody had decided" in text(shown)
    body = urlencode({"decision": "approve", "signature": "FÅ", "digest": digest})
    assert visit(world, "POST", body=body, headers=FORM).status == 410
    assert status(world) == "open"


def test_a_link_ends_a_month_after_its_request():
    world = waiting()
    send(world)
    world.clock.sleep(24 * 3600 + LINK_LIFE / 1000)
    answer = visit(world)
    assert answer.status == 410
    assert "This link has expired" in text(answer)


def test_a_link_decides_only_what_its_mail_was_about():
    world = waiting()
    page = visit(world)
    send(world)
    journal = world.journal()
    gate = journal.read_all().gates()[0]
    again = replace(gate, id="another", status="open", decided=None, by=None)
    journal.transact(journal.read_all(), lambda _: Change(None, (again,)))
    digest = re.findall(r'name="digest" value="(\w+)"', page.body)[0]
    body = urlencode({"decision": "approve", "signature": "FÅ", "digest": digest})
    for answer in (visit(world), visit(world, "POST", body=body, headers=FORM)):
        assert (answer.status, "<form" in answer.body) == (410, False)
        assert "asked once more" in text(answer)
    assert status(world) == "open"


def test_a_link_of_an_older_version_leads_to_its_gates_first_request():
    world = waiting()
    gate = world.journal().read_all().gates()[0]
    run = world.journal().read(["RUN"]).run
    old = sign(Link(run.tenant, run.id, gate.path, "", FIONA.email, gate.expires), KEY)
    assert visit(world, token=old).status == 200
    world.journal().transact(world.journal().read_all(), lambda _: Change(None, (replace(gate, id="another"),)))
    assert visit(world, token=old).status == 410


def test_a_request_of_a_cancelled_run_says_so():
    world = waiting()
    request(world.api, world.journal(), "cancelled", "by a test", "unwind")
    answer = visit(world)
    assert (answer.status, "<form" in answer.body) == (410, False)
    assert "The run ended before anybody decided" in text(answer)


def test_whoever_started_the_run_sees_it_and_cannot_decide():
    world = waiting()
    (key,) = [key for key in world.store.items if key.sk == "GATE#review"]
    gate = world.store.items[key]
    world.store.commit([Write(key, {**gate, "excluded": FIONA.email}, gate["rev"])])
    assert "You started this run" in text(visit(world))
    digest = gate["digest"]
    body = urlencode({"decision": "approve", "signature": "FÅ", "digest": digest})
    assert visit(world, "POST", body=body, headers=FORM).status == 403
    assert status(world) == "open"


def test_whoever_is_no_approver_any_more_cannot_use_an_old_link():
    world = waiting()
    link = token(world)
    left = {"finance": (OMAR,), "legal": (FIONA,)}
    host = ApprovalsHost(**world.parts(), link_key=KEY, approvers=left)
    event = {"rawPath": f"/approve/{link}", "requestContext": {"http": {"method": "GET"}}}
    assert respond(lambda: host, event).status == 403
    assert set(APPROVERS["finance"]) == {FIONA, OMAR}


def test_an_unforeseen_error_shows_a_reference_and_no_reason(caplog):
    def broken():
        raise RuntimeError("the secret reason")

    with caplog.at_level(logging.ERROR, logger="signalbox"):
        answer = respond(broken, {"requestContext": {"requestId": "request-7"}})
    assert answer.status == 500
    assert "request-7" in answer.body
    assert "secret" not in answer.body
    assert caplog.records[0].correlation_id == "request-7"


def test_the_link_is_never_logged(caplog):
    world = waiting()
    link = token(world)
    with caplog.at_level(logging.DEBUG):
        send(world)
        visit(world, token=f"{link}x")
    assert link[:40] not in caplog.text
