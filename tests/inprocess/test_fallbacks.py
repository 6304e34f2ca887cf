"""Fallbacks whose process dies, and the one after it."""

from __future__ import annotations

import pytest
from shapes import failing, house, step

from shared.errors import PermanentFailure
from shared.manifest import Retry

EVENT = {"event": {"name": "paid", "match": "true", "timeout": 60.0}}


class Dead(BaseException):
    """The process is gone."""


def hangs(*_):
    raise TimeoutError


@pytest.mark.parametrize(
    "failed", [step("a", fallback="f"), step("a", type="wait", spec=EVENT, timeout=60, fallback="f")]
)
def test_what_stood_in_when_the_process_died_goes_on_standing_in(failed):
    """A step given up by the engine has not the status of a failed one: the next process began it anew, beside it."""
    told = []

    def dies(_, call):
        told.append(call.path)
        if len(told) == 1:
            raise Dead
        return "stood in"

    h = house(failed, step("b", "a"), templates=(step("f"),), tools={"a": hangs, "f": dies})
    with pytest.raises(Dead):
        h.start({})
    h.reborn().go()
    assert (told, h.head.state, h.step("a").by) == (["a/fallback"] * 2, "completed", "fallback")
    assert (h.step("a").attempt, h.head.open) == (1, 0)


@pytest.mark.parametrize("reborn", [False, True])
def test_a_fallback_is_tried_again_after_its_pause_whoever_goes_on(reborn):
    spare = step("f", retry=Retry(1, base_delay=60.0, jitter=False))
    tools = {"a": failing(error=PermanentFailure), "f": failing(1)}
    h = house(step("a", fallback="f"), templates=(spare,), tools=tools)
    h.start({}, patience=10)
    h = h.reborn() if reborn else h
    h.go(50)
    assert (h.head.state, h.step("a/fallback").status) == ("running", "retrying")
    h.go(70)
    assert (h.head.state, h.step("a").by, h.step("a/fallback").attempt) == ("completed", "fallback", 2)
