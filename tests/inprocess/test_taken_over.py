"""A process died in a call, and the run that goes on finds no budget to make it again: the call stays in doubt."""

from __future__ import annotations

import pytest
from bodies import manifest, tool
from house import House

from shared.manifest import Limits
from shared.runtime.protocol import in_doubt
from shared.runtime.raising import Raise
from shared.testing import FakeModels, FakeTools


class Dead(BaseException):
    """The process is gone."""


class Bank:
    """Keeps what was transferred, by key; the process dies in the first transfer, after it has happened."""

    def __init__(self):
        self.made, self.asked = [], []

    def do(self, given, call):
        if "find" in given:
            self.asked.append(given["find"])
            return {"count": self.made.count(given["find"])}
        if "undo" in given:
            self.made.remove(given["undo"])
            return "undone"
        self.made.append(call.idempotency_key)
        if len(self.made) == 1:
            raise Dead
        return "made"


def taken_over(*, probed):
    key = "${ call.idempotency_key }"
    step = tool("a", risk="reversible", on_error="pause")
    step.spec["compensate"] = {"tool": "do", "with": {"undo": key}}
    if probed:
        step.spec["reconcile"] = {"tool": "do", "with": {"find": key}, "found": "result.count > 0"}
    bank, limits = Bank(), Limits(usd=10**9, tokens=10_000, steps=1)
    house = House((manifest(step, budget=limits),), FakeModels(lambda _: ""), FakeTools({"do": bank.do}))
    with pytest.raises(Dead):
        house.start({})
    house.run = next(item["id"] for key, item in house.store.items.items() if key.sk == "RUN")
    return house.reborn().go(), bank


def test_a_call_in_doubt_that_the_budget_does_not_let_repeat_is_looked_for_when_there_is_more():
    house, bank = taken_over(probed=True)
    assert (house.head.state, house.step("a").reason) == ("paused", "budget_exceeded")
    assert in_doubt(house.step("a"))
    house.resume("a", "retry", more=Raise(steps=5))
    assert (house.head.state, house.step("a").by) == ("completed", "reconcile")
    assert len(bank.made) == len(bank.asked) == 1


def test_a_call_in_doubt_is_not_forgotten_when_its_run_is_cancelled():
    house, bank = taken_over(probed=False)
    house.cancel()
    assert (house.head.ended, house.step("a").status) == (None, "unknown")
    house.resume("a", "accept", result="made")
    assert (house.head.ended, bank.made) == ("cancelled", [])
