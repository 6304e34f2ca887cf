"""The crash matrix: every call of every route with every fault, alone and in pairs, and what is then found wrong."""

from __future__ import annotations

import traceback
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from faults import KINDS, Tap
from routes import ROUTES, calls_of

from shared.runtime.scopes import COMPENSATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from play import Play

    from shared.ledger.records import Step


class Fault(NamedTuple):
    """What strikes at which call of a run, counted from 0."""

    number: int
    kind: str


def singles(route: str) -> list[Fault]:
    """Return every fault that can strike a route on which nothing else goes wrong."""
    return [Fault(number, kind) for number, call in enumerate(calls_of(route)) for kind in KINDS[call]]


def seconds(route: str, first: Fault) -> list[Fault]:
    """Return every fault that can strike after a first one, at the calls that the run then makes."""
    play, _ = ROUTES[route].make(tap := Tap(*first))
    play.to_the_end()
    calls = enumerate(tap.calls[first.number + 1 :], first.number + 1)
    # One process at a time can be left behind; more than one cancelling is one.
    once = {first.kind} & {"stalls", "cancel"}
    return [Fault(number, kind) for number, call in calls for kind in KINDS[call] if kind not in once]


def pairs(route: str) -> Iterator[tuple[Fault, Fault]]:
    """Yield every pair of faults of a route."""
    for first in singles(route):
        for second in seconds(route, first):
            yield first, second


def violation(route: str, *faults: Fault) -> str | None:
    """Play a route with one fault, or two, and return what is wrong then; None = every promise was kept."""
    first, *others = faults
    return judged(route, Tap(*first, second=tuple(others[0]) if others else (-1, "")), *faults)


def judged(route: str, tap: Tap, *faults: Fault) -> str | None:
    """Play a route with the faults of a tap, and return what is wrong then; None = every promise was kept."""
    play, far_side = ROUTES[route].make(tap)
    try:
        world = play.to_the_end()
        if not world.run:
            return None if faults[0].number == 0 else "there is no run"
        return _judged(route, play, far_side.live, faults)
    except AssertionError as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{where.name}: {where.line}: {error}"


def _judged(route: str, play: Play, live: int, faults: tuple[Fault, ...]) -> str | None:
    ended, kinds = play.world.head.ended, {fault.kind for fault in faults}
    # A second fault may use up what a step's policy allows: the run then fails, with nothing left undone.
    allowed = {ROUTES[route].ends} | ({"cancelled"} if "cancel" in kinds else set())
    allowed |= {"failed"} if len(faults) > 1 else set()
    if ended not in allowed:
        return f"ended as {ended}: {play.world.head.reason}"
    expected, above = done(play), Counter(play.seen(run).records.run.parent for run in play.runs())
    if len(above) < len(play.runs()):
        return f"a step has had two children: {above}"
    letters = letters_wrong(play, sum(goes_out_again(play, fault) for fault in faults))
    if letters:
        return letters
    return None if live == expected else f"{live} effects stand, the records say {expected}"


def goes_out_again(play: Play, fault: Fault) -> bool:
    """Tell whether a letter may have gone out that nobody could record then: it goes out once more."""
    failed_to_go = fault.kind == "fails" and play.tap.calls[fault.number] in {"send", "announce"}
    return fault.kind != "cancel" and not failed_to_go


def letters_wrong(play: Play, spare: int) -> str | None:
    """Return what is wrong with the letters of gates that escalate: above ``spare`` twice, or one missing."""
    gates = [gate for gate in play.world.records.gates() if gate.tier > 1]
    sent = Counter((message.to, message.subject) for message in play.world.mail.messages)
    twice = {one: number for one, number in sent.items() if number > 1}
    if gates and sum(twice.values()) - len(twice) > spare:
        return f"written to twice: {twice}"
    whys = {(to, subject.partition(":")[0]) for to, subject in sent}
    for gate in gates if play.world.head.ended == "completed" else ():
        first, *later = (tier["people"] for tier in gate.tiers[: gate.tier])
        due = {*((one, "reminder") for one in first), *((one, "escalation") for more in later for one in more)}
        missing = due - whys - {(one, "reminder") for one in asked_late(play)}
        if missing:
            return f"not written to: {missing}"
    return None


def asked_late(play: Play) -> set[str]:
    """Return who was asked only after the others had been reminded, since their first letter had failed."""
    events = play.world.journal.events()
    reminded = min((event.seq for event in events if event.type == "gate_reminded"), default=0)
    late = (event for event in events if event.type == "gate_mailed" and event.seq > reminded)
    return {str(event.data["to"]) for event in late if "why" not in event.data}


def done(play: Play) -> int:
    """Return how many effects stand, by the records of the run and its children."""
    steps = [step for run in play.runs() for step in play.seen(run).records.steps()]
    standing = sum(_stands(step) for step in steps)
    if play.world.unit.manifest.workflow == "invoice":
        assert (play.world.head.ended == "completed") == bool(standing)
    return standing


def _stands(step: Step) -> bool:
    effect = step.call is not None and step.call.risk != "read"
    return effect and step.status == "completed" and not step.path.endswith(COMPENSATE)
