"""Unwinding in-process: it waits for a person's word, which wakes it, and undoes what child runs did."""

from __future__ import annotations

import pytest
from house import House
from shapes import failing, house, manifest, step

from shared.errors import PermanentFailure
from shared.testing import FakeModels, FakeTools


def post(name="post", *needs):
    spec = {"compensate": {"tool": "void", "with": {}}}
    return step(name, *needs, risk="reversible", spec=spec)


@pytest.mark.parametrize("reborn", [False, True])
def test_a_persons_word_wakes_an_unwinding_that_waits_for_it(reborn):
    tools = {"bad": failing(error=PermanentFailure), "void": failing(error=PermanentFailure)}
    h = house(post(), step("bad", "post", on_error="fail"), tools=tools).start({})
    assert (h.head.state, h.statuses["post/compensate"]) == ("paused", "paused")
    h = h.reborn().go() if reborn else h
    now = h.clock.now()
    h.resume("post/compensate", "skip")
    assert (h.head.state, h.clock.now()) == ("failed", now)


def test_what_a_completed_sub_workflow_did_is_undone_when_its_parent_fails():
    done = []
    tools = {name: lambda *_, name=name: done.append(name) or {} for name in ("first", "post", "void")}
    tools["bad"] = failing(error=PermanentFailure)
    sub = step("sub", "first", type="sub_workflow", spec={"workflow": "child", "version": None, "with": {}})
    whole = manifest(post("first"), sub, step("bad", "sub", on_error="fail"))
    h = House((whole, manifest(post(), workflow="child")), FakeModels(lambda _: ""), FakeTools(tools)).start({})
    assert done == ["first", "post", "void", "void"]
    assert (h.head.state, h.statuses["sub"]) == ("failed", "compensated")
