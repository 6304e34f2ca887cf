"""The engine on Step Functions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from shared.errors import PermanentFailure, TransientFailure
from shared.ports import Engine, Execution

if TYPE_CHECKING:
    from collections.abc import Mapping

_GONE = frozenset({"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"})
_CAUSE_LIMIT = 32_000
_INPUT_LIMIT = 256 * 1024


class StepFunctions(Engine):
    """Executions and task tokens. ``client`` is a boto3 Step Functions client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def start(self, machine: str, name: str, data: Mapping[str, Any]) -> None:
        """Start an execution; one that exists under this name was started by us with the same input."""
        text = json.dumps(data, sort_keys=True)
        if len(text.encode()) > _INPUT_LIMIT:
            raise PermanentFailure(f"The input of execution {name} exceeds {_INPUT_LIMIT} bytes.")
        try:
            self._client.start_execution(stateMachineArn=machine, name=name, input=text)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionAlreadyExists":
                raise TransientFailure(f"Execution {name} could not be started: {error}") from error

    def describe(self, machine: str, name: str) -> Execution | None:
        """Return how an execution stands. Step Functions forgets it 90 days after its end."""
        try:
            found = self._client.describe_execution(executionArn=execution_arn(machine, name))
        except ClientError as error:
            if error.response["Error"]["Code"] == "ExecutionDoesNotExist":
                return None
            raise TransientFailure(f"Execution {name} could not be looked at: {error}") from error
        return Execution(found["status"].lower(), str(found.get("cause") or found.get("error") or ""))

    def succeed(self, token: str, output: Mapping[str, Any]) -> bool:
        """Answer a task token; False when nobody waits for it any more."""
        return self._send(self._client.send_task_success, taskToken=token, output=json.dumps(output))

    def fail(self, token: str, error: str, cause: str) -> bool:
        """Fail a task token; False when nobody waits for it any more."""
        return self._send(self._client.send_task_failure, taskToken=token, error=error, cause=cause[:_CAUSE_LIMIT])

    def _send(self, call: Any, **arguments: str) -> bool:
        try:
            call(**arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] in _GONE:
                return False
            raise TransientFailure(f"A task could not be answered: {error}") from error
        return True


def execution_arn(machine: str, name: str) -> str:
    """Return the ARN of a machine's execution; it is the same whether a version was started or the machine itself."""
    *start, _, machine_name = machine.split(":")[:7]
    return ":".join((*start, "execution", machine_name, name))
