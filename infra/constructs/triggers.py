"""What starts runs of one workflow: schedules, rules and queues, all of which call the function ``trigger``.

A webhook needs nothing here: the API answers it.
"""

# CDK's classes name parameters differently from the interfaces they implement.
# pyright: reportArgumentType=false

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from shared import compiler

if TYPE_CHECKING:
    from infra.stacks.engine import EngineStack
    from infra.stacks.workflows import Definition

DELIVERIES = 5
"""How often a message is tried before SQS moves it to the dead letters."""
TRIGGER_SECONDS = 60
"""How long the function runs at most."""
_VISIBLE_AGAIN = Duration.seconds(6 * TRIGGER_SECONDS)
"""Six times the function's time-out. Source: Lambda Developer Guide, "Using Lambda with Amazon SQS"."""
_DAY = 86_400
_SCHEDULE_TRIES = 185
"""The most. Source: EventBridge Scheduler API Reference, RetryPolicy."""
_AT_ONCE = 5
SCHEDULED = "<aws.scheduler.scheduled-time>"
WHOLE_EVENT = "<aws.events.event.json>"
CONSUME = ("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage")


class Triggers(Construct):
    """The schedules, rules and queues of one workflow.

    Where ``settings`` are not ``managed`` there are no schedules: the local cloud knows no time zones and does not say
    for when it calls.
    """

    def __init__(self, scope: Construct, id_: str, *, engine: EngineStack, definition: Definition) -> None:
        super().__init__(scope, id_)
        self.engine, self.settings = engine, engine.settings
        self.workflow = definition.name
        self._role: iam.Role | None = None
        make = {"schedule": self._schedule, "event": self._rule, "queue": self._queue, "webhook": self._webhook}
        for trigger in definition.triggers:
            # A scope of its own: no name of one trigger is then made into one of another, or of the role's.
            make[trigger.kind](Construct(self, trigger.id), trigger)

    def _call(self, trigger: compiler.Trigger) -> dict[str, str]:
        return {"kind": trigger.kind, "workflow": self.workflow, "trigger": trigger.id}

    def _webhook(self, scope: Construct, trigger: compiler.Trigger) -> None:
        url = f"{self.engine.data.public_url}/v1/hooks/{self.workflow}/{trigger.id}"
        CfnOutput(scope, "Url", value=url, description=f"Webhook {trigger.id} of {self.workflow}")

    def _schedule(self, scope: Construct, trigger: compiler.Trigger) -> None:
        if not self.settings.managed:
            return
        target = scheduler.CfnSchedule.TargetProperty(
            arn=self.engine.trigger.function.function_arn,
            role_arn=self._scheduler_role().role_arn,
            input=json.dumps({**self._call(trigger), "time": SCHEDULED}),
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_event_age_in_seconds=_DAY, maximum_retry_attempts=_SCHEDULE_TRIES
            ),
            dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(
                arn=self.engine.trigger_letters.queue_arn
            ),
        )
        scheduler.CfnSchedule(
            scope,
            "Schedule",
            description=f"Starts {self.workflow}",
            schedule_expression=f"cron({trigger.spec['cron']})",
            schedule_expression_timezone=trigger.spec["timezone"],
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=target,
        )

    def _scheduler_role(self) -> iam.Role:
        if self._role is None:
            own = {"StringEquals": {"aws:SourceAccount": Stack.of(self).account}}
            principal = iam.ServicePrincipal("scheduler.amazonaws.com", conditions=own)
            self._role = iam.Role(self, "SchedulerRole", assumed_by=principal)
            self._may(self._role, ("lambda:InvokeFunction",), self.engine.trigger.function.function_arn)
            self._may(self._role, ("sqs:SendMessage",), self.engine.trigger_letters.queue_arn)
        return self._role

    def _may(self, role: iam.Role, actions: tuple[str, ...], resource: str) -> None:
        role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=[resource]))

    def _rule(self, scope: Construct, trigger: compiler.Trigger) -> None:
        # The event is filled in as it is, so it stands without quotes.
        call = json.dumps({**self._call(trigger), "event": WHOLE_EVENT}).replace(f'"{WHOLE_EVENT}"', WHOLE_EVENT)
        target = events.CfnRule.TargetProperty(
            arn=self.engine.trigger.function.function_arn,
            id="trigger",
            input_transformer=events.CfnRule.InputTransformerProperty(input_template=call),
            dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=self.engine.trigger_letters.queue_arn),
        )
        pattern: dict[str, Any] = dict(trigger.spec["pattern"])
        about = f"Starts {self.workflow}"
        events.CfnRule(scope, "Rule", description=about, event_pattern=pattern, targets=[target])

    def _queue(self, scope: Construct, trigger: compiler.Trigger) -> None:
        dead = sqs.DeadLetterQueue(max_receive_count=DELIVERIES, queue=self.engine.trigger_letters)
        queue = sqs.Queue(
            scope,
            "Queue",
            # The function reads from it which trigger a message is for.
            queue_name=compiler.queue_name(self.settings.name, self.workflow, trigger.id),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=self.settings.managed,
            retention_period=Duration.days(14),
            visibility_timeout=_VISIBLE_AGAIN,
            dead_letter_queue=dead,
            removal_policy=RemovalPolicy.DESTROY,
        )
        self._consume(scope, queue)
        CfnOutput(scope, "Url", value=queue.queue_url, description=f"Queue of {self.workflow}")

    def _consume(self, scope: Construct, queue: sqs.Queue) -> None:
        # In this stack: the function's own would need the queues before they are there.
        policy = iam.Policy(scope, "Consumer", roles=[self.engine.trigger.role])
        policy.add_statements(iam.PolicyStatement(actions=list(CONSUME), resources=[queue.queue_arn]))
        mapping = lambda_.CfnEventSourceMapping(
            scope,
            "Messages",
            function_name=self.engine.trigger.function.function_arn,
            event_source_arn=queue.queue_arn,
            batch_size=10,
            function_response_types=["ReportBatchItemFailures"],
            scaling_config=lambda_.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=_AT_ONCE),
        )
        mapping.node.add_dependency(policy)
