"""One factory for all functions: runtime, code, logs, tracing, environment, versions, alarms."""

# CDK's classes name parameters differently from the interfaces they implement.
# pyright: reportArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, Duration, ILocalBundling, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import packaging

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_cdk import aws_sns as sns
    from aws_cdk import aws_sqs as sqs

    from infra.settings import Settings
    from shared.settings import Environment

# The image is never started: the local bundler does the work or raises.
_NO_IMAGE = "unused"


@jsii.implements(ILocalBundling)
class _Bundler:
    """Bundles by calling Python. Never returns False, which would make CDK look for Docker and hide the reason."""

    def __init__(self, build: Callable[[Path], None]) -> None:
        self._build = build

    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        """Write the asset to ``output_dir``."""
        self._build(Path(output_dir))
        return True


class Runtime(Construct):
    """What the functions of one stack share: code, layer, alarm topic."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, alarms: sns.ITopic | None) -> None:
        super().__init__(scope, id_)
        self.settings = settings
        self.alarms = alarms
        self.code = _asset("functions", packaging.digest(packaging.code_files()), packaging.copy_code)
        self.layers = [self._layer()] if settings.managed else []

    def _layer(self) -> lambda_.LayerVersion:
        architecture = self.settings.architecture
        # By name: CDK's enumeration-like objects are not identical from one access to the next.
        machine = "aarch64" if architecture.name == "arm64" else "x86_64"

        def build(target: Path) -> None:
            packaging.build_layer(target, machine)

        return lambda_.LayerVersion(
            self,
            "Dependencies",
            code=_asset("layer", packaging.layer_digest(machine), build),
            compatible_architectures=[architecture],
            compatible_runtimes=[lambda_.Runtime.PYTHON_3_13],
            description="What the functions import, from requirements-lambda.lock",
            removal_policy=RemovalPolicy.RETAIN,
        )


def _asset(_what: str, digest: str, build: Callable[[Path], None]) -> lambda_.AssetCode:
    bundling = BundlingOptions(image=DockerImage.from_registry(_NO_IMAGE), local=_Bundler(build))
    # The path only has to exist: what counts is the digest and what the bundler writes.
    source = str(packaging.ROOT / "functions")
    return lambda_.Code.from_asset(source, asset_hash=digest, asset_hash_type=AssetHashType.CUSTOM, bundling=bundling)


class Function(Construct):
    """One function. ``function`` is the latest code; ``version`` the immutable version of this deployment, retained.

    ``timeout`` in seconds, ``memory`` in MiB; ``dead_letters`` takes events that it could not handle when invoked
    asynchronously. The handler is ``functions.<name>.handler.handle``. Without grants it may write its logs and traces,
    nothing else.
    """

    def __init__(  # noqa: PLR0913 - keyword-only properties of a construct
        self,
        scope: Construct,
        name: str,
        *,
        runtime: Runtime,
        environment: Environment,
        description: str,
        timeout: int,
        memory: int = 512,
        dead_letters: sqs.IQueue | None = None,
    ) -> None:
        super().__init__(scope, name.capitalize())
        settings = runtime.settings
        self.name = name
        self.log_group = self._log_group(settings)
        self.role = self._role()
        self.function = lambda_.Function(
            self,
            "Function",
            description=f"Signalbox {settings.name}: {description}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=settings.architecture,
            handler=f"functions.{name}.handler.handle",
            code=runtime.code,
            layers=runtime.layers,
            role=self.role,
            memory_size=memory,
            timeout=Duration.seconds(timeout),
            dead_letter_queue=dead_letters,
            reserved_concurrent_executions=settings.concurrency,
            log_group=self.log_group,
            logging_format=lambda_.LoggingFormat.JSON if settings.managed else None,
            tracing=lambda_.Tracing.ACTIVE if settings.managed else lambda_.Tracing.DISABLED,
            environment=environment.variables(),
            # Parked runs finish on the code they started with.
            current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN),
        )
        self.version = self.function.current_version
        if runtime.alarms is not None:
            self._alarms(runtime.alarms)

    def _log_group(self, settings: Settings) -> logs.LogGroup:
        return logs.LogGroup(self, "Logs", retention=settings.log_retention, removal_policy=settings.removal)

    def _role(self) -> iam.Role:
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        # Instead of AWSLambdaBasicExecutionRole, which may write to every log group of the account.
        self.allow(role, ["logs:CreateLogStream", "logs:PutLogEvents"], [self.log_group.log_group_arn])
        return role

    def allow(self, role: iam.Role, actions_: list[str], resources: list[str]) -> None:
        """Add one statement to ``role``."""
        role.add_to_policy(iam.PolicyStatement(actions=actions_, resources=resources))

    def may(self, *actions_: str, on: list[str]) -> Function:
        """Grant exactly these actions on exactly these resources; returns itself, so that grants read as one list."""
        self.allow(self.role, list(actions_), on)
        return self

    def _alarms(self, topic: sns.ITopic) -> None:
        for what, metric in (
            ("Errors", self.function.metric_errors()),
            ("Throttles", self.function.metric_throttles()),
        ):
            alarm = cloudwatch.Alarm(
                self,
                what,
                metric=metric,
                threshold=1,
                evaluation_periods=1,
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
                alarm_description=f"{Stack.of(self).stack_name}: {what.lower()} of function {self.name}",
            )
            alarm.add_alarm_action(actions.SnsAction(topic))
