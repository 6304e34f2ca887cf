"""Stock requests: an agent with tools, from the sample to the end, and undone."""

from __future__ import annotations

from invariants import check
from shelf import Shelf

from shared.ports import ModelReply, Proposal, Usage

RESERVE = ModelReply("", Usage(), "tool_use", (Proposal("reserve_article", {"number": "P-100", "quantity": 5}),))


def test_what_is_asked_for_is_reserved(office):
    run = Shelf(office, "stock_request", "paper")
    assert (run.status, run.state, run.kept) == ("SUCCEEDED", "completed", [("reservation", "posted", 1)])
    assert run.documents[0]["body"] == {"kind": "reservation", "number": "P-100", "quantity": 5}
    assert run.output("serve/turn[1]/call[0]") == [{"number": "P-100", "name": "printer paper", "stock": 40}]
    assert run.output("serve")["reserved"] == [run.documents[0]["document"]]
    check(run.world)


def test_what_is_not_there_is_not_reserved_whatever_the_request_says(office):
    run = Shelf(office, "stock_request", "lamp")
    assert (run.status, run.kept) == ("SUCCEEDED", [])
    assert run.output("answer")["text"] == "There is no desk lamp left."
    check(run.world)


def test_what_was_reserved_is_given_back_when_the_run_fails(office):
    run = Shelf(office, "stock_request", "paper", models=lambda request: "no JSON" if request.turns else RESERVE)
    run.world.unwind()
    assert (run.state, run.kept) == ("failed", [("reservation", "voided", 1)])
    check(run.world)
