"""Schedules, rules and queues of workflows: what they send, where, and what becomes of what nobody takes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from infra.constructs.triggers import CONSUME
from shared.manifest import Trigger
from shared.triggers.occurrences import direct, queue_name, queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Synthesised


def workflows(app: Synthesised, type_: str) -> list[dict[str, Any]]:
    return [one["Properties"] for one in app.templates["workflows"]["Resources"].values() if one["Type"] == type_]


def queue_id(app: Synthesised) -> str:
    resources = app.templates["workflows"]["Resources"]
    (found,) = [id_ for id_, one in resources.items() if one["Type"] == "AWS::SQS::Queue"]
    return found


def about(value: Any, part: str) -> bool:
    """Tell whether a resource of the engine's stack is meant, by the name of its export."""
    return part in json.dumps(value)


def test_a_schedule_calls_at_its_time_in_its_zone_and_says_for_when(prod: Synthesised):
    (schedule,) = workflows(prod, "AWS::Scheduler::Schedule")
    assert (schedule["ScheduleExpression"], schedule["ScheduleExpressionTimezone"]) == (
        "cron(0 2 * * ? *)",
        "Europe/Berlin",
    )
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    target = schedule["Target"]
    assert about(target["Arn"], "TriggerFunction")
    assert about(target["DeadLetterConfig"], "TriggerLetters")
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86400, "MaximumRetryAttempts": 185}
    sent = json.loads(target["Input"].replace("<aws.scheduler.scheduled-time>", "2026-11-30T01:00:00Z"))
    happened = direct(sent)
    assert (happened.workflow, happened.trigger, happened.id) == ("invoice", "nightly", "2026-11-30T01:00:00Z")


def test_the_scheduler_may_call_this_function_only_and_for_this_account_only(prod: Synthesised):
    (role,) = workflows(prod, "AWS::IAM::Role")
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    (policy,) = [one for one in workflows(prod, "AWS::IAM::Policy") if about(one["Roles"], "SchedulerRole")]
    found = {each["Action"]: each["Resource"] for each in policy["PolicyDocument"]["Statement"]}
    assert set(found) == {"lambda:InvokeFunction", "sqs:SendMessage"}
    assert about(found["lambda:InvokeFunction"], "TriggerFunction")
    assert about(found["sqs:SendMessage"], "TriggerLetters")


def test_the_local_cloud_has_rules_and_queues_but_no_schedules(local: Synthesised):
    assert workflows(local, "AWS::Scheduler::Schedule") == workflows(local, "AWS::IAM::Role") == []
    assert len(workflows(local, "AWS::Events::Rule")) == len(workflows(local, "AWS::SQS::Queue")) == 1


def test_a_rule_hands_over_the_whole_event(prod: Synthesised):
    (rule,) = workflows(prod, "AWS::Events::Rule")
    assert rule["EventPattern"] == {"source": ["app.uploads"], "detail": {"a": [1]}}
    assert "EventBusName" not in rule, "the account's default bus"
    (target,) = rule["Targets"]
    assert about(target["Arn"], "TriggerFunction")
    assert about(target["DeadLetterConfig"], "TriggerLetters")
    event = {"id": "e-1", "source": "app.uploads", "detail-type": "Up", "time": "2026-11-30T01:00:00Z", "detail": {}}
    text = target["InputTransformer"]["InputTemplate"].replace("<aws.events.event.json>", json.dumps(event))
    happened = direct(json.loads(text))
    assert (happened.workflow, happened.trigger, happened.id) == ("invoice", "uploaded", "e-1")


