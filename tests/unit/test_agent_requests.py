"""What a model is sent in a turn, and what becomes of what it proposes."""

from __future__ import annotations

import threading

import pytest

from scripts.local.rehearsal import Rehearsal
from shared.manifest import MOST_CALLS, StepPlan
from shared.models.anthropic import AnthropicModels, messages, offered
from shared.ports import Exchange, ModelRequest, Offer, Proposal, Result
from shared.runtime.proposals import MOST_ARGUMENTS, judge

PARAMETERS = {
    "type": "object",
    "properties": {"words": {"$ref": "#/$defs/tree"}},
    "required": ["words"],
    "additionalProperties": False,
    "$defs": {"tree": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/tree"}}]}},
}
TOOLS = {"find": StepPlan("find", "tool", spec={"parameters": PARAMETERS})}
OFFER = Offer("find", "Finds.", {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]})
CALL = Proposal("find", {"words": "chair"})


def request(*turns, **more):
    fields = {"model": "claude-haiku-4-5", "system": "", "prompt": "Find it.", "max_tokens": 400, "timeout": 10.0}
    return ModelRequest(**{**fields, "tools": (OFFER,), "turns": turns, **more})


def nested(depth):
    value = "x"
    for _ in range(depth):
        value = [value]
    return {"words": value}


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_a_request_holds_the_prompt_and_every_turn_with_its_results():
    turn = Exchange("Let me see.", (CALL, CALL), (Result("[]"), Result("Failed (timeout): late", failed=True)))
    prompt, said, told = messages(request(turn))
    assert prompt == {"role": "user", "content": "Find it."}
    text, first, second = said["content"]
    assert (said["role"], text) == ("assistant", {"type": "text", "text": "Let me see."})
    assert first == {"type": "tool_use", "id": "call_1_0", "name": "find", "input": {"words": "chair"}}
    assert [block["tool_use_id"] for block in told["content"]] == [first["id"], second["id"]]
    assert [block["is_error"] for block in told["content"]] == [False, True]
    assert offered(request())[0]["input_schema"] == OFFER.parameters


def test_ids_are_unique_and_no_block_is_empty_whatever_a_model_said():
    turns = [Exchange(" ", (CALL,) * 2, (Result(""),) * 2, "3 more calls were proposed")] * 3
    blocks = [block for one in messages(request(*turns, Exchange("", (), ())))[1:] for block in one["content"]]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(ids) == len(set(ids)) == 6
    assert all(block["text"].strip() for block in blocks if block["type"] == "text")
    roles = [one["role"] for one in messages(request(*turns))]
    assert roles == ["user", *["assistant", "user"] * 3]


@pytest.fixture(scope="module")
def models():
    with Rehearsal() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield AnthropicModels(lambda: "test-key", service.url)
        service.shutdown()


REQUEST = "<request>\n2 packs of printer paper\n</request>"
STOCK = (Offer("find_article", "Finds.", OFFER.parameters), OFFER)


def test_a_model_proposes_calls_over_http(models):
    reply = models.complete(request(prompt=REQUEST, tools=STOCK))
    assert reply.calls == (Proposal("find_article", {"words": "printer paper"}),)
    assert (reply.stop_reason, reply.text) == ("tool_use", "")


def test_the_ceiling_covers_tools_and_all_that_was_said(models):
    turn = Exchange("Let me see.", (CALL,), (Result("x" * 5000),))
    plain, more = request(tools=(), prompt=REQUEST), request(turn, prompt=REQUEST, tools=STOCK)
    assert models.ceiling(more).input_tokens > models.ceiling(plain).input_tokens + 5000
    used = models.complete(more).usage
    assert used.tokens <= models.ceiling(more, exact=True).tokens <= models.ceiling(more).tokens


# --- what becomes of proposals --------------------------------------------------------------------------------------


def test_what_fits_is_taken_as_it_is():
    (judged,) = judge([CALL], TOOLS, last=False)
    assert (judged.tool, judged.arguments, judged.refused) == ("find", {"words": "chair"}, "")


@pytest.mark.parametrize(("depth", "refused"), [(50, False), (5000, True)])
def test_nesting_is_judged_and_never_breaks_the_judge(depth, refused):
    (judged,) = judge([Proposal("find", nested(depth))], TOOLS, last=False)
    assert bool(judged.refused) == refused
    assert judged.arguments == ({} if refused else nested(depth))


def test_what_is_refused_is_small_and_storable():
    names = ["find\ud800", "x" * 10_000, "", None, 7, {"a": 1}, ["find"]]
    proposed = [Proposal(name, {"words": "w" * MOST_ARGUMENTS}) for name in names]
    for judged in judge(proposed, TOOLS, last=False):
        assert judged.refused
        assert judged.arguments == {}
        assert len(judged.tool) <= 64
        judged.tool.encode()


def test_no_more_than_the_limit_is_looked_at():
    assert len(judge([CALL] * 100_000, TOOLS, last=False)) == MOST_CALLS


def test_after_the_last_turn_nothing_is_called():
    assert {judged.refused for judged in judge([CALL] * 2, TOOLS, last=True)} == {"this was the last turn"}
