"""Environments and their overrides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from infra import settings as infra_settings
from infra.grants import tool_actions
from infra.settings import ENVIRONMENTS, UnknownEnvironmentError, settings_for
from infra.stacks.workflows import compile_all
from scripts.commands.deploy import environments
from shared.settings import McpServer, Person

if TYPE_CHECKING:
    from pathlib import Path


def test_an_unknown_environment_is_refused_with_the_known_ones():
    with pytest.raises(UnknownEnvironmentError, match="dev, local, prod"):
        settings_for("staging", {})


def test_context_overrides_texts_and_json():
    context = {"region": "eu-west-1", "tool_settings": '{"ERP_URL": "x"}', "account": None, "approvers": '{"a": []}'}
    settings = settings_for("prod", context)
    assert (settings.region, settings.account, dict(settings.tool_settings)) == ("eu-west-1", None, {"ERP_URL": "x"})
    assert dict(settings.approvers) == {"a": ()}


def test_approvers_become_people():
    given = {"approvers": {"finance": [{"name": "Ann", "initials": "A", "email": "a@example.com"}]}}
    assert settings_for("dev", given).approvers["finance"] == (Person("Ann", "A", "a@example.com"),)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"tool_settings": "{"}, "context tool_settings: not JSON"),
        ({"approvers": '{"finance": [{"nom": "x"}]}'}, "context approvers: .*name, initials, email"),
    ],
)
def test_unreadable_overrides_are_named(context: dict[str, str], message: str):
    with pytest.raises(ValueError, match=message):
        settings_for("local", context)


def test_every_environment_fits_its_own_name():
    for name, settings in ENVIRONMENTS.items():
        assert settings_for(name, {}) == settings
        assert settings.prefix == f"signalbox-{name}"


def test_environments_of_one_account_never_match_each_others_machines():
    patterns = [settings.machines for settings in ENVIRONMENTS.values()]
    assert not [(a, b) for a in patterns for b in patterns if a != b and a.startswith(b)]


def test_the_command_line_knows_the_environments_without_importing_them():
    assert environments() == sorted(ENVIRONMENTS)


GRANTS = {
    "s3.get": ["arn:aws:s3:::docs/in/*", "arn:aws:s3:::docs"],
    "email.send": ["arn:aws:ses:eu-west-1:1:identity/x"],
}


def test_what_tools_may_touch_and_whom_they_may_ask_is_named():
    servers = {"crm": {"url": "https://crm.example/mcp", "secret": "crm_token"}}
    settings = settings_for("prod", {"tool_grants": json.dumps(GRANTS), "mcp_servers": json.dumps(servers)})
    assert settings.tool_grants == {tool: tuple(arns) for tool, arns in GRANTS.items()}
    assert settings.tool_variables == {
        "MCP_SERVERS": json.dumps(servers, sort_keys=True),
        "EMAIL_SENDER": settings.sender,
    }
    assert settings_for("prod", {}).tool_variables == {}


PLACE = "eu-west-1:123456789012"
ALL_OF_A_KIND = [
    ("s3.get", "s3:::*"),
    ("s3.get", "s3:::*/in/x"),
    ("s3.put", f"kms:{PLACE}:key/*"),
    ("dynamodb.query", f"dynamodb:{PLACE}:table/*"),
    ("dynamodb.query", f"dynamodb:{PLACE}:table/*/index/by_day"),
    ("sql.query", f"rds:{PLACE}:cluster:*"),
    ("sql.query", f"secretsmanager:{PLACE}:secret:*"),
    ("sql.query", f"secretsmanager:{PLACE}:secret:*-??????"),
    ("sql.query", f"secretsmanager:{PLACE}:secret:db/*"),
    ("sqs.send", f"sqs:{PLACE}:*"),
    ("sns.publish", f"sns:{PLACE}:**"),
    ("events.put", f"events:{PLACE}:event-bus/*"),
    ("email.send", f"ses:{PLACE}:identity/*"),
    ("lambda.invoke", f"lambda:{PLACE}:function:*"),
    ("lambda.invoke", f"lambda:{PLACE}:function:*:live"),
]


@pytest.mark.parametrize(("tool", "arn"), ALL_OF_A_KIND, ids=str)
def test_all_of_a_kind_is_no_grant(tool: str, arn: str):
    with pytest.raises(ValueError, match="no ARN of one resource"):
        settings_for("prod", {"tool_grants": {tool: [f"arn:aws:{arn}"]}})


def test_each_kind_of_resource_can_be_granted():
    named = {
        "s3.get": ["s3:::docs", "s3:::docs/*", "s3:::docs-*/in/*", f"kms:{PLACE}:key/mrk-1"],
        "dynamodb.query": [f"dynamodb:{PLACE}:table/orders", f"dynamodb:{PLACE}:table/orders/index/*"],
        "sql.query": [f"rds:{PLACE}:cluster:shop", f"secretsmanager:{PLACE}:secret:db/shop-??????"],
        "sqs.send": [f"sqs:{PLACE}:orders.fifo"],
        "sns.publish": [f"sns:{PLACE}:news"],
        "events.put": [f"events:{PLACE}:event-bus/main"],
        "email.send": [f"ses:{PLACE}:identity/box@example.com", f"ses:{PLACE}:configuration-set/mail"],
        "lambda.invoke": [f"lambda:{PLACE}:function:pay", f"lambda:{PLACE}:function:pay:*"],
    }
    grants = {tool: [f"arn:aws:{one}" for one in arns] for tool, arns in named.items()}
    assert settings_for("prod", {"tool_grants": grants}).tool_grants.keys() == named.keys()


@pytest.mark.parametrize(
    ("tool", "arn", "actions"),
    [
        # `overwrite: false` reads the metadata of what is there already.
        ("s3.put", "arn:aws:s3:::docs/*", {"s3:GetObject", "s3:PutObject"}),
        ("s3.put", f"arn:aws:kms:{PLACE}:key/1", {"kms:Decrypt", "kms:GenerateDataKey"}),
        ("s3.get", f"arn:aws:kms:{PLACE}:key/1", {"kms:Decrypt"}),
        ("dynamodb.query", f"arn:aws:kms:{PLACE}:key/1", {"kms:Decrypt"}),
    ],
)
def test_a_tool_may_do_what_it_does(tool: str, arn: str, actions: set[str]):
    assert set(tool_actions(tool, arn)) == actions


@pytest.mark.parametrize(
    ("grants", "message"),
    [
        ({"s3.take": ["arn:aws:s3:::docs/*"]}, "no built-in tool 's3.take' needs a grant"),
        ({"s3.get": ["*"]}, "no ARN of one resource of s3"),
        ({"s3.get": ["arn:aws:s3:::*"]}, "no ARN of one resource of s3"),
        ({"sqs.send": ["arn:aws:sqs:*:*:*"]}, "no ARN of one resource of sqs"),
        ({"sqs.send": ["arn:aws:sns:eu-west-1:123456789012:x"]}, "no ARN of one resource of sqs"),
    ],
)
def test_a_grant_of_everything_is_none(grants: dict[str, list[str]], message: str):
    with pytest.raises(ValueError, match=message):
        settings_for("prod", {"tool_grants": grants})


WRONG_SERVERS = [
    ({"crm": {"uri": "https://x.example"}}, "server crm: it has a `url`"),
    ({"crm": {"url": "https://x.example", "secret": None}}, "server crm: it has a `url`"),
    ({"crm": "https://x.example"}, "server crm: it has a `url`"),
    (["crm"], "no object of servers"),
    ({"CRM/x": {"url": "https://x.example"}}, "'CRM/x' is no name of a server"),
    ({"crm": {"url": "ftp://x.example"}}, "server crm: The URL must begin with https://"),
    ({"crm": {"url": "https://user:word@x.example"}}, "server crm: .*credentials into `headers`"),
    ({"crm": {"url": "http://169.254.169.254/mcp"}}, "server crm: .*no setting allows that"),
    ({"crm": {"url": "https://x.example:99999"}}, "server crm: .*port"),
]


@pytest.mark.parametrize(("servers", "message"), WRONG_SERVERS)
def test_a_server_that_nobody_could_ask_is_refused_before_anything_is_deployed(servers: Any, message: str):
    with pytest.raises(ValueError, match=f"context mcp_servers: .*{message}"):
        settings_for("prod", {"mcp_servers": servers})
    told = {"tool_settings": {"MCP_SERVERS": json.dumps(servers)}}
    with pytest.raises(ValueError, match=f"MCP_SERVERS: .*{message}"):
        settings_for("prod", told)


def test_a_server_that_is_written_in_an_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch):
    written = replace(ENVIRONMENTS["prod"], mcp_servers={"crm": McpServer("crm.example")})
    monkeypatch.setitem(vars(infra_settings)["ENVIRONMENTS"], "prod", written)
    with pytest.raises(ValueError, match="server crm: The URL must begin"):
        settings_for("prod", {})


def test_what_is_told_of_servers_is_what_is_read():
    servers = {"crm": McpServer("http://10.0.0.8:8080/mcp", "crm_token"), "docs": McpServer("https://docs.example/mcp")}
    assert McpServer.told_in(McpServer.tell(servers)) == servers
    assert McpServer.told_in(McpServer.tell({})) == McpServer.told_in({}) == {}
    assert settings_for("dev", {"mcp_servers": json.loads(McpServer.tell(servers)["MCP_SERVERS"])}).servers == {
        "crm",
        "docs",
    }


def test_two_workflows_that_would_be_one_machine_are_refused_with_both_names(tmp_path: Path):
    for name in ("pay-out", "pay_out"):
        text = f"workflow: {name}\nbudget: {{usd: 1}}\nsteps:\n  a: {{type: transform, set: {{x: 1}}}}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"pay-out and pay_out: both would be the machine PayOut\. Rename one"):
        compile_all(tmp_path)
