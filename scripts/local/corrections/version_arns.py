"""An execution started on a version ARN runs the newest definition of the machine.

On AWS it runs the definition of that version, and every execution keeps the definition it started
with. Upstream also leaves `stateMachineVersionArn` out of DescribeExecution and of status events.
"""

# ruff: noqa: SLF001 - it corrects private parts of the emulator

import json
from collections.abc import Callable
from typing import Any

from scripts.local.corrections.upstream import rewrite, stepfunctions, wrap

NAME = "version_arns"


def apply() -> None:
    """Keep definition and version with the execution, and report the version."""
    sf = stepfunctions()
    rewrite(
        NAME,
        sf,
        "_start_execution",
        (
            '        "testCase": test_case,\n',
            (
                '        "testCase": test_case,\n'
                '        "definition": (_state_machine_versions.get(_execution_version_arn(requested_arn)) or sm)'
                '["definition"],\n'
                '        "stateMachineVersionArn": _execution_version_arn(requested_arn),\n'
            ),
        ),
    )
    rewrite(
        NAME,
        sf,
        "_run_execution",
        ('json.loads(sm["definition"])', 'json.loads(execution.get("definition") or sm["definition"])'),
    )
    rewrite(
        NAME,
        sf,
        "_emit_execution_status_event",
        ('"stateMachineVersionArn": None,', '"stateMachineVersionArn": execution.get("stateMachineVersionArn"),'),
    )
    wrap(sf, "_describe_execution", _with_version)


def _with_version(describe: Callable[..., Any]) -> Callable[..., Any]:
    def described(data: dict[str, Any]) -> Any:
        status, headers, body = describe(data)
        execution: dict[str, Any] = stepfunctions()._executions.get(data.get("executionArn")) or {}
        version = execution.get("stateMachineVersionArn")
        if not version:
            return status, headers, body
        return status, headers, json.dumps({**json.loads(body), "stateMachineVersionArn": version}).encode()

    return described
