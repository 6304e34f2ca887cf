"""What far sides say of time."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from shared.clock import retry_after
from shared.errors import RateLimited
from shared.models.anthropic import failure_of as of_model
from shared.tools.aws import classified
from shared.tools.client import Reply
from shared.tools.client import failure_of as of_http


def test_retry_after_is_seconds_or_a_date():
    assert [retry_after(one) for one in ("120", " 7 ", "1.5", "0")] == [120.0, 7.0, 1.5, 0.0]
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after(formatdate(time.time() + 100, usegmt=True)) == pytest.approx(100, abs=3)
    assert retry_after(formatdate(time.time() + 100)) == pytest.approx(100, abs=3), "-0000 is UTC too"


@pytest.mark.parametrize("given", [None, "", "soon", "-3", "1e9", "nan", "inf", "9" * 400, "\u0663", "Wed, 99 Oct"])
def test_what_is_neither_asks_for_nothing(given):
    assert retry_after(given) is None


DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


def of_aws(wish):
    from botocore.exceptions import ClientError  # noqa: PLC0415

    meta = {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": wish}}
    with pytest.raises(RateLimited) as raised, classified("sqs.send"):
        raise ClientError({"Error": {"Code": "Throttling"}, "ResponseMetadata": meta}, "op")
    return raised.value


@pytest.mark.parametrize(("wish", "seconds"), [("9", 9.0), ("1.5", 1.5), (DATE, 0.0), ("soon", None)])
def test_every_far_side_is_understood_alike(wish, seconds):
    http = of_http("GET", "far.example", Reply(429, {"retry-after": wish}, b""))
    assert [one.retry_after for one in (http, of_aws(wish), of_model(429, {}, wish))] == [seconds] * 3
