"""One probe for each correction: what an emulator does in a case where upstream and AWS differ."""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from tests.emulator.emulator import Emulator, task, until

QUICK = 0.045
"""Seconds; upstream's wait for a first line of log alone is longer."""


class Probe(NamedTuple):
    """What is looked at, what AWS does, what upstream does (any of several)."""

    look: Callable[[Emulator], Any]
    aws: Any
    upstream: tuple[Any, ...]


def code_of(call: Callable[..., Any], **given: Any) -> str:
    """The error code of a call, or `accepted`."""
    try:
        call(**given)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "accepted"


def error_names(emulator: Emulator) -> Any:
    return [emulator.run(task(op))["error"] for op in ("fail", "leave")]


def worker_survives(emulator: Emulator) -> Any:
    before = emulator.invoke(op="pid")
    emulator.invoke(op="fail")
    return emulator.invoke(op="pid") == before


def stderr_drain(emulator: Emulator) -> Any:
    def once() -> float:
        begun = time.perf_counter()
        emulator.invoke(op="pid")
        return time.perf_counter() - begun

    return min(once() for _ in range(10)) < QUICK


def start_sleep(emulator: Emulator) -> Any:
    def once() -> float:
        ended = emulator.run({"Type": "Pass"})
        return (ended["stopDate"] - ended["startDate"]).total_seconds()

    return min(once() for _ in range(5)) < 0.14


def throttle_name(emulator: Emulator) -> Any:
    emulator.function("throttled")
    emulator.lambdas.put_function_concurrency(FunctionName="throttled", ReservedConcurrentExecutions=0)
    return emulator.run(task("pid", function="throttled"))["error"]


def token_errors(emulator: Emulator) -> Any:
    return emulator.run({**task("fail", token=True), "TimeoutSeconds": 2})["error"] == "States.Timeout"


def token_once(emulator: Emulator) -> Any:
    key = str(uuid.uuid4())
    execution = emulator.start(emulator.machine(task("seen", token=True, key=key, value_path="$$.Task.Token")))
    token = until(lambda: emulator.seen(key))[0]
    answer = emulator.states.send_task_success
    codes = [code_of(answer, taskToken=token, output=json.dumps(n)) for n in (1, 2)]
    emulator.finished(execution)
    return [*codes, code_of(answer, taskToken=token, output="3")]


