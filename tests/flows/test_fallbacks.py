"""What stands in for a step that has failed: once it was chosen, the step itself does nothing any more."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from bodies import manifest, output, tool
from invariants import check
from machine import World

from shared.compiler import compile_manifest
from shared.errors import PermanentFailure
from shared.runtime.steps import NotOpened
from shared.testing import FakeModels, FakeTools


def world(*steps, do, stand_in=None, slots=1000, model=lambda _: "yes", **more):
    made = manifest(*steps, **more)
    made = replace(made, steps={**made.steps, "f": stand_in or tool("f")}, max_parallel=slots)
    return World(compile_manifest(made), FakeModels(model), FakeTools({"do": do}))


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
@pytest.mark.parametrize("on_error", ["pause", "continue"])
def test_a_late_delivery_of_the_step_does_not_work_beside_its_fallback(moment, on_error):
    """It was called once more, beside its fallback; its result settled it, and was then exchanged for the other."""
    told = []

    def late():
        run = {"id": w.run, "tenant": w.tenant, "workflow": "w", "version": 1, "epoch": 1}
        with suppress(NotOpened):
            w.call("${StepFunction}", {"run": run, "op": "run", "step": "a", "entered": "0"})

    def do(arguments, _):
        told.append(arguments["say"])
        if told == ["a"]:
            raise PermanentFailure("no")
        if told[-1] == "f" and moment == "meanwhile":
            late()
        return arguments["say"]

    def begins(writes):
        if moment == "before" and any(one.key.sk == "STEP#a/fallback" for one in writes):
            w.store.before_commit = lambda _: None
            late()

    w = world(tool("a", fallback="f", on_error=on_error), tool("b", "a"), do=do)
    w.store.before_commit = begins
    assert w.start({}).status == "SUCCEEDED"
    assert (told, output(w, "a"), w.records.step("a").by) == (["a", "f", "b"], "f", "fallback")
    check(w)
