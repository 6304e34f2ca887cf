"""What a sub-workflow did is undone when its parent fails or is cancelled later, in its place among the other steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bodies import manifest, plan, refuse, said, task, tool, world
from invariants import check
from machine import UNWIND, Execution, World

from shared.compiler import compile_manifest, unwind_machine
from shared.errors import PermanentFailure
from shared.manifest import Edge, Limits
from shared.runtime.ending import UNWINDING, request
from shared.runtime.mending import mend
from shared.runtime.parking import Order, resume_step
from shared.runtime.resuming import Resume, resume_run
from shared.runtime.runs import StartRequest, start_run
from shared.runtime.unwinding import unwind
from shared.testing import FixedDefinitions

ROOMS = (("child", "grandchild"), (Limits(usd=10**6, steps=20), Limits(usd=10**6, steps=9)))


def undoable(name, *needs, **more):
    undo = {"tool": "do", "with": {"say": f"undo {name}"}}
    made = tool(name, *needs, risk="reversible", **more)
    made.spec["compensate"] = undo
    return made


def sub(workflow, *needs, **more):
    spec = {"workflow": workflow, "version": None, "with": {}}
    return plan("sub", "sub_workflow", tuple(map(Edge, needs)), spec=spec, **more)


class Kin:
    """A run with its child and grandchild, each of a workflow of its own; all go on when somebody waits."""

    def __init__(self, top, *below, do=None, cost=0):
        self.w = world(*top, do=do)
        self.w.tools.costs["do"] = cost
        made = [manifest(*plans, name=name, budget=room) for name, room, plans in zip(*ROOMS, below, strict=False)]
        self.units = {"w": self.w.unit} | {one.workflow: compile_manifest(one) for one in made}
        self.w.define(FixedDefinitions(*(unit.manifest for unit in self.units.values())))
        self.running = {}
        self.slept, self.w.clock.sleep = self.w.clock.sleep, self._sleep

    def start(self):
        asked = StartRequest("acme", "alex@example.test", "api", {})
        self.w.run, _ = start_run(self.w.steps, self.w.steps.definitions.published("w"), asked)
        return self.go()

    def go(self):
        seen = -1
        while seen != (seen := len(self.w.engine.answers) + len(self.w.engine.executions)):
            for name in list(self.w.engine.executions):
                if name not in self.running:
                    self.running[name] = None
                    self.running[name] = self._execution(name)
                elif (each := self.running[name]) and each.status == "RUNNING":
                    self.running[name] = None  # it may sleep, and others go on then
                    self.running[name] = each.go()
        return self

    def expire(self):
        """Let the time of what the parent waits for be over."""
        name = next(name for name in self.running if name[0].startswith("machine:w"))
        each, self.running[name] = self.running[name], None
        self.running[name] = each.expire()
        return self.go()

    def _execution(self, name):
        given = self.w.engine.executions[name]
        seen = self.of(given["run"]["id"], given["run"]["workflow"])
        machine = unwind_machine() if name[0] == UNWIND else seen.unit.asl
        return Execution(seen, machine, given)

    def _sleep(self, seconds):
        self.slept(seconds)
        self.go()

    def of(self, run, workflow):
        w = self.w
        seen = World(
            self.units[workflow], w.models, w.tools, w.store, w.blobs, w.clock, w.engine, w.mail, run=run, _ids=w._ids
        )
        return seen.define(w.steps.definitions)

    def child(self):
        return self.of(self.w.records.step("sub").child, "child")

    def check(self):
        for key, item in list(self.w.store.items.items()):
            if key.sk == "RUN":
                check(self.of(item["id"], item["workflow"]))


@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_a_completed_child_is_undone_in_its_place_in_the_reverse_order(ending):
    last = tool("bad", "b", on_error="fail" if ending == "failed" else "pause")
    top = (undoable("a"), sub("child", "a"), undoable("b", "sub"), last)
    kin = Kin(top, (undoable("c"), undoable("d", "c")), do=refuse("bad")).start()
    if ending == "cancelled":
        assert kin.child().head.state == "completed"
        request(kin.w.steps, kin.w.journal, "cancelled", "by ops", UNWIND)
        kin.go()
    assert said(kin.w) == ["a", "c", "d", "b", "bad", "undo b", "undo d", "undo c", "undo a"]
    assert (kin.w.head.state, kin.child().head.state) == (ending, ending)
    assert kin.w.records.step("sub").status == "compensated"
    kin.check()


def test_the_child_of_a_child_is_undone_with_it():
    top = (sub("child"), tool("bad", "sub", on_error="fail"))
    kin = Kin(top, (undoable("c"), sub("grandchild", "c")), (undoable("g"),), do=refuse("bad")).start()
    assert said(kin.w) == ["c", "g", "bad", "undo g", "undo c"]
    kin.check()


def test_a_child_that_did_nothing_to_undo_stays_completed():
    kin = Kin((sub("child"), tool("bad", "sub", on_error="fail")), (tool("c"),), do=refuse("bad")).start()
    assert (kin.w.head.state, kin.child().head.state) == ("failed", "completed")
    assert kin.w.records.step("sub").status == "completed"
    kin.check()


def test_a_child_that_had_failed_was_undone_then_and_is_not_once_more():
    top = (sub("child", on_error="continue"), tool("bad", Edge("sub", optional=True), on_error="fail"))
    below = (undoable("c"), tool("wrong", "c", on_error="fail"))
    kin = Kin(top, below, do=refuse("bad", "wrong")).start()
    assert said(kin.w) == ["c", "wrong", "undo c", "bad"]
    assert kin.w.records.step("sub").status == "failed"
    kin.check()


def test_a_stopped_run_leaves_what_its_child_did():
    kin = Kin((sub("child"), tool("bad", "sub")), (undoable("c"),), do=refuse("bad")).start()
    request(kin.w.steps, kin.w.journal, "stopped", "its execution died", UNWIND)
    kin.go()
    assert said(kin.w) == ["c", "bad"]
    assert kin.child().head.state == "completed"
    kin.check()


def test_an_undone_child_runs_again_when_its_parent_is_resumed():
    kin = Kin((sub("child"), tool("bad", "sub", on_error="fail")), (undoable("c"),), do=refuse("bad")).start()
    kin.w.tools._functions["do"] = refuse()
    resume_run(kin.w.steps, kin.w.journal, Resume("ops"))
    kin.go()
    assert said(kin.w) == ["c", "bad", "undo c", "c", "bad"]
    assert (kin.w.head.state, kin.child().head.state) == ("completed", "completed")
    first, again = [call.idempotency_key for _, given, call in kin.w.tools.calls if given["say"] == "c"]
    assert first != again
    kin.check()


def test_who_waits_for_a_child_to_end_looks_less_and_less_often():
    kin = Kin((sub("child"),), (plan("w", "wait", (), spec={"event": {"name": "go"}}, timeout=600.0),)).start()
    request(kin.w.steps, kin.w.journal, "cancelled", "by ops", UNWIND)
    pauses = []
    for passed in (0, 40, 4000):
        kin.w.clock.time += passed * 1000
        pauses.append(unwind(kin.w.steps, task(kin.w, ""), UNWIND)["seconds"])
    assert pauses == [2, 10, 60]
    assert kin.go().w.head.ended == "cancelled"


def test_what_undoing_a_child_costs_is_charged_to_who_undoes_it():
    kin = Kin((sub("child"), tool("bad", "sub", on_error="fail")), (undoable("c"),), do=refuse("bad"), cost=1000)
    kin.start()
    assert said(kin.w) == ["c", "bad", "undo c"]
    assert sum(step.spent.usd for step in kin.w.records.steps()) == 3000
    assert kin.w.records.run.limit_usd - kin.w.head.left_usd == 3000
    kin.check()


def test_the_sweeper_leaves_a_child_alone_that_is_being_undone():
    kin = Kin((sub("child"), tool("bad", "sub", on_error="fail")), (undoable("c"),), do=refuse("bad"))
    found, sleep = [], kin.w.clock.sleep

    def sleeps(seconds):
        child = kin.child() if kin.w.records.step("sub") else None
        if child and child.head.unwinding:
            found.extend(mend(child.steps, child.tenant, child.run, UNWIND))
        sleep(seconds)

    kin.w.clock.sleep = sleeps
    kin.start()
    assert (kin.w.head.state, kin.child().head.state) == ("failed", "failed")
    assert not [one for one in found if one.what.startswith("unwinding")]


class Stuck:
    """A family in which what the youngest has done cannot be undone, until it is mended."""

    def __init__(self, *below):
        self.ill = {"bad", "undo c"}
        self.kin = Kin((sub("child"), tool("bad", "sub", on_error="fail")), *below, do=self.do)
        self.kin.start()

    def do(self, arguments, _):
        if arguments["say"] in self.ill:
            raise PermanentFailure("Not now.")
        return arguments["say"]

    def mend(self):
        """A person has what failed tried again."""
        self.ill.clear()
        child = next(one for one in self.runs() if one.records.step("c"))
        resume_step(child.steps, replace(task(child, "c/compensate"), workflow=child.unit.manifest.workflow), *WORD)

    def runs(self):
        named = [item for key, item in self.kin.w.store.items.items() if key.sk == "RUN"]
        return [self.kin.of(item["id"], item["workflow"]) for item in named]

    def parked(self):
        """The workflows whose unwinding waits for a word."""
        return sorted(one.unit.manifest.workflow for one in self.runs() if one.records.park(UNWINDING))


WORD = (Order("retry", "ops"), UNWIND)
YOUNG = [((undoable("c"),),), ((sub("grandchild"),), (undoable("c"),))]


@pytest.mark.parametrize("below", YOUNG, ids=["child", "grandchild"])
def test_an_unwinding_parks_while_only_a_person_can_say_how_its_child_is_undone(below):
    stuck = Stuck(*below)
    assert stuck.parked() == sorted({"w", "child", "grandchild"} & {one.unit.manifest.workflow for one in stuck.runs()})
    started = len(stuck.kin.w.journal.events())
    stuck.mend()
    stuck.kin.go()
    assert {one.head.ended for one in stuck.runs()} == {"failed"}
    assert len(stuck.kin.w.journal.events()) > started
    assert said(stuck.kin.w)[-1] == "undo c"
    stuck.kin.check()


def test_the_sweeper_wakes_an_unwinding_that_did_not_hear_of_the_end_of_its_child():
    stuck = Stuck(*YOUNG[0])
    w, succeed = stuck.kin.w, stuck.kin.w.engine.succeed
    assert "decision_unsent" not in sweep(w)
    w.engine.succeed = lambda token, result: token not in _parked(w) and succeed(token, result)
    stuck.mend()
    stuck.kin.go()
    assert ([one.head.ended for one in stuck.runs()].count(None), w.head.ended) == (1, None)
    w.engine.succeed = succeed
    assert "decision_unsent" in sweep(w)
    assert stuck.kin.go().w.head.ended == "failed"


def sweep(w):
    return [one.what for one in mend(w.steps, w.tenant, w.run, UNWIND)]


def _parked(w):
    return {w.records.park(UNWINDING).token}
