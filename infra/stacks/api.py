"""The HTTP side: what people and programs call."""

# CDK's classes name parameters differently from the interfaces they implement.
# pyright: reportArgumentType=false

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from aws_cdk import Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_logs as logs

from infra.constructs.function import Function, Runtime
from infra.grants import Grants
from shared.settings import ApiEnvironment, ApprovalsEnvironment, Attesting, StartEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from constructs import Construct

    from infra.settings import Settings
    from infra.stacks.data import DataStack
    from shared.settings import Environment

# API Gateway waits 30 s at most.
_SECONDS = 29
# Neither address nor path: the path of an approval page holds its token.
_ACCESS_LOG = ("requestId", "requestTime", "httpMethod", "routeKey", "status", "responseLength", "responseLatency")


class ApiStack(Stack):
    """Functions ``start api approvals`` and the routes to them. ``hooks`` are tenant and secret of every webhook."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        data: DataStack,
        sweep: Function,
        hooks: Iterable[tuple[str, str]] = (),
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, **stack)
        self.settings = settings
        self.data = data
        self.sweep = sweep
        self.runtime = Runtime(self, "Runtime", settings=settings, alarms=data.alarms)
        self.grants = Grants(self, settings=settings)
        self.start = self._start()
        self.approvals = self._approvals()
        self.api = self._api()
        # Not the tenants' other secrets: who can reach the API must not be able to make it read those.
        for tenant, secret in sorted(set(hooks)):
            self.grants.use_secret(self.api, tenant, secret)
        page = apigateway.HttpRouteKey.with_("/approve/{token}", apigateway.HttpMethod.ANY)
        self._route(page, self.approvals)
        # Everything else too: whatever is asked, the answer is ours.
        self._route(apigateway.HttpRouteKey.DEFAULT, self.api)
        self.stage = self._stage()

    def _function(self, name: str, model: type[Environment], description: str, **own: Any) -> Function:
        environment = self.data.model(model, f"{self.settings.prefix}-{name}", **own)
        made = Function(
            self, name, runtime=self.runtime, environment=environment, description=description, timeout=_SECONDS
        )
        if isinstance(environment, Attesting):
            self.grants.read_secret(made, environment.seal_secret)
        return made

    def _start(self) -> Function:
        data = self.data
        start = self._function("start", StartEnvironment, "creates and starts runs")
        self.grants.write(start, data.runs).read(start, data.definitions)
        self.grants.write_blobs(start, data.blobs).start(start, self.grants.machines)
        return start

    def _approvals(self) -> Function:
        data = self.data
        own = {"link_secret": data.link_secret, "approvers": self.settings.approvers}
        approvals = self._function("approvals", ApprovalsEnvironment, "the approval page", **own)
        self.grants.write(approvals, data.runs).read(approvals, data.definitions)
        self.grants.write_blobs(approvals, data.blobs).read_secret(approvals, data.link_secret)
        self.grants.answer_tasks(approvals)
        return approvals

    def _api(self) -> Function:
        data = self.data
        own = {
            "tenants_table": data.tenants.table_name,
            "start_function": self.start.version.function_arn,
            # Not a version: an export that another stack imports could never change to the next one.
            "sweep_function": self.sweep.function.function_arn,
            "unwind_machine": self.grants.unwind_machine,
            "schedules": self.settings.managed,
        }
        api = self._function("api", ApiEnvironment, "the HTTP API", **own)
        self.grants.write(api, data.runs).search(api, data.runs, "by_workflow", "by_state", "pending")
        # A result that a person gives may be large.
        self.grants.read(api, data.definitions, data.tenants).write_blobs(api, data.blobs)
        self.grants.answer_tasks(api).start(api, self.grants.unwind_machine)
        api.may("lambda:InvokeFunction", on=[self.sweep.function.function_arn])
        # All versions: an api function that a deployment has not replaced yet still calls the version it knows.
        return api.may("lambda:InvokeFunction", on=[f"{self.start.function.function_arn}:*"])

    def _route(self, key: apigateway.HttpRouteKey, function: Function) -> None:
        apigateway.HttpRoute(
            self,
            f"{function.name.capitalize()}Route",
            http_api=self.data.api,
            route_key=key,
            integration=integrations.HttpLambdaIntegration(f"{function.name}Integration", function.function),
        )

    def _stage(self) -> apigateway.HttpStage:
        settings = self.settings
        stage = apigateway.HttpStage(
            self,
            "Stage",
            http_api=self.data.api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(rate_limit=settings.throttle, burst_limit=settings.burst),
        )
        if settings.managed:
            cast("apigateway.CfnStage", stage.node.default_child).access_log_settings = self._access_logs()
        return stage

    def _access_logs(self) -> apigateway.CfnStage.AccessLogSettingsProperty:
        group = logs.LogGroup(
            self,
            "AccessLogs",
            retention=self.settings.log_retention,
            removal_policy=self.settings.removal,
        )
        return apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=group.log_group_arn,
            format=json.dumps({name: f"$context.{name}" for name in _ACCESS_LOG}),
        )
