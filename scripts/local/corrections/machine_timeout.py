"""A machine's own TimeoutSeconds is ignored; AWS ends the execution as TIMED_OUT and says so in an event."""

# ruff: noqa: SLF001 - it corrects private parts of the emulator

import contextvars
import threading
from typing import Any

from scripts.local.corrections import scopes
from scripts.local.corrections.upstream import rewrite, stepfunctions

NAME = "machine_timeout"


def apply() -> None:
    """Watch every execution whose machine has a time-out."""
    rewrite(
        NAME,
        stepfunctions(),
        "_run_execution",
        (
            '    all_states = definition.get("States", {})\n',
            '    _watch_deadline(execution, definition)\n    all_states = definition.get("States", {})\n',
        ),
        names={"_watch_deadline": _watch},
    )


def _watch(execution: dict[str, Any], definition: dict[str, Any]) -> None:
    seconds = definition.get("TimeoutSeconds")
    if seconds is None:
        return
    timer = threading.Timer(float(seconds), contextvars.copy_context().run, args=(_time_out, execution))
    timer.daemon = True
    timer.start()


def _time_out(execution: dict[str, Any]) -> None:
    sf = stepfunctions()
    if execution["status"] != "RUNNING":
        return
    execution.update(status="TIMED_OUT", stopDate=sf.now_iso())
    sf._add_event(execution, "ExecutionTimedOut", {"executionTimedOutEventDetails": {}})
    sf._emit_execution_status_event(execution)
    scopes.end_root(execution["executionArn"])