def test_rules_may_call_and_leave_dead_letters_by_the_start_of_their_names(prod: Synthesised):
    permission = prod.one("AWS::Lambda::Permission", "TriggerFunctionRules").properties
    assert json.dumps(permission["SourceArn"]).endswith(':rule/signalbox-prod-workflows-*"]]}')
    (policy,) = prod.of("AWS::SQS::QueuePolicy", "TriggerLetters")
    allowed = [each for each in policy.properties["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    (statement,) = allowed
    assert (statement["Action"], statement["Principal"]) == ("sqs:SendMessage", {"Service": "events.amazonaws.com"})
    assert json.dumps(statement["Condition"]["ArnLike"]).endswith(':rule/signalbox-prod-workflows-*"]]}}')


def test_a_queue_is_encrypted_and_its_messages_are_tried_five_times(prod: Synthesised):
    (queue,) = workflows(prod, "AWS::SQS::Queue")
    assert queue["QueueName"] == queue_name("prod", "invoice", "in_take") == "signalbox-prod-invoice-in_take"
    assert queue["SqsManagedSseEnabled"] is True
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 5
    assert about(queue["RedrivePolicy"], "TriggerLetters")
    seconds = int(prod.one("AWS::Lambda::Function", "TriggerFunction").properties["Timeout"])
    assert queue["VisibilityTimeout"] == 6 * seconds
    (policy,) = workflows(prod, "AWS::SQS::QueuePolicy")
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_messages_are_taken_in_batches_of_which_only_the_failed_come_again(prod: Synthesised):
    (mapping,) = workflows(prod, "AWS::Lambda::EventSourceMapping")
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert about(mapping["FunctionName"], "TriggerFunction")
    (policy,) = [one for one in workflows(prod, "AWS::IAM::Policy") if about(one["Roles"], "TriggerRole")]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == list(CONSUME)
    assert statement["Resource"] == {"Fn::GetAtt": [queue_id(prod), "Arn"]} == mapping["EventSourceArn"]


def test_the_function_reads_from_a_queues_name_whose_message_it_is(prod: Synthesised):
    (queue,) = workflows(prod, "AWS::SQS::Queue")
    arn = f"arn:aws:sqs:eu-central-1:1:{queue['QueueName']}"
    happened = queued("prod", {"eventSourceARN": arn, "messageId": "m", "body": "x"})
    assert (happened.workflow, happened.trigger) == ("invoice", "in_take")


def test_nothing_starts_a_workflow_before_it_has_a_version(prod: Synthesised):
    resources = prod.templates["workflows"]["Resources"]
    (version,) = [id_ for id_, each in resources.items() if each["Type"] == "Custom::SignalboxVersion"]
    for type_ in ("AWS::Scheduler::Schedule", "AWS::Events::Rule", "AWS::Lambda::EventSourceMapping"):
        (found,) = [each for each in resources.values() if each["Type"] == type_]
        assert version in found["DependsOn"], type_


SPECS = {"schedule": {"cron": "0 2 * * ? *", "timezone": "UTC"}, "webhook": {"secret": "s"}}
NAMES = ("in_1", "in1", "x", "x_url", "x_consumer", "x_messages", "scheduler_role", "schedulerrole", "default", "url")


@pytest.mark.parametrize("kind", ["queue", "schedule", "webhook"])
def test_no_two_names_that_a_file_may_give_become_one(app_of: Callable[..., Synthesised], kind: str):
    """``x_url`` beside the queue ``x``, or ``scheduler_role`` beside any schedule, was one name for two things."""
    others = [Trigger("queue", "x_a", "default", {}, {}), Trigger("schedule", "y", "default", {}, SPECS["schedule"])]
    given = [*others, *(Trigger(kind, name, "default", {}, SPECS.get(kind, {})) for name in NAMES)]
    made = app_of("prod", triggers=tuple(given))
    outputs = [each["Value"] for each in made.templates["workflows"]["Outputs"].values()]
    assert len(workflows(made, "AWS::SQS::Queue")) == 1 + (len(NAMES) if kind == "queue" else 0)
    assert len(workflows(made, "AWS::Scheduler::Schedule")) == 1 + (len(NAMES) if kind == "schedule" else 0)
    assert len([one for one in outputs if "/v1/hooks/" in json.dumps(one)]) == (len(NAMES) if kind == "webhook" else 0)


def test_addresses_of_webhooks_and_queues_are_printed(prod: Synthesised):
    outputs = {re.sub(r"\w{8}$", "", name): each for name, each in prod.templates["workflows"]["Outputs"].items()}
    assert json.dumps(outputs["InvoiceTriggerserpUrl"]["Value"]).endswith('/v1/hooks/invoice/erp"]]}')
    assert list(outputs["InvoiceTriggersintakeUrl"]["Value"]) == ["Ref"]
