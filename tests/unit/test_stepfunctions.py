"""The engine on Step Functions: looking at executions."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from shared.engine.stepfunctions import StepFunctions, execution_arn
from shared.errors import TransientFailure
from shared.ports import Execution

MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:invoice"
EXECUTION = "arn:aws:states:eu-west-1:123456789012:execution:invoice:R.1"


class Client:
    def __init__(self, answer):
        self.answer = answer

    def describe_execution(self, **asked):
        assert asked == {"executionArn": EXECUTION}
        if isinstance(self.answer, str):
            raise ClientError({"Error": {"Code": self.answer, "Message": "x"}}, "DescribeExecution")
        return self.answer


@pytest.mark.parametrize("machine", [MACHINE, f"{MACHINE}:7"])
def test_an_execution_is_named_alike_whether_a_version_was_started_or_the_machine(machine):
    assert execution_arn(machine, "R.1") == EXECUTION


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"status": "RUNNING"}, Execution("running")),
        ({"status": "ABORTED", "cause": "by hand"}, Execution("aborted", "by hand")),
        ({"status": "FAILED", "error": "States.Runtime"}, Execution("failed", "States.Runtime")),
        ("ExecutionDoesNotExist", None),
    ],
)
def test_how_an_execution_stands(answer, found):
    assert StepFunctions(Client(answer)).describe(f"{MACHINE}:7", "R.1") == found


def test_what_cannot_be_looked_at_is_not_taken_for_missing():
    with pytest.raises(TransientFailure, match=r"R\.1 could not be looked at"):
        StepFunctions(Client("AccessDeniedException")).describe(MACHINE, "R.1")
