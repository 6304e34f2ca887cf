"""The stores, secrets and the bare API: what outlives every change of code."""

# CDK's classes name parameters differently from the interfaces they implement.
# pyright: reportArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secrets
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions

from shared.settings import Attesting

if TYPE_CHECKING:
    from constructs import Construct

    from infra.settings import Settings
    from shared.settings import Environment

Model = TypeVar("Model", bound="Environment")

_TEXT = dynamodb.AttributeType.STRING
_NUMBER = dynamodb.AttributeType.NUMBER

RUN_INDEXES = {
    "by_workflow": ("tenant_workflow", "created"),
    "by_state": ("tenant_state", "created"),
    "pending": ("tenant_pending", "opened"),
}
"""Index of the runs table -> its partition key (text) and sort key (milliseconds since the epoch)."""


class DataStack(Stack):
    """Tables, blobs, secrets, event bus, alarm topic; the API without routes (those here would make stacks a cycle)."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, **stack: Any) -> None:
        super().__init__(scope, id_, **stack)
        self.settings = settings
        self.runs = self._table("Runs", stream=dynamodb.StreamViewType.NEW_IMAGE)
        self._index_runs()
        self.definitions = self._table("Definitions")
        self.tenants = self._table("Tenants")
        self.blobs = self._bucket()
        self.bus = events.EventBus(self, "Events", event_bus_name=settings.prefix)
        self.link_secret = self._random("LinkSecret", "Signs the links of approval mails")
        self.seal_secret = self._random("SealSecret", "Attests what steps return")
        self.model_secret = self._model_secret()
        self.api = apigateway.HttpApi(self, "Api", api_name=settings.prefix, create_default_stage=False)
        self.public_url = self._public_url()
        self.alarms = self._alarm_topic() if settings.managed else None
        self._outputs()

    def common(self, service: str) -> dict[str, Any]:
        """Return the fields that every function's environment model has."""
        return {
            "environment": self.settings.name,
            "runs_table": self.runs.table_name,
            "definitions_table": self.definitions.table_name,
            "blobs_bucket": self.blobs.bucket_name,
            "service": service,
            "log_level": self.settings.log_level,
            "tracing_disabled": not self.settings.managed,
        }

    def model(self, model: type[Model], service: str, **own: Any) -> Model:
        """Build a function's environment model."""
        attests = {"seal_secret": self.seal_secret} if issubclass(model, Attesting) else {}
        return model(**self.common(service), **attests, **own)

    def _table(self, name: str, *, stream: dynamodb.StreamViewType | None = None) -> dynamodb.Table:
        durable = self.settings.durable
        return dynamodb.Table(
            self,
            name,
            partition_key=dynamodb.Attribute(name="pk", type=_TEXT),
            sort_key=dynamodb.Attribute(name="sk", type=_TEXT),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.AWS_MANAGED if durable else dynamodb.TableEncryption.DEFAULT,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=durable,
            ),
            deletion_protection=durable,
            removal_policy=self.settings.removal,
            stream=stream,
            # No record has such a field by itself: the "expires" of a gate, say, is when its decision is due.
            time_to_live_attribute="ttl",
        )

    def _index_runs(self) -> None:
        for name, (partition, sort) in RUN_INDEXES.items():
            self.runs.add_global_secondary_index(
                index_name=name,
                partition_key=dynamodb.Attribute(name=partition, type=_TEXT),
                sort_key=dynamodb.Attribute(name=sort, type=_NUMBER),
            )

    def _bucket(self) -> s3.Bucket:
        settings = self.settings
        # Content is addressed by its digest, so an old version of an object is its only version: none are kept long.
        lifecycle = s3.LifecycleRule(
            noncurrent_version_expiration=Duration.days(30),
            abort_incomplete_multipart_upload_after=Duration.days(1),
        )
        return s3.Bucket(
            self,
            "Blobs",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=settings.managed,
            versioned=settings.durable,
            lifecycle_rules=[lifecycle] if settings.managed else [],
            removal_policy=settings.removal,
        )

    def _random(self, name: str, description: str) -> str:
        secret = secrets.CfnSecret(
            self,
            name,
            description=description,
            generate_secret_string=secrets.CfnSecret.GenerateSecretStringProperty(
                password_length=64,
                exclude_punctuation=True,
            ),
        )
        secret.apply_removal_policy(self.settings.removal)
        return secret.attr_id  # its ARN

    def _model_secret(self) -> str:
        secret = secrets.CfnSecret(
            self,
            "ModelSecret",
            name=f"{self.settings.prefix}/models",
            description='Model providers: {"anthropic": "KEY"}, to be filled in after the first deploy',
            # A placeholder on purpose: CloudFormation leaves the value alone once somebody has changed it.
            secret_string='{"anthropic": ""}',  # noqa: S106 - holds no secret
        )
        secret.apply_removal_policy(self.settings.removal)
        return secret.attr_id

    def _public_url(self) -> str:
        own = f"https://{{api}}.execute-api.{self.region}.{self.url_suffix}"
        return (self.settings.public_url or own).replace("{api}", self.api.api_id)

    def _alarm_topic(self) -> sns.Topic:
        topic = sns.Topic(self, "Alarms", display_name=f"{self.settings.prefix} alarms", enforce_ssl=True)
        topic.apply_removal_policy(RemovalPolicy.DESTROY)
        topic.grant_publish(iam.ServicePrincipal("cloudwatch.amazonaws.com"))
        if self.settings.alarms_email:
            topic.add_subscription(subscriptions.EmailSubscription(self.settings.alarms_email))
        return topic

    def _outputs(self) -> None:
        outputs = {
            "ApiUrl": self.public_url,
            "ApiId": self.api.api_id,
            "RunsTable": self.runs.table_name,
            "DefinitionsTable": self.definitions.table_name,
            "TenantsTable": self.tenants.table_name,
            "BlobsBucket": self.blobs.bucket_name,
            "EventBus": self.bus.event_bus_name,
            "LinkSecretArn": self.link_secret,
            "SealSecretArn": self.seal_secret,
            "ModelSecretArn": self.model_secret,
        }
        for name, value in outputs.items():
            CfnOutput(self, f"{name}Output", value=value).override_logical_id(name)
