"""Every Python exception, and a crash too, reaches Step Functions as `Runtime.HandlerError`.

AWS reports the class name of the exception (`ValueError`) with its stack trace, and `Runtime.ExitError`
for a process that died.
"""

# ruff: noqa: SLF001 - it corrects private parts of the emulator

from typing import Any

from scripts.local.corrections.upstream import changed, lambda_runtime, lambda_service, rewrite

NAME = "error_names"
_DIED = "Worker process died"


def apply() -> None:
    """Let the worker report the class, and the service pass it on."""
    runtime = lambda_runtime()
    runtime._PYTHON_WORKER_SCRIPT = changed(
        NAME,
        "lambda_runtime._PYTHON_WORKER_SCRIPT",
        runtime._PYTHON_WORKER_SCRIPT,
        (
            '"error": str(e), "trace": traceback.format_exc()}',
            (
                '"error": str(e), "type": type(e).__name__, "stack": traceback.format_tb(e.__traceback__)[1:], '
                '"trace": traceback.format_exc()}'
            ),
        ),
    )
    rewrite(
        NAME,
        lambda_service(),
        "_execute_function_warm",
        (
            (
                '"body": {\n                    "errorMessage": error_msg,\n'
                '                    "errorType": error_type,\n                },'
            ),
            '"body": _error_body(result, error_msg, error_type, request_id),',
        ),
        names={"_error_body": _error_body},
    )


def _error_body(result: dict[str, Any], message: str, kind: str, request_id: str) -> dict[str, Any]:
    """The body AWS gives for a failed invocation."""
    if message == _DIED:
        return {"errorType": "Runtime.ExitError", "errorMessage": f"RequestId: {request_id} Error: Runtime exited"}
    if "type" not in result:
        return {"errorMessage": message, "errorType": kind}
    return {
        "errorMessage": message,
        "errorType": result["type"],
        "requestId": request_id,
        "stackTrace": result["stack"],
    }
