"""What runs workflows: the functions behind the machines, the unwind machine, the machines' role."""

# CDK's classes name parameters differently from the interfaces they implement.
# pyright: reportArgumentType=false

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from aws_cdk import aws_stepfunctions as sfn

from infra.constructs.function import Function, Runtime
from infra.constructs.machine import machine
from infra.constructs.triggers import TRIGGER_SECONDS
from infra.grants import Grants
from shared import compiler
from shared.settings import (
    GATE_SECONDS,
    Attesting,
    ControlEnvironment,
    FinaliseEnvironment,
    GateEnvironment,
    ProjectEnvironment,
    PublishEnvironment,
    StepEnvironment,
    SweepEnvironment,
    TriggerEnvironment,
)

if TYPE_CHECKING:
    from constructs import Construct

    from infra.settings import Settings
    from infra.stacks.data import DataStack
    from shared.settings import Environment

_LOG_DELIVERY = (
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
)
_TRACING = (
    "xray:GetSamplingRules",
    "xray:GetSamplingTargets",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
)
_ENDED = ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"]
_PAUSING = ("step_paused", "step_unknown")
_ASKING = ("gate_opened", "gate_edited", "gate_reminded", "gate_escalated")
# Every change of a head; decisions; answers to paused steps; events after which a person has to act (ANNOUNCED).
_FOLLOWED: tuple[dict[str, Any], ...] = (
    {"Keys": {"sk": {"S": ["HEAD"]}}},
    {"Keys": {"sk": {"S": [{"prefix": "GATE#"}]}}, "NewImage": {"status": {"S": ["approved", "rejected"]}}},
    {"Keys": {"sk": {"S": [{"prefix": "PARK#"}]}}, "NewImage": {"answer": {"S": [{"exists": True}]}}},
    {
        "Keys": {"sk": {"S": [{"prefix": "EVENT#"}]}},
        "NewImage": {"type": {"S": [*_PAUSING, *_ASKING]}},
    },
)
# The longest that Lambda allows; a step's own time-out is enforced by its task's TimeoutSeconds.
_STEP_SECONDS = 900
# A sweep ends before the next one begins.
_SWEEP_SECONDS = 240
_SWEEP_EVERY = Duration.minutes(5)


