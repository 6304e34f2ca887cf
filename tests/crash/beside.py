"""Kinds of run in which something happens outside, under the same faults: our protocol beside Powertools' decorator.

Ours are routes of the crash matrix. Each call for an effect that arrives counts, as on a far side without keys; such a
far side would show no difference as long as none comes twice. The decorator is played on three far sides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import bodies
from decorator import FAULTS, LATE, Harm, Tree, count, theirs
from faults import KINDS as STRIKING
from faults import Tap
from machine import Killed
from matrix import done
from route import Route
from routes import ROUTES, post, shape

from shared.manifest import Retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from play import Play

LOOK = {"tool": "check", "with": {"what": "x"}, "compensate": None, "reconcile": None}
READ = bodies.plan("check", "tool", spec=LOOK, risk="read", retry=Retry(2))
BLIND = replace(post(), spec={**post().spec, "reconcile": None})
EFFECTS = frozenset({"post", "pay", "reserve"})
"""The tools of the routes that make an effect."""
ALL = slice(None)
NEVER_BEGUN = "never begun"


class Kind(NamedTuple):
    """One kind of run: what the decorated handler does, and our route that does the same.

    ``repeats``: the file lets the call be made once more, and neither a probe nor a person could tell what it has done.
    """

    tree: Tree
    route: Route
    repeats: bool = False


KINDS = {
    "read": Kind(("read",), Route(shape(READ), "completed")),
    "model request": Kind(("model",), ROUTES["plain agent"]),
    "irreversible tool": Kind(("make",), ROUTES["pay"]),
    "reversible tool": Kind(("make",), Route(shape(post()), "completed")),
    "reversible, no probe": Kind(("make",), Route(shape(BLIND), "completed"), repeats=True),
    "read, then payment": Kind(("read", "make"), ROUTES["look, wait, pay"]),
    "three steps": Kind(("make", "make", "make"), ROUTES["slots"]),
    "map of payments": Kind(("make", "make"), ROUTES["pay in a map"]),
    "loop of payments": Kind(("make", "make"), ROUTES["pay in a loop"]),
    "sub-workflow": Kind((("make",),), ROUTES["sub-workflow"]),
    "agent with tools": Kind(("model", "read", "make", "model", "make", "model"), ROUTES["agent"]),
    "undone": Kind(("make", ("make",), "refused"), ROUTES["undone sub-workflow"]),
}
FAR_SIDES = {
    "powertools": {},
    "powertools, looked up first": {"looks": True},
    "powertools, far side with keys": {"keys": True},
}
"""The decorator alone; with a look-up written by hand into each function; at a far side that makes one effect a key."""


def compared(name: str, share: slice = ALL) -> dict[str, dict[str, int]]:
    """Return what becomes of a kind of run on every side; of ours, ``share`` is played."""
    kind = KINDS[name]
    sides = {far_side: counted(theirs(kind.tree, **how)) for far_side, how in FAR_SIDES.items()}
    return {"signalbox": counted(ours(kind, share)), **sides}


def broken(kinds: Mapping[str, dict[str, dict[str, int]]]) -> list[str]:
    """Return the kinds of run of which we have broken a promise."""
    found = ((name, sides["signalbox"]) for name, sides in kinds.items())
    return [name for name, our in found if our["unsaid"] or (our["duplicated"] and not KINDS[name].repeats)]


def totals(kinds: Iterable[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """Return the sums over kinds of run, side by side."""
    sums: dict[str, Counter[str]] = {}
    for kind in kinds:
        for side, numbers in kind.items():
            sums.setdefault(side, Counter()).update(numbers)
    return {side: dict(numbers) for side, numbers in sums.items()}


def counted(found: Sequence[Harm]) -> dict[str, int]:
    """Return how many scenarios there are, and in how many of them which harm was done."""
    return {"scenarios": len(found), **{name: sum(getattr(harm, name) for harm in found) for name in Harm._fields}}


def ours(kind: Kind, share: slice) -> list[Harm]:
    """Play a route with every fault at every call of a calm run, and all delivered once more after its end."""
    play, _ = kind.route.make(tap := Tap())
    play.to_the_end()
    assert _made(play) == count(kind.tree, "make"), "both sides do the same"
    requests = len(play.world.models.requests)
    faults = [
        (number, fault)
        for number, call in enumerate(tap.calls)
        for fault in FAULTS
        if fault in {"delivered twice", *STRIKING[call]}
    ]
    found = [_played(kind, requests, *fault) for fault in [*faults, (-1, LATE)][share]]
    return [harm for harm in found if harm]


def _played(kind: Kind, requests: int, number: int, fault: str) -> Harm | None:
    """Play one scenario; None = nothing was there to be delivered twice."""
    # What happens just before a call is what a cancel does elsewhere.
    tap = Tap(number, "cancel" if fault == "delivered twice" else fault)
    play, far_side = kind.route.make(tap)
    posts = Deliveries(play)
    end = _end(play, far_side)
    if fault == LATE:
        posts.all_again()
    if fault == "delivered twice" and not posts.twice:
        return None
    duplicated = _made(play) > count(kind.tree, "make")
    paid_twice = len(play.world.models.requests) > requests
    return Harm(duplicated, paid_twice, end not in {NEVER_BEGUN, kind.route.ends}, _asked(play))


def _end(play: Play, far_side: Any) -> str:
    """Return how the run has ended, if what stands outside is what its records say."""
    try:
        world = play.to_the_end()
    except AssertionError as error:
        return str(error)
    if not world.run:  # whoever has asked for the run hears that this failed
        return NEVER_BEGUN
    return str(world.head.ended) if far_side.live == done(play) else "not as the records say"


def _made(play: Play) -> int:
    return sum(name in EFFECTS for name, _, _ in play.world.tools.calls)


def _asked(play: Play) -> bool:
    """Tell whether a person had to say what became of a step."""
    events = (event for run in play.runs() for event in play.seen(run).journal.events())
    return any(event.type == "step_resumed" for event in events)


class Deliveries:
    """What the engine delivers of a play; the one under way comes once more, in its middle, when the tap says so."""

    def __init__(self, play: Play) -> None:
        self._call, self._open, self.twice = play.world.call, list[tuple[str, Any]](), False
        self.seen: list[tuple[str, Any]] = []
        play.world.call, play.tap.cancel = self.deliver, self.again

    def deliver(self, function: str, event: Any) -> Any:
        """Deliver for the first time."""
        self.seen.append((function, event))
        self._open.append((function, event))
        try:
            return self._call(function, event)
        finally:
            self._open.pop()

    def again(self) -> None:
        """Deliver the one under way once more."""
        if self._open:
            self.twice = True
            self._quietly(*self._open[-1])

    def all_again(self) -> None:
        """Deliver everything once more."""
        for delivery in list(self.seen):
            self._quietly(*delivery)

    def _quietly(self, function: str, event: Any) -> None:
        try:
            self._call(function, event)
        except (Killed, Exception):  # noqa: BLE001 - nobody hears it
            return
