"""The Anthropic adapter against the rehearsal: the real SDK over HTTP."""

from __future__ import annotations

import threading

import pytest

from scripts.local.rehearsal import Rehearsal
from shared.errors import PermanentFailure, RateLimited, StepTimeout, TransientFailure
from shared.models.anthropic import AnthropicModels, failure_of
from shared.models.prices import price_of, prices
from shared.ports import ModelRequest, Usage

SCHEMA = {
    "type": "object",
    "required": ["category", "confidence"],
    "properties": {
        "category": {"type": "string", "enum": ["goods", "services"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
}


@pytest.fixture(scope="module")
def server():
    with Rehearsal() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()


@pytest.fixture
def models(server):
    server.faults.set({"clear": True})
    return AnthropicModels(lambda: "test-key", server.url)


def request(**more):
    fields = {"model": "claude-haiku-4-5", "system": "Be brief.", "prompt": "Hello", "max_tokens": 50, "timeout": 10.0}
    return ModelRequest(**{**fields, **more})


def test_a_reply_comes_with_its_usage_and_price(models):
    reply = models.complete(request())
    assert reply.text
    assert reply.usage.input_tokens > 0
    assert reply.usage.usd == reply.usage.input_tokens * 1000 + reply.usage.output_tokens * 5000


def test_a_schema_makes_the_reply_json(models, server):
    import json  # noqa: PLC0415

    reply = json.loads(models.complete(request(schema=SCHEMA, max_tokens=500)).text)
    assert set(reply) == {"category", "confidence"}


def test_usage_never_exceeds_the_ceiling(models):
    asked = request(prompt="Grüße " * 200, schema=SCHEMA)
    used, bound, exact = models.complete(asked).usage, models.ceiling(asked), models.ceiling(asked, exact=True)
    assert used.tokens <= exact.tokens <= bound.tokens
    assert used.usd <= exact.usd <= bound.usd


@pytest.mark.parametrize(
    ("fault", "error", "retry_after"),
    [
        ({"status": 429, "retry_after": 7}, RateLimited, 7.0),
        ({"status": 529}, TransientFailure, None),
        ({"status": 500}, TransientFailure, None),
        ({"status": 401}, PermanentFailure, None),
        ({"hang_up": True}, TransientFailure, None),
        ({"delay": 3}, StepTimeout, None),
    ],
)
def test_each_fault_has_its_class_and_nothing_is_retried(models, server, fault, error, retry_after):
    server.faults.set({"next": [fault]})
    with pytest.raises(error) as failure:
        models.complete(request(timeout=1.0))
    assert failure.value.retry_after == retry_after
    models.complete(request())


def test_a_spend_limit_is_permanent_although_it_is_a_429():
    body = {"error": {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}}
    assert isinstance(failure_of(429, body, None), PermanentFailure)


def test_refused_requests_used_nothing_and_of_failed_ones_nobody_knows():
    assert failure_of(429, {}, None).usage == Usage()
    assert failure_of(529, {}, None).usage == Usage()
    assert failure_of(400, {}, None).usage == Usage()
    assert failure_of(500, {}, None).usage is None


@pytest.mark.parametrize("text", ["soon", "", "-1"])
def test_a_retry_after_that_says_nothing_is_ignored(text):
    assert failure_of(429, {}, text).retry_after is None


def test_an_unknown_model_has_no_price():
    with pytest.raises(PermanentFailure, match="gpt-9"):
        price_of("gpt-9")


def test_every_price_is_positive_and_output_costs_more():
    assert all(0 < price.input < price.output for price in prices().values())
