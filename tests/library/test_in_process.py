"""Every workflow through the command line, without any cloud, by the command that stands in its file."""

from __future__ import annotations

import json
import shlex

import pytest
from shelf import NAMES, WORKFLOWS
from shell import Shell

INVOICE = "signalbox run workflows/invoice.yaml --set document=@workflows/samples/contoso-en.txt"
EVENTS = {
    "interviews[1]/held": ("interview_held", {"notes": "Convincing."}),
    "answer": ("offer_answered", {"accepted": True, "starts": "2026-01-04"}),
}
"""What comes from outside, by the wait that it is for."""
EFFECTS = {
    "content_moderation": ["published"],
    "contract_drafting": ["contract"],
    "customer_support": ["reply"],
    "document_processing": [],
    "expense_claim": ["booking", "reimbursement"],
    "invoice": ["invoice"],
    "procurement": ["order"],
    "recruitment": ["account", "invitation", "offer"],
    "stock_request": ["reservation"],
    "vendor_check": [],
}
"""What each has left outside, once each, by kind."""


def command(name):
    lines = (WORKFLOWS / f"{name}.yaml").read_text().splitlines()
    told = next((line.removeprefix("# Try it: ") for line in lines if line.startswith("# Try it: ")), INVOICE)
    return shlex.split(told)[1:]


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_to_its_end_with_people_and_events_from_other_shells(tmp_path, name):
    shell = Shell(tmp_path)
    driver = shell.watched(*command(name))
    done = set()
    while "state" not in (line := driver.until(lambda one: one.get("seq") not in done and needs_somebody(one))):
        done.add(line["seq"])
        if line["type"] == "gate_opened":
            gates = shell.run(driver.id)["gates"]
            gate = next(gate for gate in gates if gate["path"] == line["path"])
            shell("approvals", "approve", gate["id"], "--as", "somebody")
        else:
            event, data = EVENTS[line["path"]]
            shell("runs", "send", driver.id, event, "--data", json.dumps(data))
    assert driver.end()["state"] == "completed"
    kept = json.loads((tmp_path / "erp.json").read_text()) if EFFECTS[name] else []
    assert sorted(one["body"].get("kind", "invoice") for one in kept) == EFFECTS[name]
    assert all((one["status"], one["attempts"]) == ("posted", 1) for one in kept)


def needs_somebody(line):
    """Tell whether a line asks for a decision or for an event, or is the last."""
    return "state" in line or line.get("type") in {"gate_opened", "event_awaited"}
