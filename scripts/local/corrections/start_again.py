"""StartExecution with the name and input of a running execution fails with `ExecutionAlreadyExists`.

AWS answers such a repetition with the running execution; only another input, or an execution that
has ended, is refused.
"""

from scripts.local.corrections.upstream import rewrite, stepfunctions

NAME = "start_again"


def apply() -> None:
    """Answer a repetition like the first call."""
    rewrite(
        NAME,
        stepfunctions(),
        "_start_execution",
        (
            "    if exec_arn in _executions:\n",
            (
                "    known = _executions.get(exec_arn)\n"
                '    if known and known["status"] == "RUNNING" and known["input"] == data.get("input", "{}"):\n'
                '        return json_response({"executionArn": exec_arn, "startDate": known["startDate"]})\n'
                "    if exec_arn in _executions:\n"
            ),
        ),
    )
