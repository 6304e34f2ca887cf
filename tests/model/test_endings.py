"""Unwinding, resume, child runs and slots, explored to a bound; and protocols that lack one rule each, found wanting.

``SIGNALBOX_MODEL_FAULTS=2`` allows another fault everywhere; it takes an hour.
"""

import os

import pytest

from tests.model.children import Children
from tests.model.explorer import explore
from tests.model.resuming import Resuming
from tests.model.slots import Slots
from tests.model.unwinding import Unwinding

MORE = int(os.environ.get("SIGNALBOX_MODEL_FAULTS", "1")) - 1


def holds(model, faults, states):
    """Explore a model to its bound, in which there are so many states."""
    found = explore(model, faults + MORE)
    assert found.states == states or MORE
    assert found.violations == {}
    assert found.complete
    assert found.resting


def finds(model, faults, violation):
    return violation in explore(model, faults, until=violation).violations


# --- unwinding -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "branches", "faults", "states"),
    [
        ("cancelled", "B", 1, 37_202),
        ("cancelled", "BC", 0, 9_430),
        ("stopped", "B", 1, 6_865),
        ("stopped", "BC", 0, 2_598),
    ],
)
def test_an_unwound_run_undoes_what_it_did_once_and_ends_once(ending, branches, faults, states):
    holds(Unwinding(ending, branches=branches), faults, states)


class OpensWhileItUnwinds(Unwinding):
    def nothing_opens(self, world):
        return bool(world.ended)


class EndsWithoutWaiting(Unwinding):
    def look(self, world, actor):
        return super().look(world._replace(open=0), actor)


class EndsWithoutLooking(Unwinding):
    def end(self, world, actor):
        return self.over(world, world.unwinding), None


class UndoesInOrder(Unwinding):
    def next_undo(self, world):
        return next((name for name in "ABC" if world.of(name).status == "completed"), "")


class GuessesWhatHappened(Unwinding):
    def drained(self, world):
        after = super().drained(world)
        steps = [step._replace(status="failed") if step.status == "unknown" else step for step in after.steps]
        return after._replace(steps=tuple(steps))


def parks_without_looking(actor):
    yield ("register",)
    return "parked"


def answers_nobody(actor):
    seen = yield ("look",)
    if seen == "end":
        yield ("end",)
    return seen


def test_unwinding_that_lacks_a_rule_is_found_wanting():
    assert finds(OpensWhileItUnwinds(branches="B"), 0, "opened while it unwinds")
    assert finds(EndsWithoutWaiting(branches="B"), 0, "open at the end")
    assert finds(EndsWithoutLooking(branches="B"), 1, "ended twice")
    assert finds(UndoesInOrder(branches="B"), 0, "not undone once each, the latest first")
    assert finds(GuessesWhatHappened(branches="B"), 1, "an effect is left, or undone for nothing")


@pytest.mark.parametrize(("program", "instead"), [("await", parks_without_looking), ("unwind", answers_nobody)])
def test_whoever_parks_without_looking_or_is_not_answered_sleeps_on(program, instead):
    model = Unwinding()
    model.programs[program] = instead
    assert finds(model, 0, "asleep after the end")


# --- resume --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "states"), [("cancelled", 20_805), ("stopped", 11_180)])
def test_a_resumed_run_does_nothing_twice(ending, states):
    holds(Resuming(ending, deaths=2), 1, states)


def test_two_who_resume_a_run_that_dies_three_times_each_do_so_once():
    holds(Resuming(deaths=3, people=("ops", "alex"), done=True), 1, 51_356)


class HearsOfEarlierEpochs(Resuming):
    def is_earlier(self, world, epoch):
        return False


class KnowsTheLastRequest(Resuming):
    def is_repeated(self, world, key):
        return world.keys[-1:] == (key,)