class EngineStack(Stack):
    """Functions ``step control gate finalise project publish sweep trigger``, the unwind machine, machines' role."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, data: DataStack, **stack: Any) -> None:
        super().__init__(scope, id_, **stack)
        self.settings = settings
        self.data = data
        self.runtime = Runtime(self, "Runtime", settings=settings, alarms=data.alarms)
        self.grants = Grants(self, settings=settings)
        self.dead_letters = self._dead_letters("DeadLetters")
        self.trigger_letters = self._dead_letters("TriggerLetters")
        self.step = self._step()
        self.control = self._control()
        self.gate = self._gate()
        self.finalise = self._finalise()
        self.project = self._project()
        self.publish = self._publish()
        self.sweep = self._sweep()
        self.trigger = self._trigger()
        self.machine_role = self._machine_role()
        self.unwind = self._unwind()
        self._publish_versions()

    def _function(self, name: str, model: type[Environment], description: str, seconds: int, **own: Any) -> Function:
        environment = self.data.model(model, f"{self.settings.prefix}-{name}", **own)
        made = Function(
            self,
            name,
            runtime=self.runtime,
            environment=environment,
            description=description,
            timeout=seconds,
            memory=1024 if name == "step" else 512,
            dead_letters={"finalise": self.dead_letters, "trigger": self.trigger_letters}.get(name),
        )
        if isinstance(environment, Attesting):
            self.grants.read_secret(made, environment.seal_secret)
        return made

    def _step(self) -> Function:
        data, settings = self.data, self.settings
        own = {
            "model_secret": data.model_secret,
            "models_url": settings.models_url,
            "tool_settings": settings.tool_variables,
        }
        step = self._function("step", StepEnvironment, "runs steps that call models and tools", _STEP_SECONDS, **own)
        self.grants.write(step, data.runs).read(step, data.definitions).write_blobs(step, data.blobs)
        self.grants.read_secret(step, data.model_secret).use_secrets(step).answer_tasks(step)
        self.grants.use_tools(step, settings.tool_grants)
        return step

    def _control(self) -> Function:
        data = self.data
        own = {"unwind_machine": self.grants.unwind_machine}
        control = self._function("control", ControlEnvironment, "settles steps and decides after failures", 60, **own)
        self.grants.write(control, data.runs).read(control, data.definitions).write_blobs(control, data.blobs)
        # Children run on machines of their own workflow, parts on those of the whole's.
        self.grants.answer_tasks(control).start(control, self.grants.machines)
        self.grants.start(control, self.grants.unwind_machine)
        return control

    def _gate(self) -> Function:
        data, settings = self.data, self.settings
        own = {
            "public_url": data.public_url,
            "link_secret": data.link_secret,
            "sender": settings.sender,
            "approvers": settings.approvers,
        }
        gate = self._function("gate", GateEnvironment, "asks people for decisions", GATE_SECONDS, **own)
        self.grants.write(gate, data.runs).read(gate, data.definitions).write_blobs(gate, data.blobs)
        self.grants.read_secret(gate, data.link_secret).name_secrets(gate).answer_tasks(gate)
        self._asked_again_rule().add_target(targets.LambdaFunction(gate.function, dead_letter_queue=self.dead_letters))
        return gate.may("ses:SendEmail", on=self._sender_identities())

    def _asked_again_rule(self) -> events.Rule:
        # No machine delivers a gate that is open once more, or whose next tier has begun: its token stays as it is.
        about, again = "A gate is open once more, was changed, reminded of or escalated", {"again": [True]}
        pattern = events.EventPattern(source=["signalbox"], detail_type=["Approval Requested"], detail=again)
        return events.Rule(self, "AskedAgain", description=about, event_bus=self.data.bus, event_pattern=pattern)

    def _sender_identities(self) -> list[str]:
        # SES checks the identity that is verified: the address itself or its domain.
        identity = f"arn:{self.partition}:ses:{self.region}:{self.account}:identity"
        sender = self.settings.sender
        return [f"{identity}/{sender}", f"{identity}/{sender.rpartition('@')[2]}"]

    def _finalise(self) -> Function:
        data = self.data
        own = {"unwind_machine": self.grants.unwind_machine}
        finalise = self._function("finalise", FinaliseEnvironment, "compares ended executions with runs", 60, **own)
        # A child whose execution has ended answers its parent.
        self.grants.write(finalise, data.runs).read(finalise, data.definitions).write_blobs(finalise, data.blobs)
        self.grants.answer_tasks(finalise).start(finalise, self.grants.unwind_machine)
        self._ended_rule().add_target(
            targets.LambdaFunction(finalise.function, dead_letter_queue=self.dead_letters, retry_attempts=20),
        )
        return finalise

    def _ended_rule(self) -> events.Rule:
        # Matched by name: the machines stand in a stack that depends on this one.
        pattern = events.EventPattern(
            source=["aws.states"],
            detail_type=["Step Functions Execution Status Change"],
            detail={
                "status": _ENDED,
                "stateMachineArn": [{"wildcard": self.grants.machines}, self.grants.unwind_machine],
            },
        )
        return events.Rule(self, "Ended", description="An execution of a workflow ended", event_pattern=pattern)

    def _project(self) -> Function:
        runs, bus = self.data.runs, self.data.bus
        own = {"unwind_machine": self.grants.unwind_machine, "event_bus": bus.event_bus_name}
        project = self._function("project", ProjectEnvironment, "follows what was written about runs", 60, **own)
        self.grants.write(project, runs)
        # It sends what a writer that died has not sent: starts of executions, answers to parked tasks.
        self.grants.answer_tasks(project).start(project, self.grants.machines).start(
            project, self.grants.unwind_machine
        )
        project.may("events:PutEvents", on=[bus.event_bus_arn])
        stream = runs.table_stream_arn or ""
        project.may("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", on=[stream])
        project.may("dynamodb:ListStreams", on=["*"])  # has no resource type
        mapping = lambda_.EventSourceMapping(
            self,
            "Heads",
            target=project.function,
            event_source_arn=stream,
            starting_position=lambda_.StartingPosition.TRIM_HORIZON,
            batch_size=100,
            bisect_batch_on_error=True,
            report_batch_item_failures=True,
            retry_attempts=10,
            filters=[lambda_.FilterCriteria.filter({"dynamodb": each}) for each in _FOLLOWED],
            on_failure=sources.SqsDlq(self.dead_letters),
        )
        mapping.node.add_dependency(project.role)
        return project

    def _publish(self) -> Function:
        publish = self._function("publish", PublishEnvironment, "publishes versions of workflows", 60)
        self.grants.write(publish, self.data.definitions)
        publish.may("states:DescribeStateMachine", "states:PublishStateMachineVersion", on=[self.grants.machines])
        return publish.may("s3:GetObject", on=[self._bootstrap_objects()])

    def _sweep(self) -> Function:
        data = self.data
        own = {
            "tenants_table": data.tenants.table_name,
            "unwind_machine": self.grants.unwind_machine,
            "event_bus": data.bus.event_bus_name,
        }
        sweep = self._function("sweep", SweepEnvironment, "mends runs that nobody goes on with", _SWEEP_SECONDS, **own)
        self.grants.write(sweep, data.runs, data.definitions).search(sweep, data.runs, "by_state")
        self.grants.read(sweep, data.tenants).write_blobs(sweep, data.blobs)
        for machine_ in (self.grants.machines, self.grants.unwind_machine):
            self.grants.start(sweep, machine_).describe(sweep, machine_)
        self.grants.answer_tasks(sweep)
        # Where a gate's letters were lost on their way, it asks for them once more.
        sweep.may("events:PutEvents", on=[data.bus.event_bus_arn])
        sweep.may("states:DeleteStateMachineVersion", on=[self.grants.machines, f"{self.grants.machines}:*"])
        sweep.may("states:DeleteStateMachine", on=[self.grants.machines])
        rule = events.Rule(
            self,
            "Sweeps",
            description="Every few minutes the sweeper goes round the open runs",
            schedule=events.Schedule.rate(_SWEEP_EVERY),
        )
        # A sweep that fails is made up for by the next one.
        rule.add_target(targets.LambdaFunction(sweep.function, retry_attempts=0))
        return sweep

    def _trigger(self) -> Function:
        data, letters = self.data, self.trigger_letters
        own = {
            "tenants_table": data.tenants.table_name,
            "dead_letters": letters.queue_url,
            "event_bus": data.bus.event_bus_name,
        }
        trigger = self._function("trigger", TriggerEnvironment, "starts runs by what happens", TRIGGER_SECONDS, **own)
        self.grants.write(trigger, data.runs).read(trigger, data.definitions, data.tenants)
        self.grants.write_blobs(trigger, data.blobs).start(trigger, self.grants.machines)
        trigger.may("events:PutEvents", on=[data.bus.event_bus_arn]).may("sqs:SendMessage", on=[letters.queue_arn])
        # One permission for the rules of all triggers, by the start of the names that CloudFormation gives them: their
        # stack's.
        rules = f"arn:{self.partition}:events:{self.region}:{self.account}:rule/{self.settings.prefix}-workflows-*"
        events_ = iam.ServicePrincipal("events.amazonaws.com")
        trigger.function.add_permission("Rules", principal=events_, source_arn=rules)
        letters.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[events_],
                actions=["sqs:SendMessage"],
                resources=[letters.queue_arn],
                conditions={"ArnLike": {"aws:SourceArn": rules}},
            )
        )
        return trigger

    def _bootstrap_objects(self) -> str:
        qualifier = self.synthesizer.bootstrap_qualifier
        return f"arn:{self.partition}:s3:::cdk-{qualifier}-assets-{self.account}-{self.region}/*"

    def _dead_letters(self, name: str) -> sqs.Queue:
        queue = sqs.Queue(
            self,
            name,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=self.settings.managed,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
        )
        if self.data.alarms is not None:
            waiting = queue.metric_approximate_number_of_messages_visible()
            alarm = cloudwatch.Alarm(self, name.removesuffix("s"), metric=waiting, threshold=1, evaluation_periods=1)
            alarm.add_alarm_action(actions.SnsAction(self.data.alarms))
        return queue

    def _machine_role(self) -> iam.Role:
        # Inline, so that retaining the role retains what it may do: parked runs go on after the stack is gone.
        role = iam.Role(
            self,
            "MachineRole",
            assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
            inline_policies={"Machine": iam.PolicyDocument(statements=self._machine_statements())},
        )
        role.apply_removal_policy(self.settings.removal)
        return role

    def _machine_statements(self) -> list[iam.PolicyStatement]:
        functions = (self.step, self.control, self.gate)
        # All versions: a parked run resumes on the version that it started with.
        versions = [f"{each.function.function_arn}:*" for each in functions]
        invoke = iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=versions)
        # Log delivery and tracing have no resource types.
        anywhere = iam.PolicyStatement(actions=[*_LOG_DELIVERY, *_TRACING], resources=["*"])
        return [invoke, anywhere] if self.settings.managed else [invoke]

    def _unwind(self) -> sfn.StateMachine:
        return machine(
            self,
            "Unwind",
            settings=self.settings,
            role=self.machine_role,
            definition=json.dumps(compiler.unwind_machine(), ensure_ascii=False, sort_keys=True),
            substitutions=self._substitutions(),
            name=self.settings.unwind_machine,
        )

    def _substitutions(self) -> dict[str, str]:
        functions = {"StepFunction": self.step, "ControlFunction": self.control, "GateFunction": self.gate}
        return {placeholder: function.version.function_arn for placeholder, function in functions.items()}

    def _publish_versions(self) -> None:
        # Through parameters, not exports: an export that another stack imports could never change to the next version.
        for placeholder, arn in self._substitutions().items():
            name = version_parameter(self.settings, placeholder)
            ssm.StringParameter(self, f"{placeholder}Version", parameter_name=name, string_value=arn)


def version_parameter(settings: Settings, placeholder: str) -> str:
    """Return the name of the parameter that holds the function version put for ``placeholder`` in machines."""
    return f"/{settings.prefix}/versions/{placeholder}"
