"""Fallbacks whose process dies, and the one after it."""

from __future__ import annotations

import pytest
from shapes import house, step

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