class CallsAnewInDoubt(Resuming):
    def drained(self, world):
        after = super().drained(world)
        return after._replace(steps=tuple(step._replace(doubt=False) for step in after.steps))


class ForgetsWhatCompleted(Resuming):
    def resume(self, world, actor):
        after, answer = super().resume(world, actor)
        return (after.step("A", status="new") if after.epoch > world.epoch else after), answer


def test_a_resume_that_lacks_a_rule_is_found_wanting():
    assert finds(HearsOfEarlierEpochs(), 1, "an earlier epoch has changed something")
    assert finds(CallsAnewInDoubt(), 1, "dispatched anew though it has happened")
    assert finds(ForgetsWhatCompleted(), 0, "dispatched anew though it has happened")


def test_a_request_that_is_known_only_until_the_next_one_resumes_twice():
    assert finds(KnowsTheLastRequest(deaths=3, people=("ops", "alex"), done=True), 1, "one request has resumed twice")


# --- child runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "begun", "faults", "states"),
    [
        ((), False, 1, 2_380),
        (("cancel",), False, 0, 35_595),
        (("cancel",), True, 1, 105_321),
        (("time-out",), True, 1, 147_455),
    ],
)
def test_a_parent_hears_once_of_its_child_and_ends_after_it(trouble, begun, faults, states):
    holds(Children(*trouble, begun=begun), faults, states)


class AnswersBeforeItEnds(Children):
    def is_heard(self, world):
        return world.inner == "completed"

    def run_work(self, actor):
        yield ("open",)
        yield ("close inner",)
        yield from self.answer()
        yield ("end",)
        return "done"


class CarvesApart(Children):
    def run_begin(self, actor):
        yield ("carve",)
        yield ("take",)
        yield ("register",)
        return "parked"

    def taken(self, world):
        return world

    def take(self, world, actor):
        return super().taken(world), None


class LooksBeforeItRegisters(Children):
    def run_begin(self, actor):
        yield ("carve",)
        yield from self.answer()
        yield ("register",)
        return "parked"


class EndsAlone(Children):
    def run_unwind(self, actor):
        yield ("end parent",)
        return "done"


class ClosesAgain(Children):
    def close(self, world, actor):
        return super().close(world._replace(step="waiting") if world.answers else world, actor)


def test_child_runs_that_lack_a_rule_are_found_wanting():
    assert finds(AnswersBeforeItEnds(), 0, "over before its child has ended")
    assert finds(CarvesApart(), 0, "the parent's limit does not add up")
    assert finds(LooksBeforeItRegisters(), 0, "the parent never hears of it")
    assert finds(EndsAlone("cancel"), 0, "over before its child has ended")
    assert finds(ClosesAgain(), 1, "heard twice")


# --- slots ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "places", "faults", "states"), [(2, 1, 1, 129_790), (3, 1, 0, 15_948), (3, 2, 0, 1_263)]
)
def test_no_more_are_open_than_there_are_places_and_none_waits_for_a_free_one(steps, places, faults, states):
    holds(Slots(steps, places), faults, states)


class GivesWithoutARecord(Slots):
    def given(self, world, index):
        return world.step(index, slot=True, answered=True)


class OpensWithoutASlot(Slots):
    def may_open(self, step):
        return True


class WakesNobody(Slots):
    def run_step(self, actor):
        yield ("close", (yield ("open",)))
        return "done"


class ListsBeforeItRegisters(Slots):
    def run_slot(self, actor):
        waiting = yield ("waiting",)
        yield ("register",)
        yield ("give", waiting)
        return "parked"


def test_slots_that_lack_a_rule_are_found_wanting():
    assert finds(GivesWithoutARecord(3, 1), 0, "the head counts wrong")
    assert finds(OpensWithoutASlot(2, 1), 1, "more open than places")
    assert finds(WakesNobody(2, 1), 0, "asleep while a place is free")
    assert finds(ListsBeforeItRegisters(2, 1), 0, "asleep while a place is free")
