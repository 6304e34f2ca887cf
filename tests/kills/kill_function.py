"""The functions of the local cloud whose processes are killed: by themselves at one call to the outside, or by others.

``KILLS`` in the environment is the folder that all of them share: who is busy, which calls a run has made, at which of
them the process that makes it dies, and what was done outside.
"""

from __future__ import annotations

import fcntl
import os
import signal
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from cloud_function import gates, perform, ports
from sink import Sink, SinkTools

from shared.runtime.host import StepHost
from shared.testing import FakeModels

FOLDER = Path(os.environ.get("KILLS", "."))
SECONDS = 8.0
"""Time that a function has."""
CALLS = ("commit", "start", "succeed", "fail", "invoke")
"""What changes something outside, on any port."""


class Deadly:
    """A port that counts the calls of the run at hand; this process may die before or after one of them."""

    run = ""

    def __init__(self, port: Any) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._port, name)
        return self._counted(call, name) if name in CALLS else call

    def _counted(self, call: Any, name: str) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            now = (counted_as(Deadly.run, name), *planned(Deadly.run))
            if now[:1] == now[1:2] and now[2] == "before":
                die(Deadly.run)
            try:
                return call(*given, **named)
            finally:  # a write that lost against another's is a call as well
                if now[:1] == now[1:2]:
                    die(Deadly.run)

        return counted


def counted_as(run: str, name: str) -> int:
    """Return the number of a run's call, from 1, over all processes."""
    with (FOLDER / "calls" / run).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{name}\n")
        file.flush()
        file.seek(0)
        return len(file.readlines())


def planned(run: str) -> tuple[int, str]:
    """Return at which call of a run its process is to die, and whether before or after it."""
    plan = FOLDER / "plans" / run
    number, _, moment = plan.read_text().partition(" ") if plan.exists() else ("0", "", "")
    return int(number), moment


def die(run: str) -> None:
    """Be killed."""
    (FOLDER / "killed" / run).touch()
    _busy().unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _busy() -> Path:
    return FOLDER / "busy" / str(os.getpid())


@cache
def _ports() -> dict[str, Any]:
    known = ports(boto3.client)
    return {**known, "store": Deadly(known["store"]), "engine": Deadly(known["engine"])}


@cache
def _steps() -> StepHost:
    tools: Any = Deadly(SinkTools(Sink(FOLDER / "sink"), pause=float(os.environ["PAUSE"])))
    return StepHost(**_ports(), models=FakeModels(lambda _: ""), tools=tools)


@cache
def _gates() -> Any:
    return gates(_ports())


_steps()  # what takes long on a busy machine comes before the time of a call begins


class Short:
    """Lambda's context, with less time: a lease that somebody has to wait for is soon over."""

    def __init__(self, context: Any) -> None:
        self.aws_request_id = context.aws_request_id

    def get_remaining_time_in_millis(self) -> int:
        return int(signal.getitimer(signal.ITIMER_REAL)[0] * 1000)


def handle(event: dict[str, Any], context: Any) -> Any:
    """Do what the function of this role does, and be seen to be busy meanwhile. The time's end is this process's."""
    Deadly.run = event["run"]["id"]
    _busy().touch()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return perform(event, Short(context), _steps(), _gates)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _busy().unlink(missing_ok=True)
