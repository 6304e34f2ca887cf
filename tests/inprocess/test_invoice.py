"""The invoice workflow in-process: straight through, approved, rejected, expired, cancelled; over fakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from house import House

from shared.compiler import compile_file
from shared.testing import FakeModels, FakeTools

INVOICE = compile_file(Path(__file__).parents[2] / "workflows" / "invoice.yaml").manifest
FIELDS = {
    "vendor": "Contoso",
    "number": "C-1",
    "issued": "2026-10-01",
    "due": "2026-11-01",
    "currency": "EUR",
    "tax": 20,
}


def house(amount=120):
    lines = [{"description": "Paper", "total": amount - 20}]
    fields = {**FIELDS, "amount": amount, "net": amount - 20, "lines": lines}
    sure = {"category": "goods", "confidence": 0.95, "reason": "known vendor"}
    documents: dict[str, int] = {}

    def post(_, call):
        documents[call.idempotency_key] = documents.get(call.idempotency_key, 0) + 1
        return {"document": f"D-{call.idempotency_key[:6]}"}

    def find(arguments, _):
        return {"count": documents.get(arguments["key"], 0), "document": f"D-{arguments['key'][:6]}"}

    tools = {
        "check_invoice": lambda arguments, _: {"total": arguments["amount"], "lines": 1},
        "erp_post": post,
        "erp_void": lambda arguments, _: {"document": arguments["document"], "status": "void"},
        "erp_find": find,
    }
    models = FakeModels(lambda request: json.dumps(fields if "vendor" in request.schema["properties"] else sure))
    return House((INVOICE,), models, FakeTools(tools))


def posted(h):
    return [arguments for name, arguments, _ in h.tools.calls if name == "erp_post"]


def test_a_small_invoice_goes_straight_through():
    h = house().start({"document": "x"})
    assert (h.head.state, len(posted(h)), h.engine.places.runs()) == ("completed", 1, [])
    assert h.events[-4:] == ["step_skipped:review", "step_opened:post", "step_completed:post", "run_completed"]


@pytest.mark.parametrize("reborn", [False, True])
def test_a_large_one_waits_without_memory_and_posts_once_when_approved(reborn):
    h = house(9000).start({"document": "x"})
    assert (h.head.state, h.engine.places.in_memory(), h.engine.places.runs()) == ("waiting_for_human", 0, [h.run])
    before = h.events
    if reborn:
        h.reborn().go()
        assert h.events == before
    h.decide("review", "approved").decide("review", "approved")
    assert (h.head.state, len(posted(h))) == ("completed", 1)


def test_a_rejected_one_is_not_posted():
    h = house(9000).start({"document": "x"}).decide("review", "rejected")
    assert (h.head.state, posted(h)) == ("failed", [])


def test_one_that_nobody_decides_expires_also_when_its_process_was_away():
    h = house(9000).start({"document": "x"})
    assert h.go(25 * 3600).head.state == "failed"
    h = house(9000).start({"document": "x"})
    h.clock.sleep(25 * 3600)
    assert h.reborn().go().head.state == "failed"


def test_a_cancelled_one_ends_and_a_posted_document_is_voided():
    h = house(9000).start({"document": "x"}).cancel()
    assert (h.head.state, h.engine.places.runs()) == ("cancelled", [])
    h = house()
    post = h.tools._functions["erp_post"]

    def cancelled_meanwhile(arguments, call):
        from shared.inprocess.handlers import UNWIND  # noqa: PLC0415
        from shared.runtime.ending import request  # noqa: PLC0415

        request(h.steps, h.journal, "cancelled", "by ops", UNWIND)
        return post(arguments, call)

    h.tools._functions["erp_post"] = cancelled_meanwhile
    h.start({"document": "x"})
    assert (h.head.state, h.statuses["post"]) == ("cancelled", "compensated")
    assert [name for name, _, _ in h.tools.calls][-1] == "erp_void"


class Dead(BaseException):
    """The process is dead: nothing after this happens."""


def dying(h, number, moment):
    """Let the process of ``h`` die before or after its commit of this number, from 1. Returns the count of commits."""
    commit, done = h.store.commit, [0]

    def mortal(writes):
        done[0] += 1
        if done[0] == number and moment == "before":
            raise Dead
        commit(writes)
        if done[0] == number:
            raise Dead

    h.store.commit = mortal
    return done


@pytest.mark.parametrize("moment", ["before", "after"])
def test_whatever_commit_its_process_dies_at_it_completes_and_posts_once(moment):
    deaths = 0
    for number in range(2, 30):
        h = house()
        commit, done = h.store.commit, dying(h, number, moment)
        try:
            h.start({"document": "x"})
        except Dead:
            deaths += 1
            h.run = next(key.pk for key in h.store.items if key.sk == "RUN").rsplit("#", 1)[-1]
            h.store.commit = commit
            h.reborn().go()
        assert (h.head.state, len(posted(h)), h.head.open) == ("completed", 1, 0), f"{moment} commit {number}"
        if done[0] < number:
            break
    assert deaths >= 10
