"""A Lambda that raises under `.waitForTaskToken` leaves its task parked until the time-out.

AWS fails the task at once with the Lambda's error. Upstream also calls the Lambda before the
time-out begins to count, so a hanging call holds the task past its TimeoutSeconds.
"""

# ruff: noqa: SLF001 - it corrects private parts of the emulator

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from scripts.local.corrections.upstream import rewrite, stepfunctions

NAME = "token_errors"


def apply() -> None:
    """Call the Lambda beside the wait, and let its error answer the token."""
    rewrite(
        NAME,
        stepfunctions(),
        "_invoke_with_callback",
        (
            (
                "        try:\n            _call_lambda(func_ref, lambda_payload)\n"
                "        except _ExecutionError:\n            pass\n"
            ),
            "        _call_beside(lambda: _call_lambda(func_ref, lambda_payload), _task_tokens[token])\n",
        ),
        names={"_call_beside": _call_beside},
    )


def _call_beside(call: Callable[[], Any], token: dict[str, Any]) -> None:
    """Run `call` in a thread; a failure becomes the token's answer unless it has one."""
    failure = stepfunctions()._ExecutionError

    def run() -> None:
        try:
            call()
        except failure as error:
            if not token["event"].is_set():
                token["error"] = {"Error": error.error, "Cause": error.cause}
                token["event"].set()

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
