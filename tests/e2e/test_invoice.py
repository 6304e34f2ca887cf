"""The invoice workflow on the deployed app: API, mail, page in a browser, completion."""

from __future__ import annotations

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest
from deployed import SIGNATURE, consistent, http, until
from publish import publish

pytestmark = pytest.mark.e2e
WORKFLOWS = Path(__file__).resolve().parents[2] / "workflows"


def step(run, path):
    return next(one for one in run["steps"] if one["path"] == path)


def test_a_small_invoice_goes_straight_through(deployed):
    run = deployed.reaches(deployed.start("nordlicht-de"), "completed")
    consistent(run, deployed.events(run["id"]))
    assert step(run, "branch")["route"] == "post"
    assert step(run, "review")["status"] == "skipped"
    assert len(deployed.documents(run)) == 1


def test_a_large_invoice_is_approved_in_a_browser_and_posted_once(deployed, browser):
    run = deployed.start("contoso-en")
    deployed.reaches(run, "waiting_for_human")
    link = deployed.link(run)
    page = browser.new_page(viewport={"width": 360, "height": 740}, java_script_enabled=False)
    page.goto(link)
    assert "9,727.20" in page.inner_text("body") or "9727.2" in page.inner_text("body")
    page.get_by_label("note", exact=False).fill("checked against PO-77120")
    page.locator("[name=signature]").fill(SIGNATURE)
    page.locator("button[value=approve]").click()
    assert "approved" in page.inner_text("body").lower()
    ended = deployed.reaches(run, "completed")
    consistent(ended, deployed.events(run))
    assert step(ended, "review")["output"]["notes"] == "checked against PO-77120"
    assert len(deployed.documents(ended)) == 1
    page.goto(link)
    assert "approved" in page.inner_text("body").lower()
    assert page.locator("button[value=approve]").count() == 0
    page.close()


def test_looking_at_the_page_decides_nothing_and_neither_does_a_form_without_a_signature(deployed):
    run = deployed.start("aurora-es")
    deployed.reaches(run, "waiting_for_human")
    link = deployed.link(run)
    for method in ("GET", "HEAD", "GET"):
        assert http(method, link).status == 200
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert http("POST", link, b"decision=approve", form).status == 422
    assert http("POST", link, b"decision=approve&signature=someone", form).status == 422
    assert deployed.run(run)["state"] == "waiting_for_human"
    for header in ("content-security-policy", "referrer-policy", "cache-control"):
        assert header in http("GET", link).headers
    assert deployed.api("POST", f"/v1/runs/{run}/cancel", {}).status == 202
    ended = deployed.reaches(run, "cancelled")
    consistent(ended, deployed.events(run))
    assert http("GET", link).status == 410
    assert deployed.documents(ended) == []


def test_a_rejected_invoice_is_not_posted(deployed, browser):
    run = deployed.start("aurora-es")
    deployed.reaches(run, "waiting_for_human")
    page = browser.new_page()
    page.goto(deployed.link(run))
    page.locator("[name=signature]").fill(SIGNATURE.lower())
    page.locator("button[value=reject]").click()
    assert "rejected" in page.inner_text("body").lower()
    page.close()
    ended = deployed.reaches(run, "failed")
    consistent(ended, deployed.events(run))
    assert step(ended, "post")["status"] in {"skipped", "blocked"}
    assert deployed.documents(ended) == []


def test_a_gate_that_nobody_decides_expires(deployed):
    text = (WORKFLOWS / "invoice.yaml").read_text("utf-8")
    text = text.replace("workflow: invoice", "workflow: invoice_hasty").replace("timeout: 24h", "timeout: 3s")
    text = text.replace("remind_after: 4h", "remind_after: 1s").replace("after: 8h", "after: 2s")
    name = publish(deployed, text)
    run = deployed.start("contoso-en", workflow=name)
    ended = deployed.reaches(run, "failed")
    consistent(ended, deployed.events(run))
    assert "gate_decided" in [event["type"] for event in deployed.events(run)]
    assert next(gate for gate in ended["gates"] if gate["path"] == "review")["status"] == "expired"


