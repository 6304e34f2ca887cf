"""A child that has failed goes on with its parent's retry, which comes before the child's end is over."""

from __future__ import annotations

from house import House
from shapes import failing, manifest, step

from shared.errors import PermanentFailure
from shared.manifest import Retry
from shared.testing import FakeModels, FakeTools


def test_a_child_that_fails_and_goes_on_at_once_is_driven_on():
    again = Retry(max_retries=2, base_delay=0.0, jitter=False, on=("permanent",))
    spec = {"workflow": "below", "version": None, "with": {}}
    above = manifest(step("sub", type="sub_workflow", retry=again, spec=spec), step("last", "sub"))
    below = manifest(step("first"), step("second", "first", on_error="fail"), workflow="below")
    tools = {"first": lambda *_: 1, "second": failing(2, PermanentFailure), "last": lambda *_: 3}
    house = House((above, below), FakeModels(lambda _: ""), FakeTools(tools)).start({})
    assert (house.head.ended, house.step("sub").attempt, house.step("sub").retries) == ("completed", 3, 2)
    assert [name for name, *_ in house.tools.calls] == ["first", "second", "second", "second", "last"]
