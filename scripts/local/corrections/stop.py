"""StopExecution marks the execution ABORTED, but its branches, waits and parked tasks go on.

Upstream only the top-level loop looks at the status: branches of a Parallel state run to their end
and call their Lambdas, and an error in one of them turns ABORTED into FAILED.
"""

from collections.abc import Callable
from typing import Any

from scripts.local.corrections import scopes
from scripts.local.corrections.upstream import rewrite, stepfunctions, wrap

NAME = "stop"


def apply() -> None:
    """Put every execution into a scope, look at it before each state and attempt, end it on StopExecution."""
    sf = stepfunctions()
    names = {"_box": scopes}
    rewrite(
        NAME,
        sf,
        "_start_execution",
        ("args=(_run_execution, exec_arn)", "args=(_box.run_root, _run_execution, exec_arn)"),
    )
    rewrite(NAME, sf, "_scaled_sleep", ("time.sleep(scaled)", "_box.sleep(scaled)"), names=names)
    rewrite(
        NAME, sf, "_run_sub_machine", ("    while current_name:\n", "    while current_name:\n        _box.check()\n")
    )
    rewrite(NAME, sf, "_execute_task", ("    while True:\n", "    while True:\n        _box.check()\n"))
    rewrite(
        NAME,
        sf,
        "_invoke_with_callback",
        ("if not evt.wait(timeout=timeout):", "if not _box.wait(evt, timeout):"),
    )
    wrap(sf, "_stop_execution", _ending)
    wrap(sf, "_fail_execution", _first)


def _ending(stop: Callable[..., Any]) -> Callable[..., Any]:
    def stopped(data: dict[str, Any]) -> Any:
        answer = stop(data)
        scopes.end_root(str(data.get("executionArn")))
        return answer

    return stopped


def _first(fail: Callable[..., Any]) -> Callable[..., Any]:
    """An execution ends once: what fails while it is being stopped no longer counts."""

    def failed(execution: dict[str, Any], error: str, cause: str) -> None:
        if execution["status"] == "RUNNING":
            fail(execution, error, cause)

    return failed
