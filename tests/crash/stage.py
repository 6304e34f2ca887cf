"""A stage on which actors move one at a time, and who moves next is drawn by lot: every order can be played again.

An actor is a greenlet. It gives way before each of its calls to the outside, and it may wait, for something or until a
time. When nobody can move, the clock jumps to the next time that somebody waits for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet
from machine import Killed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from shared.testing import FrozenClock

MONTH = 31 * 86_400_000
YEAR = 12 * MONTH
"""Milliseconds that pass at once while somebody could move, and while nobody can; no execution lives longer."""
STEPS = 20_000
"""Moves after which a play runs in circles."""


@dataclass(eq=False)
class Actor:
    """``ready`` and ``due`` (ms) are what it waits for; its process ends at ``deadline`` (ms), wherever it stands.

    ``stopped`` = it ends where it stands. ``heard`` = somebody looks at how it has ended.
    """

    name: str
    ready: Callable[[], bool] | None = None
    due: int | None = None
    deadline: int | None = None
    rank: float = 0.0
    over: bool = False
    stopped: bool = False
    heard: bool = False
    result: Any = None
    error: BaseException | None = None
    thread: greenlet | None = None

    def able(self, now: int) -> bool:
        """Tell whether it can move."""
        if self.stopped or (self.deadline is not None and now >= self.deadline):
            return True  # it ends
        return self.ready is None or (self.due is not None and now >= self.due) or self.ready()


class Stage:
    """``leaps`` is how likely it is, at each move, that time passes although somebody could move."""

    def __init__(self, clock: FrozenClock, lots: random.Random, leaps: float = 0.0) -> None:
        self.clock, self._lots, self._leaps = clock, lots, leaps
        self.actors: list[Actor] = []
        self.moves = 0
        self._loop = getcurrent()
        # Fair lots mix calls finely; ranks let some actors stand still for long while others finish.
        self._ranked = lots.random() < 0.5
        clock.sleep = self.sleep

    # --- for actors ------------------------------------------------------------------------------------------------

    def spawn(self, name: str, work: Callable[[], Any], seconds: float | None = None, *, heard: bool = False) -> Actor:
        """Let somebody do this beside the others, for at most ``seconds``; ``heard`` = who asks takes its errors."""
        deadline = None if seconds is None else self.clock.now() + int(seconds * 1000)
        actor = Actor(name, deadline=deadline, rank=self._lots.random(), heard=heard)

        def play() -> None:
            try:
                actor.result = work()
            except BaseException as error:  # noqa: BLE001 - it belongs to who waits for the actor
                actor.error = error
            actor.over = True

        actor.thread = greenlet(play, parent=self._loop)
        self.actors.append(actor)
        return actor

    def give_way(self) -> None:
        """Let others move first. Outside the stage: go on."""
        self.until(None)

    def until(self, ready: Callable[[], bool] | None, due: int | None = None) -> None:
        """Stand still until ``ready``, or until ``due`` (ms). Raises Killed when the actor's process ends meanwhile."""
        actor = self._current()
        if actor is None:
            return
        actor.ready, actor.due = ready, due
        self._loop.switch()
        actor.ready = actor.due = None
        if actor.stopped or (actor.deadline is not None and self.clock.now() >= actor.deadline):
            raise Killed

    def sleep(self, seconds: float) -> None:
        """Stand still for so long; outside the stage, time just passes."""
        end = self.clock.now() + int(seconds * 1000)
        if self._current() is None:
            self.clock.time = end
        self.until(lambda: False, end)

    def _current(self) -> Actor | None:
        current = getcurrent()
        return next((actor for actor in self.actors if actor.thread is current), None)

    # --- the play --------------------------------------------------------------------------------------------------

    def play(self, before: Callable[[], None]) -> None:
        """Let all move until nobody can and no time helps. ``before`` is called before each move."""
        while self.moves < STEPS:
            before()
            now = self.clock.now()
            able = [actor for actor in self.actors if actor.able(now)]
            if able and self._lots.random() >= self._leaps:
                self._move(self._next(able))
            elif not self._leap(YEAR if not able else MONTH) and not able:
                return
        raise AssertionError("the play runs in circles: " + ", ".join(actor.name for actor in self.actors))

    def _next(self, able: list[Actor]) -> Actor:
        if not self._ranked:
            return self._lots.choice(able)
        first = max(able, key=lambda actor: actor.rank)
        if self._lots.random() < 0.05:
            first.rank = self._lots.random() - 1
        return first

    def _move(self, actor: Actor) -> None:
        self.moves += 1
        assert actor.thread is not None
        actor.thread.switch()
        if actor.over:
            self.actors.remove(actor)
            if actor.error and not actor.heard:
                raise actor.error

    def _leap(self, most: int) -> bool:
        """Let time pass until the next moment that somebody waits for. Returns whether there is one so soon."""
        now = self.clock.now()
        moments = [actor.due for actor in self.actors if actor.due is not None and now < actor.due <= now + most]
        if not moments:
            return False
        self.clock.time = min(moments)
        return True