def test_one_idempotency_key_makes_one_run(deployed):
    document = {"input": {"document": (WORKFLOWS / "samples" / "mistral-fr.txt").read_text("utf-8")}}
    path = "/v1/workflows/invoice/runs"
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: deployed.api("POST", path, document, idempotency_key="erp-4711"), range(8)))
    assert sorted(answer.status for answer in answers) == [200] * 7 + [201]
    assert len({answer.json["run"] for answer in answers}) == 1
    other = deployed.api("POST", path, {"input": {"document": "another"}}, idempotency_key="erp-4711")
    assert (other.status, other.json["code"]) == (409, "idempotency_mismatch")
    run = deployed.reaches(answers[0].json["run"], "completed")
    assert len(deployed.documents(run)) == 1


def test_many_approvals_at_once_post_once(deployed):
    run = deployed.start("contoso-en")
    deployed.reaches(run, "waiting_for_human")
    approval = deployed.api("GET", "/v1/approvals").json["approvals"]
    approval = next(one for one in approval if one["run"] == run)
    body = {"decision": "approve", "digest": approval["digest"]}
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: deployed.api("POST", f"/v1/approvals/{approval['id']}", body), range(6)))
    assert {answer.status for answer in answers} == {200}
    ended = deployed.reaches(run, "completed")
    assert [event["type"] for event in deployed.events(run)].count("gate_decided") == 1
    assert len(deployed.documents(ended)) == 1


def test_a_step_whose_process_is_killed_is_tried_again_and_the_run_completes(deployed):
    deployed.faults("rehearsal", {"delay": 20})
    run = deployed.start("nordlicht-de")
    until(lambda: step(deployed.run(run), "extract")["status"] == "running", "extract running")
    assert until(lambda: kill_workers("step"), "a worker of the step function")
    ended = deployed.reaches(run, "completed")
    consistent(ended, deployed.events(run))
    assert step(ended, "extract")["attempt"] == 2
    assert "attempt_lost" in [event["type"] for event in deployed.events(run)]


def kill_workers(function):
    """SIGKILL every process that the emulator runs for ``function``; return how many there were."""
    found = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            variables = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(
            one.startswith(b"POWERTOOLS_SERVICE_NAME=") and one.endswith(f"-{function}".encode()) for one in variables
        ):
            os.kill(int(place.name), signal.SIGKILL)
            found += 1
    return found


def test_an_invoice_that_cannot_be_right_pauses_and_can_be_given_up(deployed):
    run = deployed.start("fabrikam-en-invalid")
    paused = deployed.reaches(run, "paused")
    assert paused["reason"] == "step_error"
    assert step(paused, "validate")["error"]["class"] == "permanent"
    answer = deployed.api("POST", f"/v1/runs/{run}/resume", {"step": "validate", "action": "fail"})
    assert answer.status == 202, answer.text
    ended = deployed.reaches(run, "failed")
    consistent(ended, deployed.events(run))


def test_rate_limits_and_overloads_are_waited_out(deployed):
    deployed.faults("rehearsal", {"status": 429, "retry_after": 1}, {"status": 529})
    ended = deployed.reaches(deployed.start("mistral-fr"), "completed")
    waits = [event for event in deployed.events(ended["id"]) if event["type"] == "step_retrying"]
    assert [wait["data"]["class"] for wait in waits] == ["rate_limit", "transient"]
    consistent(ended, deployed.events(ended["id"]))


def test_a_lost_answer_of_the_erp_posts_once(deployed):
    text = (WORKFLOWS / "invoice.yaml").read_text("utf-8")
    text = text.replace("workflow: invoice", "workflow: invoice_lossy")
    text = text.replace("base_delay: 10s", "base_delay: 1s").replace("conclusive_after: 10s", "conclusive_after: 1s")
    name = publish(deployed, text)
    deployed.faults("erp", {"hang_up": True, "after": True}, match="POST|amount")
    ended = deployed.reaches(deployed.start("nordlicht-de", workflow=name), "completed")
    assert len(deployed.documents(ended)) == 1
    assert step(ended, "post")["attempt"] == 2
    assert step(ended, "post")["by"] == "reconcile"


