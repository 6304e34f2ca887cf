"""A handler that raises loses its warm process, so the next call is a cold start.

On AWS an exception is an answer like any other: the environment goes on. Only a crash or a time-out ends it.
"""

import inspect
import textwrap

from scripts.local.corrections.upstream import changed, lambda_runtime

NAME = "worker_survives"


def apply() -> None:
    """Keep the process when its answer carries a Python trace: then it was the handler that raised."""
    runtime = lambda_runtime()
    source = changed(
        NAME,
        "lambda_runtime.Worker.invoke",
        textwrap.dedent(inspect.getsource(runtime.Worker.invoke)),
        ('if response.get("status") == "error":', 'if response.get("status") == "error" and "trace" not in response:'),
    )
    made: dict[str, object] = {}
    code = compile(source, "<Worker.invoke, corrected>", "exec")
    exec(code, runtime.__dict__, made)  # noqa: S102 - upstream's own text
    runtime.Worker.invoke = made["invoke"]
