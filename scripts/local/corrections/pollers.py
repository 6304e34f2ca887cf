"""One thread polls SQS, Kinesis and DynamoDB streams in turn, so a slow stream handler delays every queue."""

# ruff: noqa: SLF001 - it corrects private parts of the emulator

import threading
from collections.abc import Callable
from typing import Any

from scripts.local.corrections.upstream import expect, lambda_service

NAME = "pollers"
_POLLS = ("_poll_sqs", "_poll_kinesis", "_poll_dynamodb_streams")
_IDLE = 0.5
"""Seconds until an idle poller looks again without having been woken (for retries that became due)."""


class _Wake:
    """Stands in for the one event that writers set: it wakes every poller."""

    def __init__(self) -> None:
        self.events = {name: threading.Event() for name in _POLLS}

    def set(self) -> None:
        for event in self.events.values():
            event.set()


def apply() -> None:
    """Give every source a thread of its own."""
    service = lambda_service()
    expect(NAME, "lambda_svc._poll_loop", holds=set(_POLLS) <= set(service._poll_loop.__code__.co_names))
    wake = service._esm_wake
    every = _Wake()
    wake.set = every.set
    service._poll_loop = lambda: _start(service, every)


def _start(service: Any, wake: _Wake) -> None:
    for name, event in wake.events.items():
        threading.Thread(target=_poll, args=(getattr(service, name), event, service.logger), daemon=True).start()


def _poll(once: Callable[[], bool], wake: threading.Event, logger: Any) -> None:
    while True:
        wake.clear()
        try:
            found = once()
        except Exception:
            logger.exception("event source poller")
            found = False
        if not found:
            wake.wait(_IDLE)