def token_fresh(emulator: Emulator) -> Any:
    key = str(uuid.uuid4())
    first = task("seen_and_refuse", token=True, key=key, value_path="$$.Task.Token")
    first["Retry"] = [{"ErrorEquals": ["refused"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    emulator.run(first)
    return len(set(emulator.seen(key)))


def parallel(emulator: Emulator) -> Any:
    return [_fails_fast(emulator), _own_context(emulator)]


def _branches(*branches: dict[str, Any]) -> dict[str, Any]:
    named = [{"StartAt": name, "States": {name: {"End": True, **s}}} for b in branches for name, s in b.items()]
    return {"Type": "Parallel", "Branches": named}


def _fails_fast(emulator: Emulator) -> bool:
    begun = time.monotonic()
    emulator.run(_branches({"fails": {"Type": "Fail", "Error": "x"}}, {"waits": {"Type": "Wait", "Seconds": 2}}))
    return time.monotonic() - begun < 1.5


def _own_context(emulator: Emulator) -> bool:
    """A retried task sees its own name although a sibling has entered another state meanwhile."""
    key = str(uuid.uuid4())
    retried = task("seen_and_fail", key=key, value_path="$$.State.Name")
    retried["Retry"] = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    sibling = {"Type": "Wait", "Seconds": 3}
    emulator.run(_branches({"retried": retried}, {"sibling": sibling}))
    return set(emulator.seen(key)) == {"retried"}


def stop(emulator: Emulator) -> Any:
    key = str(uuid.uuid4())
    states = {
        "wait": {"Type": "Wait", "Seconds": 1, "Next": "late"},
        "late": {**task("seen", key=key), "End": True},
    }
    machine = emulator.machine({"Type": "Parallel", "Branches": [{"StartAt": "wait", "States": states}]})
    execution = emulator.start(machine)
    time.sleep(0.5)  # upstream looks at the status once, after its first 150 ms
    emulator.states.stop_execution(executionArn=execution)
    time.sleep(2)
    return [emulator.states.describe_execution(executionArn=execution)["status"], len(emulator.seen(key))]


def version_arns(emulator: Emulator) -> Any:
    machine = emulator.machine({"Type": "Pass", "Result": "one"})
    first = emulator.states.publish_state_machine_version(stateMachineArn=machine)["stateMachineVersionArn"]
    newer = {"StartAt": "a", "States": {"a": {"Type": "Pass", "Result": "two", "End": True}}}
    emulator.states.update_state_machine(stateMachineArn=machine, definition=json.dumps(newer))
    ended = emulator.finished(emulator.start(first))
    return [json.loads(ended["output"]), ended.get("stateMachineVersionArn") == first]


def start_again(emulator: Emulator) -> Any:
    machine = emulator.machine({"Type": "Wait", "Seconds": 2})
    start = emulator.states.start_execution
    emulator.start(machine, name="same", input="{}")
    return [code_of(start, stateMachineArn=machine, name="same", input=given) for given in ("{}", '{"other": 1}')]


def machine_timeout(emulator: Emulator) -> Any:
    return emulator.run({"Type": "Wait", "Seconds": 3}, TimeoutSeconds=1)["status"]


def pollers(emulator: Emulator) -> Any:
    """Whether a message is delivered while a stream handler is at work."""
    stream = emulator.table.update_table(
        TableName="seen", StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
    )["TableDescription"]["LatestStreamArn"]
    sqs = emulator.client("sqs")
    url = sqs.create_queue(QueueName="quick")["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    mapped = [(stream, "stream", {"StartingPosition": "TRIM_HORIZON"}), (queue, "queue", {"BatchSize": 1})]
    ids = []
    for source, name, more in mapped:
        emulator.function(name, entry=name)
        ids.append(
            emulator.lambdas.create_event_source_mapping(EventSourceArn=source, FunctionName=name, **more)["UUID"]
        )
    try:
        return _delivered_beside(emulator, sqs, url)
    finally:
        for mapping in ids:
            emulator.lambdas.delete_event_source_mapping(UUID=mapping)


def _delivered_beside(emulator: Emulator, sqs: Any, url: str) -> bool:
    warm, late = str(uuid.uuid4()), str(uuid.uuid4())
    sqs.send_message(QueueUrl=url, MessageBody=warm)
    until(lambda: emulator.seen(warm))
    emulator.table.put_item(TableName="seen", Item={"key": {"S": "any"}, "at": {"N": "1"}, "value": {"S": ""}})
    time.sleep(0.6)
    sqs.send_message(QueueUrl=url, MessageBody=late)
    begun = time.monotonic()
    until(lambda: emulator.seen(late))
    return time.monotonic() - begun < 1.2


def reserved_concurrency(emulator: Emulator) -> Any:
    properties = {
        "Runtime": "python3.13",
        "Handler": "index.handle",
        "Role": "arn:aws:iam::000000000000:role/any",
        "Code": {"ZipFile": "def handle(event, context): pass"},
        "FunctionName": "reserved",
        "ReservedConcurrentExecutions": 3,
    }
    template = {"Resources": {"F": {"Type": "AWS::Lambda::Function", "Properties": properties}}}
    stacks = emulator.client("cloudformation")
    stacks.create_stack(StackName="reserved", TemplateBody=json.dumps(template))
    until(lambda: stacks.describe_stacks(StackName="reserved")["Stacks"][0]["StackStatus"] == "CREATE_COMPLETE")
    return emulator.lambdas.get_function_concurrency(FunctionName="reserved").get("ReservedConcurrentExecutions")


PROBES = {
    "error_names": Probe(error_names, ["ValueError", "Runtime.ExitError"], (["Runtime.HandlerError"] * 2,)),
    "worker_survives": Probe(worker_survives, True, (False,)),  # noqa: FBT003 - an observation
    "stderr_drain": Probe(stderr_drain, True, (False,)),  # noqa: FBT003
    "start_sleep": Probe(start_sleep, True, (False,)),  # noqa: FBT003
    "throttle_name": Probe(throttle_name, "Lambda.TooManyRequestsException", ("Lambda.Unknown",)),
    "token_errors": Probe(token_errors, False, (True,)),  # noqa: FBT003
    "token_once": Probe(
        token_once,
        ["accepted", "TaskTimedOut", "TaskTimedOut"],
        (["accepted", "accepted", "TaskDoesNotExist"], ["accepted", "TaskDoesNotExist", "TaskDoesNotExist"]),
    ),
    "token_fresh": Probe(token_fresh, 2, (1,)),
    "parallel": Probe(parallel, [True, True], ([False, False],)),
    "stop": Probe(stop, ["ABORTED", 0], (["ABORTED", 1],)),
    "version_arns": Probe(version_arns, ["one", True], (["two", False],)),
    "start_again": Probe(
        start_again, ["accepted", "ExecutionAlreadyExists"], (["ExecutionAlreadyExists", "ExecutionAlreadyExists"],)
    ),
    "machine_timeout": Probe(machine_timeout, "TIMED_OUT", ("SUCCEEDED",)),
    "pollers": Probe(pollers, True, (False,)),  # noqa: FBT003
    "reserved_concurrency": Probe(reserved_concurrency, 3, (None,)),
}
