"""A gate that reminds and escalates on the local cloud: the sweeper, the table's stream, the bus, mail, the page."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from deployed import consistent, http, until
from publish import publish

pytestmark = pytest.mark.e2e

PATIENT = """
workflow: patient
steps:
  check:
    type: human_gate
    approvers: [finance]
    subject: Shall it go on?
    remind_after: 1s
    escalate: [{after: 6s, to: [finance_lead]}]
    timeout: 1h
  after: {type: transform, needs: [check], set: {by: "${ steps.check.output.by }"}}
"""
LEAD, INITIALS = "finance-lead@example.com", "LL"


def mails(deployed, run):
    """Return to whom, and with which subject, mails about the run were sent."""
    boxes = http("GET", deployed.mailbox_url).json["messages"].values()
    mine = [mail for box in boxes for mail in box if run in mail["BodyText"]]
    return [(", ".join(mail["To"]), mail["Subject"].partition(":")[0]) for mail in mine]


def swept_until(deployed, run, kind):
    def found():
        assert deployed.api("POST", "/v1/sweep", {}).status == 200
        return [event for event in deployed.events(run) if event["type"] == kind]

    return until(found, f"{kind} of run {run}")[0]


def test_nobody_decides_so_the_lead_is_asked_and_decides_by_the_link(deployed):
    name = publish(deployed, PATIENT)
    run = deployed.api("POST", f"/v1/workflows/{name}/runs", {"input": {}}).json["run"]
    deployed.reaches(run, "waiting_for_human")
    swept_until(deployed, run, "gate_reminded")
    assert swept_until(deployed, run, "gate_escalated")["data"]["roles"] == ["finance", "finance_lead"]
    until(lambda: any(to == LEAD for to, _ in mails(deployed, run)), f"the lead's mail about run {run}")
    (gate,) = deployed.run(run)["gates"]
    assert (gate["tier"], gate["roles"], gate["next_tier"]) == (2, ["finance", "finance_lead"], None)
    form = urlencode({"decision": "approve", "signature": INITIALS, "digest": gate["digest"] or ""})
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert http("POST", deployed.links(run)[-1], form.encode(), kind).status == 200
    ended = deployed.reaches(run, "completed")
    events = deployed.events(run)
    consistent(ended, events)
    assert next(step for step in ended["steps"] if step["path"] == "after")["output"] == {"by": LEAD}
    assert next(event for event in events if event["type"] == "gate_decided")["data"]["tier"] == 2
    sent = mails(deployed, run)
    assert sent.count((LEAD, "Escalated to you, decision needed")) == 1
    assert sent.count(("finance@example.com", "Decision needed")) == 1
    assert sent.count(("finance@example.com", "Reminder, decision still needed")) == 1
