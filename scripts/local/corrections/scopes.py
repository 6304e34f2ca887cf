"""What runs inside an execution, as a tree that can be ended from the outside.

A scope is one execution or one branch of a Parallel state. Ending it wakes whatever sleeps or waits
for a token in it, and everything below it.
"""

# ruff: noqa: SLF001 - it corrects private parts of the emulator

import contextvars
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from scripts.local.corrections.upstream import stepfunctions


class Scope:
    """One execution or branch, with the scopes and waiters below it."""

    def __init__(self, parent: "Scope | None" = None) -> None:
        self.ended = threading.Event()
        self._waiters: set[threading.Event] = set()
        self._children: list[Scope] = []
        self._lock = threading.Lock()
        if parent is not None:
            parent.adopt(self)

    def adopt(self, child: "Scope") -> None:
        """Take in a child; one that comes too late ends at once."""
        with self._lock:
            self._children.append(child)
        if self.ended.is_set():
            child.end()

    def end(self) -> None:
        """End this scope and all below it."""
        self.ended.set()
        with self._lock:
            waiters, children = list(self._waiters), list(self._children)
        for waiter in waiters:
            waiter.set()
        for child in children:
            child.end()

    @contextmanager
    def waking(self, waiter: threading.Event) -> Generator[None]:
        """Let `end` set `waiter` while the block runs."""
        with self._lock:
            self._waiters.add(waiter)
        try:
            if self.ended.is_set():
                waiter.set()
            yield
        finally:
            with self._lock:
                self._waiters.discard(waiter)


current: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("signalbox_scope", default=None)
roots: dict[str, Scope] = {}
"""Execution ARN -> its scope, while it runs."""


def check() -> None:
    """Raise upstream's execution error when the current scope has ended."""
    scope = current.get()
    if scope is not None and scope.ended.is_set():
        raise stepfunctions()._ExecutionError("States.Aborted", "The execution or branch was stopped.")


def sleep(seconds: float) -> None:
    """Sleep, or wake early because the scope ended."""
    (current.get() or Scope()).ended.wait(seconds)


def wait(waiter: threading.Event, seconds: float) -> bool:
    """Wait for a token's answer; as soon as the scope ends, raise like `check`."""
    with (current.get() or Scope()).waking(waiter):
        answered = waiter.wait(min(seconds, threading.TIMEOUT_MAX))
    check()
    return answered


def run_root(run: Any, execution_arn: str) -> None:
    """Run one execution inside a scope of its own."""
    scope = Scope()
    roots[execution_arn] = scope
    current.set(scope)
    try:
        run(execution_arn)
    finally:
        roots.pop(execution_arn, None)


def end_root(execution_arn: str) -> None:
    """End an execution's scope, if it still runs."""
    scope = roots.get(execution_arn)
    if scope is not None:
        scope.end()
