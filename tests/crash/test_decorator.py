"""A well-known decorator beside our protocol: the harness's faults are such that it can be seen to fail."""

from __future__ import annotations

import pytest
from beside import FAR_SIDES, KINDS, broken, compared, counted, totals
from decorator import count, theirs
from test_counts import told
from test_pairs import SHARE

SHARES = 3
LOST = 4
"""Faults after which the decorator does not know that a call has happened: its answer or its process is lost, or the
record of its end is not written, or its process dies before that.
"""


@pytest.mark.parametrize("kind", KINDS)
def test_the_decorator_makes_effects_twice_that_the_far_side_does_not_prevent_and_we_none(kind):
    found, tree = compared(kind, slice(SHARE % SHARES, None, SHARES)), KINDS[kind].tree
    assert not broken({kind: found}), f"SIGNALBOX_PAIRS_SHARE={SHARE}"
    ours, plain = found.pop("signalbox"), found["powertools"]
    assert ours["scenarios"] >= 10
    assert plain["duplicated"] == LOST * count(tree, "make")
    assert [far_side["duplicated"] for far_side in found.values()] == [plain["duplicated"], 0, 0]
    assert [far_side["paid_twice"] for far_side in found.values()] == [LOST * count(tree, "model")] * len(FAR_SIDES)
    assert [far_side["unsaid"] for far_side in found.values()] == [0] * len(FAR_SIDES)


def test_a_call_that_may_be_repeated_and_cannot_be_looked_up_is_made_twice_by_us_too():
    found = compared("reversible, no probe")
    assert found["signalbox"]["duplicated"] == found["powertools"]["duplicated"] == LOST


def test_a_model_that_was_asked_in_vain_is_paid_twice_on_either_side():
    found = compared("model request")
    assert all(side["paid_twice"] for side in found.values())


def test_the_scenarios_are_as_many_as_it_says():
    every = totals({"theirs": counted(theirs(kind.tree))} for kind in KINDS.values())["theirs"]
    row = told("the same faults on a well-known library")
    assert row == [len(KINDS), every["duplicated"], every["scenarios"], every["paid_twice"]]
