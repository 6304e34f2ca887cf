"""The workflow library on the deployed app: every workflow, from a realistic input to its end."""

from __future__ import annotations

import json

import pytest
from deployed import SAMPLES, consistent, until

pytestmark = pytest.mark.e2e
CASES = {
    "content_moderation/harmless": "completed",
    "customer_support/late-parcel": "completed",
    "document_processing/tenancy": "completed",
    "expense_claim/train-to-leeds": "completed",
    "procurement/servers": "completed",
    "contract_drafting/website": "completed",
}
ENDS = {"completed", "failed", "cancelled", "stopped", "timed_out"}


def start(deployed, case):
    name, sample = case.split("/")
    given = json.loads((SAMPLES / name / f"{sample}.json").read_text("utf-8"))
    answer = deployed.api("POST", f"/v1/workflows/{name}/runs", {"input": given})
    assert answer.status == 201, answer.text
    return answer.json["run"]


def approve(deployed, run):
    """Approve whatever waits in the run; return the run."""
    for approval in deployed.api("GET", "/v1/approvals?limit=100").json["approvals"]:
        if approval["run"] == run:
            body = {"decision": "approve", "digest": approval["digest"]}
            deployed.api("POST", f"/v1/approvals/{approval['id']}", body)
    return deployed.run(run)


def until_end(deployed, run, help_on=lambda _: None):
    def ended():
        seen = approve(deployed, run)
        help_on(seen)
        return seen if seen["state"] in ENDS | {"paused"} else None

    return until(ended, f"the end of run {run}", 120)


@pytest.mark.parametrize("case", CASES)
def test_a_workflow_of_the_library_runs_to_its_end(deployed, case):
    ended = until_end(deployed, start(deployed, case))
    assert ended["state"] == CASES[case], json.dumps(ended, indent=1)
    consistent(ended, deployed.events(ended["id"]))


def test_recruitment_goes_on_with_what_is_sent_to_it(deployed):
    run = start(deployed, "recruitment/gardener")
    sent = set()

    def send(seen):
        waiting = {step["path"] for step in seen["steps"] if step["type"] == "wait" and step["status"] == "waiting"}
        for path in waiting - sent:
            name = "offer_answered" if path == "answer" else "interview_held"
            data = {"accepted": False} if path == "answer" else {"notes": "Knows trees, calm, would hire."}
            sent.add(path)
            assert deployed.api("POST", f"/v1/runs/{run}/events", {"name": name, "data": data}).status == 202

    ended = until_end(deployed, run, send)
    assert ended["state"] == "completed", json.dumps(ended, indent=1)
    consistent(ended, deployed.events(run))
