"""Environments and their overrides."""

from __future__ import annotations

import json

import pytest

from infra.settings import ENVIRONMENTS, UnknownEnvironmentError, settings_for
from scripts.commands.deploy import environments
from shared.settings import Person


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


def test_a_server_has_a_url():
    with pytest.raises(ValueError, match="context mcp_servers"):
        settings_for("prod", {"mcp_servers": {"crm": {"uri": "https://x"}}})
