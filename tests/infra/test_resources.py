"""Stores, functions, machines and routes are configured as promised, outside local and inside."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from shared import settings
from shared.events.aws import SOURCE
from shared.events.rules import ANNOUNCED, ASKED
from shared.ledger.keys import INDEXES
from shared.ledger.records import KINDS

if TYPE_CHECKING:
    from conftest import Resource, Synthesised

FUNCTIONS = ["Start", "Step", "Control", "Gate", "Approvals", "Api", "Finalise", "Project", "Publish"]
FUNCTIONS += ["Sweep", "Trigger"]


def function(app: Synthesised, name: str) -> Resource:
    return app.one("AWS::Lambda::Function", f"{name}Function")


def test_tables_are_durable_outside_local(prod: Synthesised):
    tables = prod.of("AWS::DynamoDB::Table")
    assert len(tables) == 3
    for table in tables:
        properties = table.properties
        assert properties["BillingMode"] == "PAY_PER_REQUEST"
        assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert properties["SSESpecification"] == {"SSEEnabled": True}
        assert properties["DeletionProtectionEnabled"] is True
        assert properties["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
        assert (table.body["DeletionPolicy"], table.body["UpdateReplacePolicy"]) == ("Retain", "Retain")
        assert [key["AttributeName"] for key in properties["KeySchema"]] == ["pk", "sk"]


def test_the_runs_table_has_its_stream_and_indexes(prod: Synthesised):
    runs = prod.one("AWS::DynamoDB::Table", "Runs").properties
    assert runs["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    keys = {
        index["IndexName"]: [(key["AttributeName"], key["KeyType"]) for key in index["KeySchema"]]
        for index in runs["GlobalSecondaryIndexes"]
    }
    assert keys == {name: [(key, "HASH"), (sort, "RANGE")] for name, (key, sort) in INDEXES.items()}
    kinds = {each["AttributeName"]: each["AttributeType"] for each in runs["AttributeDefinitions"]}
    assert (kinds["created"], kinds["opened"], kinds["tenant_state"]) == ("N", "N", "S")


def test_blobs_are_private_encrypted_and_kept(prod: Synthesised):
    bucket = prod.one("AWS::S3::Bucket")
    assert set(bucket.properties["PublicAccessBlockConfiguration"].values()) == {True}
    assert "ServerSideEncryptionConfiguration" in json.dumps(bucket.properties["BucketEncryption"])
    assert bucket.properties["VersioningConfiguration"] == {"Status": "Enabled"}
    assert bucket.properties["LifecycleConfiguration"]["Rules"]
    assert bucket.body["DeletionPolicy"] == "Retain"
    (statement,) = prod.one("AWS::S3::BucketPolicy").properties["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_no_secret_stands_in_a_template(prod: Synthesised):
    link = prod.one("AWS::SecretsManager::Secret", "Link").properties
    assert link["GenerateSecretString"]["PasswordLength"] == 64
    assert "SecretString" not in link
    assert prod.one("AWS::SecretsManager::Secret", "Model").properties["SecretString"] == '{"anthropic": ""}'


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_on_aws(prod: Synthesised, name: str):
    properties = function(prod, name).properties
    assert properties["Runtime"] == "python3.13"
    assert properties["Architectures"] == ["arm64"]
    assert properties["Handler"] == f"functions.{name.lower()}.handler.handle"
    assert properties["TracingConfig"] == {"Mode": "Active"}
    assert len(properties["Layers"]) == 1
    assert properties["LoggingConfig"]["LogGroup"]["Ref"].startswith(f"{name}Logs")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_local_functions_do_without_what_only_aws_has(local: Synthesised, name: str):
    properties = function(local, name).properties
    assert "Layers" not in properties
    assert "TracingConfig" not in properties
    assert properties["ReservedConcurrentExecutions"] == 8


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_version_is_kept(prod: Synthesised, local: Synthesised, name: str):
    for app in (prod, local):
        version = app.one("AWS::Lambda::Version", f"{name}FunctionCurrentVersion")
        assert version.body["DeletionPolicy"] == "Retain"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_can_read_its_environment(prod: Synthesised, local: Synthesised, name: str):
    model = vars(settings)[f"{name}Environment"]
    for app in (prod, local):
        written = function(app, name).properties["Environment"]["Variables"]
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in written.items()}
        read = model.read(texts)
        # Nothing is set that the model does not know, nothing is known that is not set.
        assert read.variables() == texts
        assert read.service.endswith(name.lower())


def test_settings_reach_the_functions(prod: Synthesised, local: Synthesised):
    step = function(local, "Step").properties["Environment"]["Variables"]
    assert (step["MODELS_URL"], json.loads(step["TOOL_SETTINGS"])) == (
        "http://127.0.0.1:8",
        {"ERP_URL": "http://127.0.0.1:9"},
    )
    assert "MODELS_URL" not in function(prod, "Step").properties["Environment"]["Variables"]
    people = json.loads(function(local, "Gate").properties["Environment"]["Variables"]["APPROVERS"])
    assert set(people["finance"][0]) == {"name", "initials", "email"}
    assert function(local, "Gate").properties["Environment"]["Variables"]["PUBLIC_URL"] != ""


@pytest.mark.parametrize(("name", "days"), [("prod", 365), ("local", 1)])
def test_logs_are_kept_for_a_set_time(request: pytest.FixtureRequest, name: str, days: int):
    groups = request.getfixturevalue(name).of("AWS::Logs::LogGroup")
    assert {group.properties["RetentionInDays"] for group in groups} == {days}


def test_machines_are_standard_logged_without_data_and_retained(prod: Synthesised):
    for machine in prod.of("AWS::StepFunctions::StateMachine"):
        properties = machine.properties
        assert properties["StateMachineType"] == "STANDARD"
        assert properties["LoggingConfiguration"]["Level"] == "ALL"
        assert properties["LoggingConfiguration"]["IncludeExecutionData"] is False
        assert properties["TracingConfiguration"] == {"Enabled": True}
        assert machine.body["DeletionPolicy"] == "Retain"


def test_only_the_unwind_machine_has_a_name(prod: Synthesised):
    named = [each.properties.get("StateMachineName") for each in prod.of("AWS::StepFunctions::StateMachine")]
    assert sorted(named, key=str) == [None, "signalbox-prod-unwind"]


def test_machines_call_exact_function_versions(prod: Synthesised):
    unwind = prod.one("AWS::StepFunctions::StateMachine", "Unwind").properties["DefinitionSubstitutions"]
    assert {each["Ref"].split("Function")[0] for each in unwind.values()} == {"Step", "Control", "Gate"}
    assert all("CurrentVersion" in each["Ref"] for each in unwind.values())
    # Across stacks they travel as parameters: an export in use could not change to the next version.
    workflow = prod.one("AWS::StepFunctions::StateMachine", "SignalboxProdWorkflow").properties
    assert all("SsmParameterValue" in each["Ref"] for each in workflow["DefinitionSubstitutions"].values())
    assert "CurrentVersion" not in json.dumps(prod.templates["engine"].get("Outputs", {}))


def test_each_workflow_is_published_by_revision(prod: Synthesised):
    properties = prod.one("Custom::SignalboxVersion").properties
    assert properties["RevisionId"]["Fn::GetAtt"][1] == "StateMachineRevisionId"
    assert (properties["Workflow"], properties["Hash"]) == ("invoice", "abc")
    assert "PublishFunction" in json.dumps(properties["ServiceToken"])
    # The emulator waits an hour, and AWS too, for an answer that never comes.
    assert properties["ServiceTimeout"] == "120"


def test_the_published_asset_holds_definition_and_manifest(prod: Synthesised):
    files = json.loads((prod.folder / "signalbox-prod-workflows.assets.json").read_text())["files"]
    sources = [each["source"]["path"] for each in files.values() if each["source"]["path"].startswith("asset.")]
    (content,) = [json.loads((prod.folder / path).read_text()) for path in sources]
    assert content == {"definition": "workflow: invoice\n", "manifest": '{"hash":"abc"}'}


def test_the_sweeper_runs_every_few_minutes(prod: Synthesised, local: Synthesised):
    for app in (prod, local):
        rule = app.one("AWS::Events::Rule", "Sweeps").properties
        assert rule["ScheduleExpression"] == "rate(5 minutes)"
        assert int(function(app, "Sweep").properties["Timeout"]) < 300, "it ends before the next one begins"


def test_ended_executions_of_workflows_reach_the_finaliser(prod: Synthesised):
    rule = prod.one("AWS::Events::Rule", "Ended").properties
    assert rule["EventPattern"]["detail"]["status"] == ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"]
    wildcard, unwind = rule["EventPattern"]["detail"]["stateMachineArn"]
    assert json.dumps(wildcard).rstrip('"}]').endswith(":stateMachine:SignalboxProdWorkflow*")
    assert "nwind" in json.dumps(unwind), "an unwinding that died is begun again"
    (target,) = rule["Targets"]
    assert "FinaliseFunction" in json.dumps(target["Arn"])
    assert target["DeadLetterConfig"]


def test_a_gate_that_is_asked_once_more_reaches_who_writes_to_approvers(prod: Synthesised):
    rule = prod.one("AWS::Events::Rule", "AskedAgain").properties
    assert rule["EventPattern"] == {
        "source": [SOURCE],
        "detail-type": [ASKED],
        "detail": {"again": [True]},
    }
    assert rule["EventBusName"]
    (target,) = rule["Targets"]
    assert "GateFunction" in json.dumps(target["Arn"])
    assert target["DeadLetterConfig"]


def test_the_projector_gets_what_it_follows_and_loses_nothing(prod: Synthesised):
    mapping = prod.one("AWS::Lambda::EventSourceMapping", "Heads").properties
    keys = [json.loads(each["Pattern"])["dynamodb"]["Keys"]["sk"]["S"] for each in mapping["FilterCriteria"]["Filters"]]
    assert keys == [["HEAD"], [{"prefix": "GATE#"}], [{"prefix": "PARK#"}], [{"prefix": "EVENT#"}]]
    events = json.loads(mapping["FilterCriteria"]["Filters"][-1]["Pattern"])["dynamodb"]["NewImage"]["type"]["S"]
    assert sorted(events) == sorted(ANNOUNCED)
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"], "else a reported failure is lost"
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["DestinationConfig"]["OnFailure"]["Destination"]
    assert mapping["BisectBatchOnFunctionError"] is True


def test_every_request_is_answered_by_a_function(prod: Synthesised):
    routes = {route.properties["RouteKey"] for route in prod.of("AWS::ApiGatewayV2::Route")}
    assert routes == {"$default", "ANY /approve/{token}"}


def test_the_stage_is_throttled_and_logs_no_tokens(prod: Synthesised):
    stage = prod.one("AWS::ApiGatewayV2::Stage").properties
    assert stage["DefaultRouteSettings"] == {"ThrottlingBurstLimit": 100, "ThrottlingRateLimit": 50}
    logged = json.loads(stage["AccessLogSettings"]["Format"])
    assert "routeKey" in logged
    assert not {"path", "sourceIp"} & set(logged)


def alarms(app: Synthesised) -> list[Any]:
    return [each.properties for each in app.of("AWS::CloudWatch::Alarm")]


def test_errors_throttles_and_dead_letters_raise_alarms(prod: Synthesised):
    found = alarms(prod)
    assert len(found) == 2 * len(FUNCTIONS) + 2
    assert all(alarm["AlarmActions"] for alarm in found)
    assert prod.one("AWS::SNS::Subscription").properties["Endpoint"] == "operations@example.com"


@pytest.mark.parametrize("type_", ["AWS::CloudWatch::Alarm", "AWS::SNS::Topic", "AWS::Lambda::LayerVersion"])
def test_local_leaves_out_what_its_cloud_lacks(local: Synthesised, type_: str):
    assert not [each for each in local.resources if each.type == type_]


def test_the_command_line_finds_what_it_needs(local: Synthesised):
    outputs = {name for each in local.templates.values() for name in each.get("Outputs", {})}
    wanted = {"ApiUrl", "ApiId", "RunsTable", "DefinitionsTable", "TenantsTable", "BlobsBucket", "MachineInvoice"}
    assert wanted <= outputs
    url = json.dumps(local.templates["data"]["Outputs"]["ApiUrl"]["Value"])
    assert "http://127.0.0.1:4566/_aws/execute-api/" in url


def test_no_record_is_deleted_by_a_field_of_its_own():
    names = {field.name for kind in KINDS.values() for field in fields(kind)}
    assert "ttl" not in names