PAYMENT = """
workflow: payment
input: {type: object, properties: {document: {type: string}}}
budget: {usd: 0.1, tokens: 1000, steps: 9, active_time: 10m}
steps:
  review:
    type: human_gate
    approves: pay
    subject: Pay Contoso
    approvers: [finance]
    timeout: 24h
    on_expiry: reject
  pay:
    type: tool
    needs: [review]
    tool: erp_post
    with: {vendor: Contoso, number: P-1, due: "2027-01-31", currency: EUR, amount: 5.0, category: other}
    risk: irreversible
    timeout: 30s
"""


def test_a_payment_that_did_not_happen_is_approved_once_more_by_another_mail(deployed):
    run = deployed.start(workflow=publish(deployed, PAYMENT))
    first = deployed.link(run)
    deployed.faults("erp", {"hang_up": True}, match="POST|P-1")
    assert sign(first).status == 200
    assert deployed.reaches(run, "paused")["reason"] == "unknown_outcome"
    answer = deployed.api("POST", f"/v1/runs/{run}/resume", {"step": "pay", "action": "did_not_happen"})
    assert answer.status == 202, answer.text
    second = until(lambda: deployed.links(run)[1:], "another mail")[0]
    assert second != first
    assert sign(first).status == 410, "the first approval covers the first call only"
    assert sign(second).status == 200
    ended = deployed.reaches(run, "completed")
    consistent(ended, deployed.events(run))
    assert len(deployed.links(run)) == 2
    held = http("GET", f"{deployed.erp_url}/documents").json["documents"]
    assert [document["body"]["number"] for document in held].count("P-1") == 1


EDITABLE = """    edit: {type: object, properties: {amount: {type: number, minimum: 1, maximum: 100}}}
    timeout: 24h
"""


def test_what_is_changed_on_the_page_is_what_is_paid(deployed, browser):
    text = PAYMENT.replace("workflow: payment", "workflow: payment_changed").replace("    timeout: 24h\n", EDITABLE)
    run = deployed.start(workflow=publish(deployed, text.replace("number: P-1", "number: P-2")))
    page = browser.new_page(java_script_enabled=False)
    page.goto(until(lambda: deployed.links(run), "a mail")[0])
    page.locator("[name=signature]").fill(SIGNATURE)
    for amount, told in (("500", "500.0 is greater than the maximum of 100"), ("7.5", "Approved")):
        page.get_by_label("amount", exact=True).fill(amount)
        page.locator("button[value=edit]").click()
        shown = page.inner_text("body")
        assert told in shown or told.replace("500.0", "500") in shown
    page.close()
    ended = deployed.reaches(run, "completed")
    consistent(ended, deployed.events(run))
    held = http("GET", f"{deployed.erp_url}/documents").json["documents"]
    assert [one["body"]["amount"] for one in held if one["body"]["number"] == "P-2"] == [7.5]
    (gate,) = ended["gates"]
    assert (gate["changes"], gate["arguments"]["amount"]) == ({"amount": 7.5}, 7.5)


def sign(link):
    """Approve without a browser: what the page shows is sent along, as its form does."""
    shown = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', http("GET", link).text))
    body = urlencode({**shown, "decision": "approve", "signature": SIGNATURE}).encode()
    return http("POST", link, body, {"content-type": "application/x-www-form-urlencoded"})


def test_lists_follow_the_runs(deployed):
    run = deployed.start("nordlicht-de")
    deployed.reaches(run, "completed")

    def listed():
        runs = deployed.api("GET", "/v1/runs?workflow=invoice&limit=100").json["runs"]
        return next((one for one in runs if one["id"] == run), {}).get("state") == "completed"

    until(listed, "the list shows the run as completed")
    assert run in {one["id"] for one in deployed.api("GET", "/v1/runs?state=completed&limit=100").json["runs"]}
