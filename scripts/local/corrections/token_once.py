"""A second answer to a task token wins over the first when it comes soon enough.

AWS takes the first answer; every later one, and one to a token whose task is over, gets `TaskTimedOut`.
"""

# ruff: noqa: SLF001 - it corrects private parts of the emulator

import threading
import uuid
from collections.abc import Callable
from typing import Any

from scripts.local.corrections.upstream import expect, stepfunctions, wrap

NAME = "token_once"
_OVER = ("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'", 400)
_INVALID = ("InvalidToken", "Invalid Token: 'Invalid token'", 400)
_lock = threading.Lock()


def apply() -> None:
    """Refuse answers to tokens that are answered or over."""
    sf = stepfunctions()
    for function in ("_send_task_success", "_send_task_failure", "_send_task_heartbeat"):
        expect(NAME, f"stepfunctions.{function}", holds="_task_tokens" in getattr(sf, function).__code__.co_names)
        wrap(sf, function, _once)


def _once(send: Callable[..., Any]) -> Callable[..., Any]:
    def sent(data: dict[str, Any]) -> Any:
        sf = stepfunctions()
        token = str(data.get("taskToken"))
        with _lock:
            known = sf._task_tokens.get(token)
            if known is None:
                return sf.error_response_json(*(_OVER if _issued(token) else _INVALID))
            return sf.error_response_json(*_OVER) if known["event"].is_set() else send(data)

    return sent


def _issued(token: str) -> bool:
    """Whether the emulator could have issued it: its tokens are UUIDs."""
    try:
        return str(uuid.UUID(token)) == token
    except ValueError:
        return False
