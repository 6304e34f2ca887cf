"""The one thread on which all runs move, and those that make its calls.

Everything that a run does is short but for its calls. So one thread does it all, one thing after the other, each in a
*greenlet*: a function that can stand still in the middle without holding a thread. It stands still where it calls a
tool or a model (``away``): another thread makes the call, and not before what it follows from is on the disk. When
nothing moves any more, what all have decided is written together, and the calls begin.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.inprocess.tick import Ticks

T = TypeVar("T")
LOG = logging.getLogger("signalbox")
LONGEST = 0.02
"""Seconds after which what was decided is written although more could move: others wait to write as well."""


class Hub:
    """``calls`` may be made at a time; 0 = by the caller of ``drain``. ``failed`` is told when a tick is lost."""

    def __init__(self, ticks: Ticks, calls: int, failed: Callable[[Exception], None]) -> None:
        self._ticks, self._most, self._failed = ticks, calls, failed
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._outbox: deque[tuple[int, _Call] | None] = deque()
        self._sleepers: list[threading.Lock] = []
        self._leaving: list[_Call] = []
        self._loop: greenlet | None = None
        self._callers: list[threading.Thread] = []
        self._waking = False
        self._alive = self._under_way = self._batch = self._fresh = 0
        self._sent = self._flush = 0.0
        self._stopped = False

    # --- for those who have something to do ---------------------------------------------------------------------------

    def put(self, job: Callable[[], object]) -> None:
        """Let the hub's thread do this, in a greenlet of its own. Any thread may ask for it."""
        self._inbox.put(partial(_begin, job))

    def away(self, work: Callable[[], T]) -> T:
        """Let another thread do what may take long, once all that was decided so far is on the disk."""
        if not self._is_inside():
            return work()
        answer = self._wait(work)
        if answer.error is not None:
            raise answer.error
        return answer.result

    def saved(self) -> None:
        """Wait until all that was decided so far is on the disk."""
        if self._is_inside():
            self._wait(None)

    def _is_inside(self) -> bool:
        return self._loop is not None and getcurrent().parent is self._loop

    def _wait(self, work: Callable[[], Any] | None) -> _Answer:
        self._leaving.append(_Call(getcurrent(), work))
        return self._loop.switch() if self._loop else _NOTHING

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything move until the hub is stopped."""
        self._enter()
        while not self._stopped:
            self._do(self._inbox.get())
            self._move()
        self._leave()

    def drain(self) -> None:
        """Without other threads: let everything move until nothing does."""
        self._enter()
        while not self._inbox.empty():
            self._move()
        self._leave()

    def stop(self) -> None:
        """Stop when the tick at hand has ended."""
        self._stopped = True
        self._inbox.put(getcurrent)
        self._outbox.extend([None] * len(self._callers))
        self._wake()

    def join(self, seconds: float) -> None:
        """Wait for the threads, each that long at most: a call cannot be broken off."""
        for thread in self._callers:
            thread.join(seconds)

    def _enter(self) -> None:
        self._loop = getcurrent()
        self._ticks.enter()

    def _leave(self) -> None:
        self._loop = None
        self._ticks.leave()

    def _move(self) -> None:
        """Do what there is to do, write what was decided, and let go who has waited for that."""
        end = time.monotonic() + LONGEST
        while (job := self._next()) and time.monotonic() < end:
            self._do(job)
        if job:
            self._inbox.put(job)
        leaving, self._leaving = self._leaving, []
        begun = time.monotonic()
        try:
            self._ticks.finish()
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing was written
            self._lose(leaving, error)
        else:
            self._flush = time.monotonic() - begun
            self._let_go(leaving)

    def _next(self) -> Callable[[], object] | None:
        """Return what is to be done next. Quick calls come back together: waiting a little for them saves a flush."""
        company = self._fresh and time.monotonic() - self._sent < LONGEST
        try:
            return self._inbox.get(timeout=self._flush / 2) if company else self._inbox.get_nowait()
        except queue.Empty:
            return None

    def _do(self, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception as error:
            LOG.exception("something did not move")
            self._failed(error)

    def _lose(self, leaving: list[_Call], error: Exception) -> None:
        """Forget what could not be written. The records know how to go on, as after a crash."""
        self._failed(error)
        for call in leaving:
            call.waiting.throw(GreenletExit)

    def _let_go(self, leaving: list[_Call]) -> None:
        calls = [call for call in leaving if call.work and self._most]
        for call in leaving:
            if not (call.work and self._most):
                self._inbox.put(partial(_make, call))
        if calls and not self._stopped:
            self._send(calls)

    # --- the callers --------------------------------------------------------------------------------------------------

    def _send(self, calls: list[_Call]) -> None:
        self._sent, self._fresh = time.monotonic(), len(calls)
        self._batch += 1
        self._under_way += len(calls)
        while self._alive < min(self._under_way, self._most):
            self._hire()
        self._outbox.extend((self._batch, call) for call in calls)
        self._wake()

    def _hire(self) -> None:
        self._alive += 1
        thread = threading.Thread(target=self._make_calls, name=f"signalbox-{len(self._callers)}", daemon=True)
        self._callers.append(thread)
        thread.start()

    def relieve(self) -> None:
        """Have one more thread, instead of one whose call does not end."""
        self._most += 1
        self._hire()

    def dismiss(self) -> None:
        """Have one less: the call has ended after all."""
        self._most -= 1
        self._alive -= 1
        self._outbox.append(None)
        self._wake()

    def _make_calls(self) -> None:
        bell = threading.Lock()
        bell.acquire()
        while sent := self._take(bell):
            batch, call = sent
            self._inbox.put(partial(self._back, batch, _made(call)))

    def _take(self, bell: threading.Lock) -> tuple[int, _Call] | None:
        """Return the next call, and wake who takes the one after it: he gets to it when this call waits for something.

        So calls that wait for the far side wait side by side, and quick ones cost no change of threads.
        """
        while True:
            try:
                call = self._outbox.popleft()
            except IndexError:
                self._sleepers.append(bell)
                self._wake()
                bell.acquire()
                self._waking = False
            else:
                self._wake()
                return call

    def _wake(self) -> None:
        """Wake a thread, if there is a call for it and one that sleeps, and none is waking up already."""
        if self._outbox and not self._waking:
            try:
                bell = self._sleepers.pop()
            except IndexError:
                return
            self._waking = True
            bell.release()

    def _back(self, batch: int, switch: Callable[[], object]) -> None:
        self._under_way -= 1
        self._fresh -= batch == self._batch
        switch()


class _Call(NamedTuple):
    """Who stands still until ``work`` is done; None = only until the tick has ended."""

    waiting: greenlet
    work: Callable[[], Any] | None


class _Answer(NamedTuple):
    result: Any = None
    error: BaseException | None = None


_NOTHING = _Answer()


def _begin(job: Callable[[], object]) -> None:
    greenlet(job).switch()


def _make(call: _Call) -> None:
    _made(call)()


def _made(call: _Call) -> Callable[[], object]:
    """Make a call; return what lets go on, on the hub's thread, who waits for it."""
    return partial(call.waiting.switch, _answer(call.work) if call.work else _NOTHING)


def _answer(work: Callable[[], Any]) -> _Answer:
    try:
        return _Answer(work())
    except SystemExit as error:  # a call does not end its host
        return _Answer(error=RuntimeError(f"the call wanted to end the process: {error}"))
    except BaseException as error:  # noqa: BLE001 - it belongs to the one who waits
        return _Answer(error=error)
