"""Where a run touches the world, and what can go wrong there.

Every call to a port gets a number. A fault strikes at one of them, or one at each of two: ``fails`` (nothing happened),
``answer lost`` (it happened, the caller hears an error), ``own write`` (a repetition by the client library meets its
own write), ``killed before``, ``killed after``, ``cancel`` (somebody cancels the run just before), ``stalls`` (the
engine gives the task up; its process goes on with this call shortly before it is ended).
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from machine import LAMBDA_SECONDS, Killed, TimedOut

from shared.errors import RateLimited, StoreConflict, TransientFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from machine import World

CALLS = ("fails", "answer lost", "killed before", "killed after")
KINDS = {
    "describe": ("fails", "answer lost", "killed before"),
    "commit": (*CALLS, "own write", "cancel", "stalls"),
    "start": (*CALLS, "cancel", "stalls"),
    "succeed": (*CALLS, "stalls"),
    "fail": (*CALLS, "stalls"),
    "complete": (*CALLS, "cancel", "stalls"),
    "invoke": (*CALLS, "cancel", "stalls"),
    "send": (*CALLS, "cancel", "stalls"),
    "announce": (*CALLS, "cancel"),
}
"""Which faults can strike at which call that changes something, or asks a far side to."""
READS = {
    "read": ("fails", "killed before"),
    "query": ("fails", "killed before"),
    "index": ("fails",),
    "put": ("fails", "answer lost", "killed before"),
    "get": ("fails", "killed before"),
    "complete": ("throttled",),
    "invoke": ("throttled",),
}
"""Which can strike at what only reads or stores values, and how a far side that is busy answers."""
WISH = 7.0
"""Seconds after which a busy far side wants to be asked again."""


class Lost(Exception):
    """The connection broke; whether the call arrived is not known."""


@dataclass
class Tap:
    """Numbers the calls and lets a fault strike, or two. ``cancel`` is called for the fault of that name.

    ``inside`` = the product is at work, and not the harness, which looks at the same store.
    """

    at: int = -1
    kind: str = ""
    second: tuple[int, str] = (-1, "")
    cancel: Callable[[], None] = lambda: None
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: KINDS)
    calls: list[str] = field(default_factory=list)
    stalled: threading.Thread | None = None
    released: threading.Event = field(default_factory=threading.Event)
    inside: bool = False

    @property
    def stalls(self) -> bool:
        """Tell whether one of the faults leaves a process behind that goes on later."""
        return "stalls" in {self.kind, self.second[1]}

    def onto(self, world: World) -> None:
        """Stand between the world and its ports."""
        call = world.call

        def called(function: str, event: dict[str, Any]) -> Any:
            with self.product():
                return call(function, event)

        world.call = called
        for port, error in ((world.store, Lost), (world.engine, Lost), (world.blobs, Lost)):
            self._between(port, error)
        for port in (world.models, world.tools, world.mail, world.bus):
            self._between(port, TransientFailure)

    def _between(self, port: Any, error: type[Exception]) -> None:
        for name in self.kinds.keys() & set(dir(port)):
            setattr(port, name, self._tapped(name, getattr(port, name), error))

    @contextmanager
    def product(self, *, at_work: bool = True) -> Generator[None]:
        """Mark what is called meanwhile as called by the product, or by the harness."""
        before, self.inside = self.inside, at_work
        try:
            yield
        finally:
            self.inside = before

    def kind_of(self, name: str) -> str:
        """Return what strikes at the call that was just counted; "" = nothing."""
        return {self.at: self.kind, self.second[0]: self.second[1]}.get(len(self.calls) - 1, "")

    def _tapped(self, name: str, call: Callable[..., Any], error: type[Exception]) -> Callable[..., Any]:
        def tapped(*given: Any, **named: Any) -> Any:
            if name in READS and name not in KINDS and not self.inside:
                return call(*given, **named)
            self.calls.append(name)
            kind = self.kind_of(name)
            self._before(kind, error)
            result = call(*given, **named)
            if kind == "killed after":
                raise Killed
            if kind == "own write":
                raise StoreConflict(name)
            if kind == "answer lost":
                raise error(name)
            return result

        return tapped

    def _before(self, kind: str, error: type[Exception]) -> None:
        if kind == "killed before":
            raise Killed
        if kind == "fails":
            raise error("before")
        if kind == "throttled":
            raise RateLimited("Slow down.", retry_after=WISH)
        if kind == "cancel":
            self.cancel()
        if kind == "stalls" and threading.current_thread() is not threading.main_thread():
            self.stalled = threading.current_thread()
            self.released.wait(60)


class Stalling:
    """Runs a world's functions in threads, so that one can stall while the engine goes on."""

    def __init__(self, world: World, tap: Tap) -> None:
        self.world, self.tap = world, tap
        self.zombie: threading.Thread | None = None
        self.until = 0
        self._call, self._sleep = world.call, world.clock.sleep
        world.call, world.clock.sleep = self.call, self.sleep

    def call(self, function: str, event: dict[str, Any]) -> Any:
        if self.tap.stalled:
            return self._call(function, event)
        answer: list[Any] = []
        ends = self.world.clock.now() + LAMBDA_SECONDS * 1000
        thread = threading.Thread(target=self._run, args=(function, event, answer), daemon=True)
        thread.start()
        # A function that waits plays what goes on meanwhile; of those in there, just the one that stalls is given up.
        while thread.is_alive() and self.tap.stalled is not thread:
            thread.join(0.0005)
        if answer:
            if isinstance(answer[0], BaseException):
                raise answer[0]
            return answer[0]
        self.zombie, self.until = thread, ends
        raise TimedOut

    def _run(self, function: str, event: dict[str, Any], answer: list[Any]) -> None:
        try:
            answer.append(self._call(function, event))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the engine hears it
            answer.append(error)

    def sleep(self, seconds: float) -> None:
        now = self.world.clock.now()
        if self.zombie and now + seconds * 1000 >= self.until:
            self._sleep(max(0.0, (self.until - 1 - now) / 1000))
            self.release()
            seconds = (now - self.world.clock.now()) / 1000 + seconds
        self._sleep(seconds)

    def release(self) -> None:
        """Let the stalled process go on to its end."""
        zombie, self.zombie = self.zombie, None
        if zombie:
            self.tap.released.set()
            zombie.join(60)
            assert not zombie.is_alive()
